"""A known stream, put into a stepped run one request at a time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.sim import outcome
from prebleexp.sim.comer import Coming
from prebleexp.sim.given import Given, given_of
from prebleexp.sim.stepped import Stepped
from prebleexp.sim.types import Outcome, Workload


def comings(given: Given, workload: Workload) -> list[Coming]:
    """Each request of it as it comes."""
    expected = given.lengths.expected(workload, given.seed)
    refined = given.lengths.refined(workload, given.seed)
    made = []
    for row in range(len(workload)):
        first, last = workload.segment_offsets[row : row + 2]
        names = ("prefix_group", "session", "turn", "parent_session", "priority", "answer_segment")
        names += ("prompt_tokens", "max_new_tokens", "output_tokens", "slo_ttft_s", "slo_tpot_s")
        patience_s = float(workload.patience_s[row])
        made.append(
            Coming(
                ids=workload.segment_ids[first:last],
                ends=np.cumsum(workload.segment_tokens[first:last]),
                expected_output=math.nan if expected is None else float(expected[row]),
                patience_s=patience_s if math.isfinite(patience_s) else math.inf,
                length_class=0 if refined is None else int(refined[0][row]),
                **{name: getattr(workload, name)[row].item() for name in names},
            )
        )
    return made


def stepped(cell: Cell, workload: Workload, shows: bool = False) -> Outcome:
    """Served like that. What routers are told of lengths is left out where they do not read it, as in
    `simulate_cell`."""
    given = given_of(workload, **runs.asked_of(cell), check=True)
    run = Stepped(given, known=True, shows=shows)
    for row, one in enumerate(comings(given, workload)):
        at_s = float(workload.arrival_s[row])
        if cell.horizon == "stop" and at_s > cell.duration_s:
            break
        run.before(at_s)
        run.come(row, int(workload.segment_offsets[row]), one, at_s)
    made = outcome.outcome(run.end(), run.host.history())
    return made if cell.reads_lengths else replace(made, told_output=np.full(len(workload), np.nan))
