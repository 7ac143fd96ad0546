"""What else differs between two sides of which one is surely better: numbers that may be why, and no proof of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from prebleexp.metrics import DECLARED
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


def sentence(one: str, other: str, levels: Sequence[Level]) -> str:
    """One without its full stop; empty where nothing else differs surely."""
    if not levels:
        return ""
    parts = [
        f"{_called(level.metric, levels)} ({written(level.one)} against {written(level.other)})" for level in levels
    ]
    return f"{one} and {other} also surely differ in {listed(parts)}; that may be why, but does not prove it"


def head(metric: str) -> str:
    """Of a column."""
    return HEADS[metric]


def written(value: float | None) -> str:
    """A level, whose thousands are whole numbers."""
    return number(value, 3 if value is None or value < 1000 else 4)


def _called(metric: str, levels: Sequence[Level]) -> str:
    """The p99 is "theirs" behind the mean alone."""
    alone = metric == "computed_tokens_p99" and levels[0].metric != "computed_tokens_mean"
    return DECLARED[metric].words if alone else LOOKED_AT[metric]
