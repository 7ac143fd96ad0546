"""What a figure shows, in a sentence or two: by how much its lines differ, over the whole of x."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from prebleexp.metrics import HIGHER, NEITHER
from prebleexp.report import signed
from prebleexp.report.differences import Difference, between, span
from prebleexp.report.measure import Measure
from prebleexp.report.summary import Layout, Point, Value, grouped
from prebleexp.report.wording import condition, conditions, interval, listed, number, plain, signed_percent

NO_RUN = "No run of this sweep succeeded, so there is nothing to compare."
ONE_SEED = "There is one seed per point, so no interval: a difference may be chance."
ALIKE = 0.01
"""lines that differ by less everywhere are spoken of as one"""
STEP = 1.5
"""a line so many times as far from the best as the one before it is spoken of on its own"""
TIMES = 2.0
"""from here on a ratio is said, and not a percentage"""
MANY = 4
"""panels that are named"""

Place = tuple[Value, ...]
"""the values of the panel's axes, then x"""
Lines = dict[str, dict[Place, Point]]
Found = list[tuple[Value, Difference]]
"""each with its x, in order"""


def headline(points: Sequence[Point], where: Layout, measure: Measure) -> str:
    """Which lines are better than which, by how much and where; a sentence for each variant."""
    if not points:
        return NO_RUN
    measured = [point for point in points if point.values]
    if not measured:
        return f"No request of this sweep came far enough to have a {measure.short}."
    said = [f"{start}{_compared(members, where, measure)}." for start, members in _variants(measured, where)]
    if all(len(point.values) < 2 for point in measured):
        said.append(ONE_SEED)
    return " ".join(said)


def changes(points: Sequence[Point], where: Layout, measure: Measure) -> str:
    """Of values that are differences in percent: the least and the greatest, and how many are noise; for each
    variant."""
    if not points:
        return NO_RUN
    said = []
    for start, members in _variants(points, where):
        found = [(*point.interval, point) for point in members if point.interval]
        sure = sorted((one for one in found if one[1] is not None and abs(one[0]) > one[1]), key=lambda one: one[0])
        ends = [
            f"{signed_percent(mean / 100, None if half is None else half / 100)} ({_named(point, where)})"
            for mean, half, point in sure
        ]
        noise = f"{len(found) - len(sure)} of {len(found)} are within the noise"
        if not sure:
            said.append(f"{start}{measure.short}: {noise}.")
            continue
        span = f"from {ends[0]} to {ends[-1]}" if len(ends) > 1 else ends[0]
        said.append(f"{start}{measure.short}: {span}{f'; {noise}' if len(sure) < len(found) else ''}.")
    return " ".join(said)


def _variants(points: Sequence[Point], where: Layout) -> list[tuple[str, list[Point]]]:
    """The points of each variant, and how a sentence about it starts."""
    if "variant" not in where.panels:
        return [("", list(points))]
    groups = grouped(points, lambda point: (point.at["variant"],))
    return [(f"{plain(variant).capitalize()}, ", members) for (variant,), members in groups.items()]


def _compared(points: Sequence[Point], where: Layout, measure: Measure) -> str:
    lines = lines_of(points, where)
    if len(lines) == 1:
        return _alone(next(iter(lines)), points, where, measure)
    if signed.crosses_zero(points) and measure.better != NEITHER:
        return signed.sentence(lines, measure)
    if not any(point.interval[0] for point in points if point.interval):
        return f"{listed(list(lines))} are equal: {measure.short} is 0 everywhere"
    order = ranked(lines, measure.better)
    best = [name for name in order if name == order[0] or _alike(lines, name, order[0], where)]
    others = [name for name in order if name not in best]
    of_best: list[str] = []
    of_others: list[str] = []
    for cluster in _clusters(lines, best[0], others):
        found = [one for name in cluster for one in differences(lines, best[0], name, where)]
        if found and ratio(lines, cluster[0], best[0]) >= TIMES:
            of_others.append(f"{_whose(cluster, measure)} {_times(found, measure)}")
        elif found:
            of_best.append(clause(found, cluster, where, measure))
    alike = f"{listed(best)} are equal, or within the noise of each other"
    if not of_best and not of_others:
        return alike if len(best) > 1 else f"{listed(list(lines))} have nothing in common to be compared by"
    is_or_are = "are" if len(best) > 1 and measure.is_time else "is"
    first = listed(of_best) if of_best else measure.superlative
    return "; ".join((f"{_whose(best, measure)} {is_or_are} {first}", *of_others))


def lines_of(points: Sequence[Point], where: Layout) -> Lines:
    """The points by line and place."""
    lines: Lines = {}
    for point in points:
        at = tuple(point.at[axis] for axis in (*where.panels, where.x))
        lines.setdefault(plain(point.at[where.line]), {})[at] = point
    return lines


def _alone(name: str, points: Sequence[Point], where: Layout, measure: Measure) -> str:
    """The level of a line that has none to be compared with."""
    parts = []
    for panel in grouped(points, lambda point: tuple(point.at[axis] for axis in where.panels)).values():
        ends = [panel[0]] if len(panel) == 1 else [panel[0], panel[-1]]
        values = [
            f"{interval(point.interval)} {measure.unit} at {condition(where.x, point.at[where.x])}" for point in ends
        ]
        parts.append(f"{' and '.join(values)}{_on(conditions(panel[0].at, where.panels))}")
    if len(parts) > MANY:
        values_of_all = [point.interval[0] for point in points if point.interval]
        parts = [f"{number(min(values_of_all))} to {number(max(values_of_all))} {measure.unit}"]
    article = "an" if measure.words[0] in "aeiou" else "a"
    return f"{name} has {article} {measure.words} of {listed(parts)}"


def ranked(lines: Lines, better: str) -> list[str]:
    """The best on the whole first; of a quantity of which neither less nor more is better, the last line."""
    names = list(lines)
    sign = -1 if better == HIGHER else 1
    return sorted(names, key=lambda name: (sign * ratio(lines, name, names[0]), names.index(name)))


def ratio(lines: Lines, one: str, other: str) -> float:
    """The geometric mean of the ratios, where both have a value; of the sums if there is a value that is not above
    zero."""
    pairs = [
        (point.interval[0], base.interval[0])
        for at, point in lines[one].items()
        if (base := lines[other].get(at)) is not None and point.interval and base.interval
    ]
    if not pairs:
        return 1.0
    if all(a > 0 and b > 0 for a, b in pairs):
        return math.exp(sum(math.log(a / b) for a, b in pairs) / len(pairs))
    total = sum(b for _, b in pairs)
    return sum(a for a, _ in pairs) / total if total else 1.0


def differences(lines: Lines, one: str, other: str, where: Layout) -> Found:
    """Of `one` relative to `other`, everywhere where both are."""
    found = []
    for at, point in lines[one].items():
        base = lines[other].get(at)
        place = conditions(point.at, [axis for axis in (*where.panels, where.x) if axis != "variant"])
        difference = None if base is None else between(point, base, where=place, names=(one, other))
        if difference is not None:
            found.append((at[-1], difference))
    return found


def _alike(lines: Lines, one: str, other: str, where: Layout) -> bool:
    found = [difference for _, difference in differences(lines, one, other, where)]
    equal = sum(difference.relative == 0 for difference in found)
    nowhere_apart = equal > len(found) / 2 and not any(difference.sure for difference in found)
    return bool(found) and (nowhere_apart or all(abs(difference.relative) < ALIKE for difference in found))


def _clusters(lines: Lines, best: str, others: Sequence[str]) -> list[list[str]]:
    """Lines that are about as far from the best."""
    found: list[list[str]] = []
    for name in others:
        if found and _far(lines, name, best) < STEP * _far(lines, found[-1][0], best):
            found[-1].append(name)
        else:
            found.append([name])
    return found


def _far(lines: Lines, one: str, other: str) -> float:
    times = ratio(lines, one, other)
    return max(times, 1 / times) if times > 0 else math.inf


def _whose(names: Sequence[str], measure: Measure) -> str:
    return listed(names) if measure.is_time else f"{listed(names)}'s {measure.short}"


def _times(found: Found, measure: Measure) -> str:
    """How many times as much the others are as the best."""
    ratios = [1 / (1 + difference.relative) for _, difference in found if difference.relative > -1]
    ends = list(dict.fromkeys(number(ratio, 2) for ratio in (min(ratios), max(ratios))))
    return (
        f"{'takes' if len({d.other for _, d in found}) == 1 else 'take'} {' to '.join(ends)} × as long"
        if (measure.is_time)
        else f"is {' to '.join(ends)} × as much"
    )


def clause(found: Found, others: Sequence[str], where: Layout, measure: Measure) -> str:
    """What the best line is, compared with these: all over x, up to some x and then, or in how many places."""
    sure = [(x, one) for x, one in found if one.sure]
    told = [name for name in others if any(one.other == name for _, one in sure)]
    if not sure:
        return f"within the noise of {others_of(others, measure)}"
    if len(told) < len(others):
        apart = [(x, one) for x, one in found if one.other in told]
        rest = others_of([name for name in others if name not in told], measure)
        return f"{clause(apart, told, where, measure)}, and within the noise of {rest}"
    than = others_of(others, measure)
    words = {sign: measure.words_for(sign) for sign in (-1, 1)}
    signs = {_sign(one) for _, one in sure}
    noise = len(found) - len(sure)
    is_or_are = "is" if noise == 1 else "are"
    quiet = f" ({noise} of {len(found)} comparisons {is_or_are} within the noise)" if noise else ""
    if len(signs) == 1:
        sign = signs.pop()
        only = f" with {sure[0][1].where}" if noise and len(sure) == 1 else ""
        return f"{span([one for _, one in sure])} {words[sign]} than {than}{only}{quiet}"
    turn = _turn(sure)
    if turn is not None:
        before, after = ([one for x, one in sure if (x in turn) is early] for early in (True, False))
        later = list(dict.fromkeys(x for x, _ in sure if x not in turn))
        until = f"up to {condition(where.x, turn[-1])}" if len(turn) > 1 else f"at {condition(where.x, turn[0])}"
        then = "then " if len(later) > 1 else ""
        at = f" at {condition(where.x, later[0])}" if len(later) == 1 else ""
        return (
            f"{span(before)} {words[_sign(before[0])]} than {than} {until}, "
            f"{then}{span(after)} {words[_sign(after[0])]}{at}"
        )
    mostly = max((-1, 1), key=lambda sign: sum(_sign(one) == sign for _, one in sure))
    often, rarely = ([one for _, one in sure if (_sign(one) == mostly) is same] for same in (True, False))
    worst = max(rarely, key=lambda one: abs(one.relative))
    return (
        f"{words[mostly]} than {than} in {len(often)} of {len(found)} comparisons, by {span(often)}, and "
        f"{words[-mostly]} in {len(rarely)}, by {span(rarely)} (most: {worst.where}, than {worst.other})"
    )


def others_of(names: Sequence[str], measure: Measure) -> str:
    return listed(list(names)) if measure.is_time else listed([f"{name}'s" for name in names])


def _turn(sure: Found) -> list[Value] | None:
    """The x up to which all differences have one sign, if all have the other one after; None if it is not so."""
    by_x = {x: {_sign(one) for at, one in sure if at == x} for x in sorted({x for x, _ in sure}, key=_as_number)}
    if any(len(signs) > 1 for signs in by_x.values()):
        return None
    order = [next(iter(signs)) for signs in by_x.values()]
    if sum(a != b for a, b in pairwise(order)) != 1:
        return None
    return [x for x, sign in zip(by_x, order, strict=True) if sign == order[0]]


def _as_number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _sign(one: Difference) -> int:
    return 1 if one.relative > 0 else -1


def _named(point: Point, where: Layout) -> str:
    return conditions(point.at, [where.line, *(axis for axis in (*where.panels, where.x) if axis != "variant")])


def _on(where: str) -> str:
    return f" {'on' if where[:1].isdigit() else 'with'} {where}" if where else ""
