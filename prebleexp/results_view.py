"""The view `results` of docs/tables.md: what a sweep found, a row for each of its configurations, lines and metrics.

Means are over the seeds of one sweep, which one code computed, and of one whole configuration: nothing is mixed. Their
intervals are those of reports. Runs that say what was asked besides are left out, as another load is, or the loss of a
GPU. DuckDB has no Student's t; its quantiles are written into the view.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from prebleexp.intervals import DRAWS_COSTS, t_quantile

MOST_SEEDS = 200
"""beyond these the quantile is that of these, which is at most 0.7 % too wide"""
SINGLE = "run"
"""what commands without -m are called: of each of their configurations the last counts"""
PLACE = ("part", "variant", "line")
WRITTEN_BY = Path(__file__), Path(__file__).with_name("intervals.py")
"""the files that say what it is"""


def definition(placed: Collection[str], configuration: Sequence[str], metrics: Sequence[str]) -> str:
    """SQL that creates the view. `placed` are the columns of experiment_runs, the others columns of runs."""
    at = [f"e.{name}" if name in placed else f"NULL::VARCHAR AS {name}" for name in PLACE]
    at += [f"r.{quoted(name)}" for name in configuration]
    each = ", ".join(
        f"{{metric: {_text(name)}, mean: avg({column}), spread: stddev_samp({column}), seeds: count({column})}}"
        for name, column in ((name, f"r.{quoted(name)}::DOUBLE") for name in metrics)
    )
    names = ", ".join(map(quoted, ("sweep", *PLACE, *configuration)))
    shown = ", ".join(map(quoted, ("sweep", *PLACE, *(name for name in configuration if "." not in name))))
    of_one = f"{quoted(DRAWS_COSTS)} IS TRUE" if DRAWS_COSTS in configuration else "FALSE"
    error = f"sqrt(1 / seeds + CASE WHEN {of_one} THEN 1 ELSE 0 END) * spread"  # see `mean_interval`
    fields = "".join(f", {quoted(name)}" for name in configuration if "." in name)
    asked = "WHERE e.aside IS NOT TRUE" if "aside" in placed else ""
    quantiles = ", ".join(repr(t_quantile(df)) for df in range(1, MOST_SEEDS))
    return f"""
CREATE OR REPLACE VIEW results AS
WITH chosen AS (
  SELECT id, name AS sweep, last_run FROM experiments
  QUALIFY name = {_text(SINGLE)} OR row_number() OVER (PARTITION BY name ORDER BY last_run DESC, id) = 1
), averaged AS (
  SELECT chosen.sweep, {", ".join(at)}, chosen.last_run, chosen.id, [{each}] AS found
  FROM chosen JOIN experiment_runs AS e ON e.experiment = chosen.id JOIN runs AS r ON r.key = e.key
  {asked}
  GROUP BY ALL
), latest AS (
  SELECT * FROM averaged QUALIFY row_number() OVER (PARTITION BY {names} ORDER BY last_run DESC, id) = 1
), listed AS (
  SELECT * EXCLUDE (last_run, id, found), unnest(found, recursive := true) FROM latest
)
SELECT {shown}, metric, mean, ([{quantiles}])[least(seeds, {MOST_SEEDS}) - 1] * {error} AS half_width,
  seeds{fields}
FROM listed WHERE seeds > 0
"""  # noqa: S608 -- names of our own tables


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
