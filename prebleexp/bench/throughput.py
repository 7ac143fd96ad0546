"""`prebleexp bench`: requests simulated per second of CPU, by router."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.bench.case import AS_OF_2024, LOAD, SETUPS, size, speed
from prebleexp.bench.cpu import REPEATS, run_s
from prebleexp.bench.table import LESS, MORE, Row, Table
from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.launch import configure

POLICIES = ("lor", "random", "round_robin", "lor_tokens", "least_work", "e2_released", "e2")


def throughput(policies: Sequence[str] | None = None) -> list[Row]:
    """Simulated requests per second of CPU, as they are served by default, and as in all releases."""
    return [
        {"setup": name} | measure(configure.cells([*LOAD, *served, f"policy={policy}"])[0])
        for name, served in SETUPS.items()
        for policy in policies or POLICIES
    ]


def measure(cell: Cell) -> Row:
    """The least CPU seconds of some runs of `cell`, its request stream drawn beforehand."""
    workload = runs.draw(cell)
    runs.run(cell, workload)
    seconds = min(run_s(cell, workload) for _ in range(REPEATS))
    return size(cell, workload) | speed(len(workload), seconds)


TABLE = Table(throughput, {"cpu_seconds": LESS, "requests_per_cpu_second": MORE}, before={"setup": AS_OF_2024})
