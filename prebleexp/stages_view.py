"""The view `stages` of docs/tables.md: what became of a load that came in stages, a row for each stage of each run
whose requests are kept."""

from __future__ import annotations

from pathlib import Path

from prebleexp.sim.states import State

WRITTEN_BY = (Path(__file__),)
"""the files that say what it is"""

DEFINITION = f"""
CREATE OR REPLACE VIEW stages AS
WITH staged AS (SELECT * FROM requests QUALIFY max(stage) OVER (PARTITION BY key) > min(stage) OVER (PARTITION BY key))
SELECT key, stage, count(*) AS n_requests, count(*) FILTER (state = {State.FINISHED.value}) AS n_finished,
  (count(due_s) - 1) / nullif(max(due_s) - min(due_s), 0) AS offered_rps,
  sum(output_seen) / nullif(max(finish_s) - min(due_s), 0) AS output_tokens_per_s,
  avg(ttft_s) AS ttft_mean_s, quantile_cont(ttft_s, 0.9) AS ttft_p90_s, avg(tpot_s) AS tpot_mean_s,
  avg(latency_s) AS latency_mean_s
FROM staged WHERE stage >= 0 GROUP BY key, stage
"""  # noqa: S608 -- numbers of our own
