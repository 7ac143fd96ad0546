"""What files of requests were taken for, and what of that is doubtful."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prebleexp.experiment.cell import Cell
from prebleexp.workloads.base import WorkloadSource
from prebleexp.workloads.reading import Understood
from prebleexp.workloads.replayed import Replayed


def taken_for(cells: Sequence[Cell]) -> list[str]:
    """A line for each file of these cells."""
    return list(dict.fromkeys(taken.line for _, taken in _files(cells)))


def doubted(cells: Sequence[Cell]) -> list[str]:
    """Sentences, on which an answer for these cells depends: first that prompts share less than they did."""
    said = [taken.unshared for _, taken in _files(cells) if taken.unshared]
    for workload, taken in _files(cells):
        where = f"{workload.path}: " if isinstance(workload, Replayed) else ""
        said += [f"{where}{one}" for one in taken.doubts if one != taken.unshared]
    return list(dict.fromkeys(said))


def _files(cells: Sequence[Cell]) -> Iterator[tuple[WorkloadSource, Understood]]:
    workloads: list[WorkloadSource] = []
    for cell in cells:
        if cell.workload not in workloads:
            workloads.append(cell.workload)
    for one in workloads:
        if (taken := one.understood) is not None:
            yield one, taken
