"""Which of a plan's runs are at its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prebleexp.experiment.results import Result
from prebleexp.planning.contender import GPUS, RPS
from prebleexp.planning.planned import Planned


def at_answer(of: Planned, runs: Sequence[Result]) -> tuple[float, list[Mapping[str, Any]]]:
    """The size, and the metrics of the runs at it, of all that the answer was found with: of GPUs the answer, of a load
    the greatest that was tried and is no greater."""
    found: dict[float, list[Result]] = {}
    for one in {one.key: one for one in runs}.values():
        found.setdefault(_size(of, one), []).append(one)
    assert of.answer.size is not None
    known = [spot.size for spot in of.answer.curve if spot.size in found and spot.size <= of.answer.size]
    size = max(known, default=min(found))
    longest = max(_length(one) for one in found[size])
    return size, [one.metrics or {} for one in found[size] if _length(one) == longest]


def _size(of: Planned, run: Result) -> float:
    if of.contender.searched == GPUS:
        return run.cell.gpus
    return run.cell.rps if of.contender.searched == RPS else float(run.cell.workload.users or 0)


def _length(run: Result) -> float:
    """Runs that were made longer are another length."""
    return run.cell.duration_s
