"""What a figure shows of a quantity that is above zero here and below it there, such as a margin: in its own unit, as
shares of what may be next to nothing mislead."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from prebleexp.intervals import mean_interval
from prebleexp.metrics import HIGHER
from prebleexp.report.measure import Measure
from prebleexp.report.summary import Point
from prebleexp.report.wording import listed, number

Lines = Mapping[str, Mapping[Any, Point]]


def crosses_zero(points: Sequence[Point]) -> bool:
    """Whether it is below zero anywhere."""
    return any(point.interval is not None and point.interval[0] < 0 for point in points)


def sentence(lines: Lines, measure: Measure) -> str:
    """By how much the best line is above, or below, each of the others; the best on the whole."""
    sign = -1 if measure.better == HIGHER else 1
    common = set.intersection(*({at for at, point in line.items() if point.interval} for line in lines.values()))
    if not common:
        return f"{listed(list(lines))} have nothing in common to be compared by"
    totals = {
        name: math.fsum(line[at].interval[0] for at in common if line[at].interval)  # type: ignore[index]
        for name, line in lines.items()
    }
    ranked = sorted(lines, key=lambda name: sign * totals[name])
    best, word = ranked[0], "higher" if sign < 0 else "lower"
    parts = [
        said
        for name in ranked[1:]
        if (said := _than([(lines[best][at], lines[name][at]) for at in common], name, word, measure))
    ]
    unit = "" if measure.unit == "share" else f" {measure.unit}"
    ends = sorted(line[at].interval[0] for line in [lines[best]] for at in common if line[at].interval)  # type: ignore[index]
    level = number(ends[0]) if len(ends) == 1 else f"{number(ends[0])} to {number(ends[-1])}"
    return (
        f"{best}'s {measure.short} is {level}{unit}: {listed(parts)}" if parts else f"all have the same {measure.short}"
    )


def _than(pairs: Sequence[tuple[Point, Point]], name: str, word: str, measure: Measure) -> str:
    found, noise = [], 0
    for one, other in pairs:
        seeds = [seed for seed in one.values if seed in other.values]
        if seeds:
            mean, half = mean_interval(
                [one.scale * (one.values[seed] - other.values[seed]) for seed in seeds], of_one=one.draws_costs
            )
            found.append(mean)
            noise += half is not None and abs(mean) <= half
    if not found or all(value == 0 for value in found):
        return f"as {name}'s is" if found else ""
    if noise == len(found):
        return f"within the noise of {name}'s"
    flip = 1 if word == "higher" else -1
    low, high = sorted(flip * value for value in (min(found), max(found)))
    size = number(low, 2) if low == high else f"{number(low, 2)} to {number(high, 2)}"
    quiet = f" ({noise} of {len(found)} comparisons are within the noise)" if noise else ""
    return f"{size} {word} than {name}'s{quiet}"
