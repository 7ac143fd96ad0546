"""Files of requests whose prompts share nothing, though those that were recorded did."""

from __future__ import annotations

from collections.abc import Iterable

from prebleexp.experiment.cell import Cell
from prebleexp.workloads.base import WorkloadSource


def unshared(cells: Iterable[Cell]) -> list[str]:
    """A sentence for each workload of these cells of which that is so: a comparison of routers, and how many GPUs a
    load takes, depend on it."""
    workloads: list[WorkloadSource] = []
    for cell in cells:
        if cell.workload not in workloads:
            workloads.append(cell.workload)
    return list(dict.fromkeys(of.unshared for one in workloads if (of := one.understood) is not None and of.unshared))
