"""The answer of a sweep over one setting: which value is best, by how much and how surely, and whether more might be
better still."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from prebleexp.metrics import HIGHER, NEITHER
from prebleexp.report.differences import between, on_average
from prebleexp.report.headline import MANY, NO_RUN, ONE_SEED, headline
from prebleexp.report.measure import Measure
from prebleexp.report.summary import Layout, Point, Value, grouped
from prebleexp.report.wording import condition, conditions, listed, plain, signed_percent


class _Curve(NamedTuple):
    where: str
    """in words; empty if there is but one"""
    points: dict[float, Point]
    """by value, which ascend"""


def sentence(points: Sequence[Point], where: Layout, measure: Measure) -> str:
    """Which value of `where.x` is best on each line, and on all."""
    curves = _curves(points, where)
    values = sorted({value for curve in curves for value in curve.points})
    if not curves or measure.better == NEITHER or len(values) < 2:
        return headline(points, where, measure) if points else NO_RUN
    best = {curve.where: _best(curve, measure) for curve in curves}
    good = {curve.where: _as_good(curve, best[curve.where], measure) for curve in curves}
    common = [value for value in values if all(value in good[curve.where] for curve in curves)]
    if not common:
        said = [_apart(curves, best, where)]
    else:
        value = min(common, key=lambda one: _on_the_whole(curves, one, measure))
        alike = [one for one in values if one != value and not _surely_on_average(curves, value, one)]
        if common == values and len(alike) == len(values) - 1:
            ends = f"{plain(values[0])} to {plain(values[-1])}"
            said = [f"{where.x} from {ends} makes no difference to {measure.short} that is beyond the noise"]
        else:
            said = [_together(curves, value, values, where, measure)]
            said += _told_apart(curves, value, alike)
            said += _at_the_edge(curves, value, values, measure)
    if all(len(point.values) < 2 for point in points):
        said.append(ONE_SEED.rstrip("."))
    return " ".join(f"{one}." for one in said)


def _curves(points: Sequence[Point], where: Layout) -> list[_Curve]:
    axes = [axis for axis in (*where.panels, where.line) if len({point.at[axis] for point in points}) > 1]
    found = []
    for members in grouped(points, lambda point: tuple(point.at[axis] for axis in axes)).values():
        measured = {_number(point.at[where.x]): point for point in members if point.values}
        if measured:
            found.append(_Curve(conditions(members[0].at, axes), dict(sorted(measured.items()))))
    return found


def _number(value: Value) -> float:
    return float(value or 0)


def _mean(point: Point) -> float:
    return math.fsum(point.values.values()) / len(point.values)


def _best(curve: _Curve, measure: Measure) -> float:
    sign = -1 if measure.better == HIGHER else 1
    return min(curve.points, key=lambda value: sign * _mean(curve.points[value]))


def _as_good(curve: _Curve, best: float, measure: Measure) -> set[float]:
    """Those that are not surely worse than the best."""
    return {value for value in curve.points if value == best or not _surely(curve, value, best)}


def _surely(curve: _Curve, one: float, other: float) -> bool:
    """Whether two values differ by more than their paired interval."""
    if one not in curve.points or other not in curve.points:
        return False
    found = between(curve.points[one], curve.points[other], where=curve.where, names=(plain(one), plain(other)))
    return found is not None and found.sure


def _on_the_whole(curves: Sequence[_Curve], value: float, measure: Measure) -> float:
    """Less is better: the mean, each curve's relative to its best."""
    sign = -1 if measure.better == HIGHER else 1
    ratios = []
    for curve in curves:
        base = abs(_mean(curve.points[_best(curve, measure)])) or 1.0
        ratios.append(sign * _mean(curve.points[value]) / base)
    return math.fsum(ratios) / len(ratios)


def _together(
    curves: Sequence[_Curve],
    value: float,
    values: Sequence[float],
    where: Layout,
    measure: Measure,
) -> str:
    worst = max(
        (one for one in values if one != value and all(one in curve.points for curve in curves)),
        key=lambda one: _on_the_whole(curves, one, measure),
        default=None,
    )
    equal = any(_alike_there(curve, value, [one for one in values if one != value]) for curve in curves)
    how = "best, or within the noise of the best," if equal else "best"
    places = "" if len(curves) == 1 else f" {_at(curves)}"
    gain = None if worst is None else _over_curves(curves, value, worst)
    text = f"{_named(value, where)} is {how}{places}".rstrip(",")
    if gain is None or worst is None:
        return text
    mean, half = gain
    word = "higher" if mean > 0 else "lower"
    size = signed_percent(abs(mean), half).lstrip("+")
    difference = f"{measure.short} is {size} {word} than with {plain(worst)}"
    if half is not None and abs(mean) <= half:
        return f"{_named(value, where)} has the best mean{places}, but no sure lead: {difference}"
    return f"{text}: {difference}"


def _over_curves(curves: Sequence[_Curve], one: float, other: float) -> tuple[float, float | None] | None:
    """The relative difference, the mean of all curves that have both values, and its interval."""
    return on_average([(of.points[one], of.points[other]) for of in curves if one in of.points and other in of.points])


def _surely_on_average(curves: Sequence[_Curve], one: float, other: float) -> bool:
    """Whether two values differ by more than the interval of their difference over all curves, as `compare` has it."""
    found = _over_curves(curves, one, other)
    return found is not None and abs(found[0]) > (found[1] or 0)


def _alike_there(curve: _Curve, value: float, others: Sequence[float]) -> list[float]:
    return [one for one in others if one in curve.points and not _surely(curve, value, one)]


def _told_apart(curves: Sequence[_Curve], value: float, alike: Sequence[float]) -> list[str]:
    """Which values cannot be told from the best, on average and then in single places, and by which rule."""
    rule = "the 95 % interval of the paired differences has zero in it"
    average = f" on average over {len(curves)} cases" if len(curves) > 1 else ""
    said = [f"{listed([plain(one) for one in alike])} cannot be told from it{average}: {rule}"] if alike else []
    singly = []
    for curve in curves if len(curves) > 1 else ():
        rest = _alike_there(curve, value, [one for one in curve.points if one != value and one not in alike])
        if rest:
            singly.append(f"{listed([plain(one) for one in rest])} with {curve.where}")
    if not singly:
        return said
    more = [f"others in {len(singly) - MANY} more cases"] if len(singly) > MANY else []
    where = listed([*singly[:MANY], *more])
    return [*said, f"Nor can {where}" if alike else f"Alone, these cannot be told from it: {where} ({rule})"]


def _at_the_edge(curves: Sequence[_Curve], value: float, values: Sequence[float], measure: Measure) -> list[str]:
    """Of a best value that is the least or the greatest tried: whether the metric still changes there."""
    if value not in (values[0], values[-1]):
        return []
    before = values[1] if value == values[0] else values[-2]
    falls = "rising" if measure.better == HIGHER else "falling"
    tried = "less" if value == values[0] else "more"
    if _surely_on_average(curves, value, before):
        return [f"It is still {falls} at the edge of what was tried: try {tried}"]
    return [f"It is at the edge of what was tried, and not surely better than {plain(before)}"]


def _apart(curves: Sequence[_Curve], best: dict[str, float], where: Layout) -> str:
    """Where no value is good on all lines: which is best on which."""
    by_value: dict[float, list[str]] = {}
    for curve in curves:
        by_value.setdefault(best[curve.where], []).append(curve.where)
    parts = [f"{plain(value)} with {listed(places)}" for value, places in sorted(by_value.items())]
    return f"No {where.x} is best everywhere: best is {listed(parts)}"


def _at(curves: Sequence[_Curve]) -> str:
    return f"with {listed([curve.where for curve in curves])}" if len(curves) <= 4 else f"in all {len(curves)} cases"


def _named(value: float, where: Layout) -> str:
    name = condition(where.x, value)
    return name.replace(" = ", "=")
