"""What else differs between two sides of which one is surely better: numbers that may be why, and no proof of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from prebleexp.metrics import DECLARED, LOWER
from prebleexp.report.wording import listed, number

LOOKED_AT = {
    "computed_tokens_mean": "prompt tokens computed per request",
    "computed_tokens_p99": "their p99",
    "hit_ratio": "hit ratio",
    "requests_max_over_mean": "requests of the busiest GPU over the mean",
}
"""metrics, and what a sentence calls them"""
HEADS = {"computed_tokens_mean": "tokens computed per request", "computed_tokens_p99": "p99 of them"}
HEADS |= {"hit_ratio": "hit ratio", "requests_max_over_mean": "busiest GPU / mean"}


class Level(NamedTuple):
    """Of a metric of `LOOKED_AT` the means of two sides, which surely differ."""

    metric: str
    one: float
    other: float


def sentence(one: str, other: str, better: bool, levels: Sequence[Level]) -> str:
    """One without its full stop; empty where nothing else differs surely. `better`: of the two, one is. What speaks for
    the other is named apart, since it cannot be why."""
    why = [level for level in levels if _for_one(level) == better]
    against = [level for level in levels if level not in why]
    parts = [_both(level, [*why, *against]) for level in (*why, *against)]
    for_it, points = parts[: len(why)], ""
    if against:
        points = f"{listed(parts[len(why) :])} {'points' if len(against) == 1 else 'point'} the other way"
    if not why:
        return points and f"Of what else surely differs between {one} and {other}, {points}"
    found = f"{one} and {other} also surely differ in {listed(for_it)}; that may be why, but does not prove it"
    return "; ".join(filter(None, (found, points)))


def _for_one(level: Level) -> bool:
    return (level.one < level.other) == (DECLARED[level.metric].better == LOWER)


def _both(level: Level, named: Sequence[Level]) -> str:
    return f"{_called(level.metric, named)} ({written(level.one)} against {written(level.other)})"


def head(metric: str) -> str:
    """Of a column."""
    return HEADS[metric]


def written(value: float | None) -> str:
    """A level, whose thousands are whole numbers."""
    return number(value, 3 if value is None or value < 1000 else 4)


def _called(metric: str, named: Sequence[Level]) -> str:
    """The p99 is "theirs" after the mean alone."""
    alone = metric == "computed_tokens_p99" and named[0].metric != "computed_tokens_mean"
    return DECLARED[metric].words if alone else LOOKED_AT[metric]
