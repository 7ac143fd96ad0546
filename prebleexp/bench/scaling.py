"""`prebleexp bench scaling`: what a decision costs, by the size of the cluster and the length of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from prebleexp.bench.case import GPUS, SECONDS, SERVED, size
from prebleexp.bench.cpu import REPEATS, run_s, used_s
from prebleexp.bench.table import LESS, Row, Table
from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.launch import configure
from prebleexp.policies.replay import Replay
from prebleexp.sim.types import Longs, Setup, Workload

SCALED = ("e2_released", "e2")
ENOUGH = 500_000
"""requests that a decision is measured with, if need be in many runs"""


def scaling(policies: Sequence[str] | None = None) -> list[Row]:
    """Microseconds of CPU a decision: by GPUs, each with 8 requests a second for 15 s; and by requests, 64 a second on
    8 GPUs."""
    sizes = [(gpus, 8 * gpus, SECONDS[0]) for gpus in GPUS] + [(8, 64, seconds) for seconds in SECONDS[1:]]
    rows = []
    for policy in policies or SCALED:
        for gpus, rps, seconds in sizes:
            load = (f"gpus={gpus}", f"rps={rps}", f"duration_s={seconds}")
            (cell,) = configure.cells([*SERVED, f"policy={policy}", *load])
            workload = runs.draw(cell)
            rows.append(size(cell, workload) | {"us_per_decision": decision_s(cell, workload) * 1e6})
    return rows


@dataclass(frozen=True)
class Told(Replay):
    """Replays assignments from an array instead of a file."""

    assigned: Any = None
    """(requests,) GPUs"""

    def __post_init__(self) -> None:
        pass

    def start(self, setup: Setup) -> Longs:
        return self.assigned  # type: ignore[no-any-return]


def decision_s(cell: Cell, workload: Workload) -> float:
    """CPU seconds a decision takes, with all that the policy hears and without what it does at the start: the run
    against one in which it is told the same assignments, by turns and many times, since a decision may take a hundredth
    of what else is simulated of a request."""
    told = replace(cell, policy=Told(assigned=runs.simulate_cell(cell, workload).gpu.astype(np.int64)))
    setup = Setup(
        cell.replicas, cell.seed, len(workload), cell.hardware.kv_tokens, cell.hardware.context_length, workload
    )
    runs.simulate_cell(told, workload)
    repeats = max(REPEATS, ENOUGH // len(workload))
    starts = [used_s(lambda: cell.policy.start(setup)) for _ in range(REPEATS)]
    differences = [run_s(cell, workload) - run_s(told, workload) for _ in range(repeats)]
    return max(1e-9, float(np.median(differences) - np.median(starts)) / len(workload))


TABLE = Table(scaling, {"us_per_decision": LESS})
