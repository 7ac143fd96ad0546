"""Many lines: dots in order, each as far from one of them as it is, since nobody can follow a dozen lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from prebleexp.metrics import HIGHER, NEITHER
from prebleexp.report.measure import Measure
from prebleexp.report.summary import Layout, Point, Value, grouped
from prebleexp.report.wording import plain

MOST_LINES = 8
"""that are drawn as lines"""
BASES = ("lor", "LOR")
"""to which others are compared, if they are there; else to the first"""
DIFFERENCE = "difference"
_PACKAGE = Path(__file__).parents[1]
_SHIPPED = next((one for one in (_PACKAGE / "conf", _PACKAGE.parent / "conf") if one.is_dir()), _PACKAGE) / "policy"
YOURS = " (yours)"

Shown = Sequence[tuple[str, Sequence[Point]]]
"""panels: a title, and what is in it"""


def are_many(points: Sequence[Point], where: Layout, measure: Measure) -> bool:
    """Whether a figure of these has too many lines, and a line that others can be compared to."""
    names = {point.at[where.line] for point in points}
    return len(names) > MOST_LINES and measure.better != NEITHER and all(isinstance(one, str) for one in names)


def as_dots(shown: Shown, where: Layout, measure: Measure) -> tuple[Shown, Measure]:
    """Panels of differences in percent of `base`, with the same seeds, the best line on the whole first; and what they
    are of."""
    every = [point for _, members in shown for point in members]
    names = list(dict.fromkeys(point.at[where.line] for point in every))
    base = next((one for one in BASES if one in names), names[0])
    panels = [(title, _differences(members, where, base)) for title, members in shown]
    order = _order([point for _, members in panels for point in members], where, measure)
    found = []
    for title, members in panels:
        ordered = sorted(members, key=lambda point: order.index(point.at[where.line]))
        found.append((title, [_named(point, where) for point in ordered]))
    words = f"{measure.short} relative to {plain(base)}"
    return found, replace(measure, metric=DIFFERENCE, words=words, unit="%")


def _differences(members: Sequence[Point], where: Layout, base: Value) -> list[Point]:
    found = []
    for at_x in grouped(members, lambda point: (point.at[where.x],)).values():
        reference = next((point for point in at_x if point.at[where.line] == base), None)
        if reference is None or not reference.values:
            continue
        for point in at_x:
            seeds = [seed for seed in point.values if seed in reference.values]
            mean = math.fsum(reference.values[seed] for seed in seeds) / len(seeds) if seeds else 0.0
            if mean:
                change = {seed: 100 * (point.values[seed] - reference.values[seed]) / mean for seed in seeds}
                rows = [{**row, DIFFERENCE: change[row.get("seed")]} for row in point.rows if row.get("seed") in change]
                found.append(Point(point.at, tuple(rows), DIFFERENCE))
    return found


def _order(points: Sequence[Point], where: Layout, measure: Measure) -> list[Value]:
    sign = -1 if measure.better == HIGHER else 1
    lines = grouped([point for point in points if point.interval], lambda point: (point.at[where.line],))
    means = {
        line: math.fsum(point.interval[0] for point in of if point.interval) / len(of) for (line,), of in lines.items()
    }
    return sorted(means, key=lambda line: sign * means[line])


def _named(point: Point, where: Layout) -> Point:
    """A policy that did not come with the package is the reader's own."""
    name = point.at[where.line]
    own = where.line == "policy" and is_own(name)
    return replace(point, at={**point.at, where.line: f"{name}{YOURS}"}) if own else point


def is_own(policy: Value) -> bool:
    """Whether it did not come with the package."""
    return not (_SHIPPED / f"{policy}.yaml").is_file()
