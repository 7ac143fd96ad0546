"""From one row per run to one point per configuration: which axis goes where, and means over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from prebleexp.intervals import DRAWS_COSTS, mean_interval

Value = int | float | str | bool | None
Row = Mapping[str, Value]
T = TypeVar("T")

BASE_AXES = ("gpus", "rps", "policy")
REPLICATION = ("seed", "replications")
LOADS = ("rps", "gpus", "replicas", "rps_per_gpu", "duration_s", "workload.lanes", "output_length_variance")
"""numbers that say how much comes, and to how much: against these lines are compared, and none of them is tuned"""


@dataclass(frozen=True)
class Layout:
    """What each axis of a sweep becomes in a figure. `panels` may name several: a panel per combination."""

    x: str
    line: str
    panels: tuple[str, ...]
    tunes: bool = False
    """whether x is a setting, of which the best value is asked"""

    @property
    def axes(self) -> tuple[str, ...]:
        return (*self.panels, self.x, self.line)


@dataclass(frozen=True)
class Point:
    """The runs of one configuration. They differ in their seed alone."""

    at: Row
    """the value of every axis"""
    rows: tuple[Row, ...]
    metric: str
    scale: float = 1.0
    """of the interval, from the metric's unit to the one that is shown"""

    @cached_property
    def values(self) -> dict[Value, float]:
        """The metric by seed, where the run has one."""
        return {row.get("seed"): float(value) for row in self.rows if (value := row.get(self.metric)) is not None}

    @cached_property
    def interval(self) -> tuple[float, float | None] | None:
        return self.interval_of(self.metric, self.scale)

    def interval_of(self, metric: str, scale: float = 1.0) -> tuple[float, float | None] | None:
        """Mean over the seeds that have this metric, and the half-width of its 95 % interval; None if none has."""
        values = [scale * float(value) for row in self.rows if (value := row.get(metric)) is not None]
        return mean_interval(values, of_one=self.draws_costs) if values else None

    @property
    def draws_costs(self) -> bool:
        """Whether its seeds drew what step times are, of which one is true."""
        return any(row.get(DRAWS_COSTS) for row in self.rows)

    @property
    def seeds(self) -> str:
        """How many runs have the metric, in words."""
        runs, measured = len(self.rows), len(self.values)
        return str(runs) if runs == measured else f"{measured} of {runs}"

    def share(self, part: str, whole: str) -> float | None:
        """Sum of one count over the sum of another, over all seeds; None if there is nothing to divide by."""
        total = sum(float(row.get(whole) or 0) for row in self.rows)
        return sum(float(row.get(part) or 0) for row in self.rows) / total if total else None


def layout(rows: Sequence[Row], axes: Sequence[str]) -> Layout:
    """Request rate along x, a line per policy, a panel per GPU count, as far as these were swept; else what was. Where
    nothing with a name was swept, and one setting that is a number, that is x, with a line for each rate.

    In a sweep of several parts the lines are its own, and each variant has its panels. Where every line has a number of
    GPUs of its own, as clusters of the same cost do, that is part of the line.
    """
    known = {name for row in rows for name in row} | set(BASE_AXES)
    base = [axis for axis in BASE_AXES if axis != "policy" or "line" not in axes]  # a line has its policy
    candidates = [a for a in dict.fromkeys((*axes, *base)) if a in known and a not in REPLICATION]
    swept = [axis for axis in candidates if len({row.get(axis) for row in rows}) > 1]
    numeric = [axis for axis in swept if all(_is_number(row.get(axis)) for row in rows)]
    settings = [axis for axis in numeric if axis not in LOADS]
    if len(settings) == 1 and swept == numeric:
        line = next((axis for axis in ("rps", *numeric) if axis in numeric and axis != settings[0]), "policy")
        return Layout(settings[0], line, tuple(axis for axis in swept if axis not in (settings[0], line)), tunes=True)
    x = "rps" if "rps" in numeric or not numeric else min(numeric, key=lambda axis: axis == "gpus")
    named = [axis for axis in swept if axis not in numeric]
    preferred = [axis for axis in ("line", "policy") if axis in named]
    line = (preferred or named or ["policy"])[0]
    panels = dict.fromkeys(("gpus", *swept))
    of_line = ("gpus",) if line == "line" and "gpus" in swept and _one_each(rows, "gpus") else ()
    return Layout(x, line, tuple(axis for axis in panels if axis not in (x, line, *of_line)))


def _one_each(rows: Sequence[Row], axis: str) -> bool:
    """Whether a line of a variant never has two values of it."""
    found = {(row.get("variant"), row.get("line"), row.get(axis)) for row in rows}
    return len(found) == len({(variant, line) for variant, line, _ in found})


def points(rows: Sequence[Row], where: Layout, metric: str) -> list[Point]:
    """One point per configuration; numbers ascend, names stay in the order in which they come."""
    groups = grouped(rows, lambda row: tuple(row.get(axis) for axis in where.axes))
    found = [Point(dict(zip(where.axes, at, strict=True)), tuple(members), metric) for at, members in groups.items()]
    ranks = [_ranks(point.at[axis] for point in found) for axis in where.axes]
    return sorted(found, key=lambda point: [rank[point.at[axis]] for axis, rank in zip(where.axes, ranks, strict=True)])


def grouped(items: Iterable[T], by: Callable[[T], tuple[Value, ...]]) -> dict[tuple[Value, ...], list[T]]:
    groups: dict[tuple[Value, ...], list[T]] = {}
    for item in items:
        groups.setdefault(by(item), []).append(item)
    return groups


def _ranks(values: Iterable[Value]) -> dict[Value, int]:
    distinct = list(dict.fromkeys(values))
    if all(_is_number(value) for value in distinct):
        distinct.sort(key=lambda value: float(value or 0))
    return {value: rank for rank, value in enumerate(distinct)}


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
