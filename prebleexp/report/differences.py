"""By how much one point is above another, over the request streams that both had."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from prebleexp.intervals import mean_interval, relative_difference
from prebleexp.report.summary import Point
from prebleexp.report.wording import signed_percent


@dataclass(frozen=True)
class Difference:
    """Relative to the other's mean; `half_width` is of its 95 % interval, None where there is one seed."""

    where: str
    one: str
    other: str
    relative: float
    half_width: float | None

    @property
    def sure(self) -> bool:
        """Whether the interval leaves out zero; of one seed, whether there is a difference."""
        return abs(self.relative) > (self.half_width or 0)


def between(one: Point, other: Point, *, where: str, names: tuple[str, str]) -> Difference | None:
    """None if they have no seed in common, or nothing to compare with."""
    found = relative_difference(one.values, other.values, of_one=one.draws_costs or other.draws_costs)
    return None if found is None else Difference(where, *names, *found)


def on_average(pairs: Sequence[tuple[Point, Point]]) -> tuple[float, float | None] | None:
    """By how much the first of each pair is above the second, relative to the second's mean: the mean of all pairs, and
    its interval over the seeds that all of them have. None if there is no such seed, or nothing to compare with."""
    seeds = set.intersection(*({*one.values} & {*other.values} for one, other in pairs)) if pairs else set()
    bases = [math.fsum(other.values[seed] for seed in seeds) / len(seeds) if seeds else 0.0 for _, other in pairs]
    if not seeds or not all(bases):
        return None
    relative = [
        math.fsum(
            (one.values[seed] - other.values[seed]) / base for (one, other), base in zip(pairs, bases, strict=True)
        )
        / len(pairs)
        for seed in sorted(seeds, key=str)
    ]
    return mean_interval(relative, of_one=any(point.draws_costs for pair in pairs for point in pair))


def span(found: Sequence[Difference]) -> str:
    """How large these differences are: "12 ± 3 %", "7 to 38 %"."""
    if len(found) == 1:
        return signed_percent(abs(found[0].relative), found[0].half_width).lstrip("+")
    sizes = [100 * abs(one.relative) for one in found]
    if min(sizes) < 1 <= max(sizes) / 10:
        return f"up to {max(sizes):,.0f} %"
    digits = 0 if max(sizes) >= 10 else 1
    ends = list(dict.fromkeys(f"{size:,.{digits}f}" for size in (min(sizes), max(sizes))))
    return f"{' to '.join(ends)} %"
