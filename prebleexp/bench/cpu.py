"""CPU seconds of this process: others on the machine count in them only as far as they share its caches."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.sim.types import Workload

REPEATS = 9


def used_s(work: Callable[[], object]) -> float:
    """Seconds of a piece of work."""
    start = time.process_time()
    work()
    return time.process_time() - start


def least_s(work: Callable[[], object], times: int = REPEATS) -> float:
    """The least disturbed of several times."""
    return min(used_s(work) for _ in range(times))


def run_s(cell: Cell, workload: Workload) -> float:
    """Seconds of one run, its request stream drawn beforehand."""
    return used_s(lambda: runs.simulate_cell(cell, workload))


def by_turns_s(cells: Sequence[Cell], workload: Workload, times: int = REPEATS) -> list[float]:
    """The least seconds of each cell's runs of one stream, compiled. Cells take turns, so that a machine that is slow
    for a while is so for all of them."""
    for cell in cells:
        runs.simulate_cell(cell, workload)
    taken = [[run_s(cell, workload) for cell in cells] for _ in range(times)]
    return [min(each) for each in zip(*taken, strict=True)]
