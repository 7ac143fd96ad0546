"""Files of requests whose prompts share nothing, though those that were recorded did."""

from __future__ import annotations

from collections.abc import Iterable

from prebleexp.experiment.cell import Cell


def unshared(cells: Iterable[Cell]) -> list[str]:
    """A sentence for each workload of these cells of which that is so: a comparison of routers, and how many GPUs a
    load takes, depend on it."""
    workloads = dict.fromkeys(cell.workload for cell in cells)
    return list(dict.fromkeys(of.unshared for one in workloads if (of := one.understood) is not None and of.unshared))
