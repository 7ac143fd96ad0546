"""What came of a search."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from prebleexp.intervals import mean_interval
from prebleexp.planning.trials import ENOUGH_MISSES, ROSE, Bracket, Table


class Verdict(Enum):
    FOUND = "found"
    AT_LEAST = "at least"
    """nothing that was tried is too much"""
    AT_MOST = "at most"
    """nothing that was tried is too little"""
    NEVER = "cannot be met"
    """not even idle"""


@dataclass(frozen=True)
class Spot:
    """One measured point of a plan's curve: a size (rate, users or GPUs) and the share that is kept there."""

    size: float
    kept: float
    """the share, mean over the seeds"""
    half_width: float | None
    shares: tuple[float, ...]
    """of each seed, from 0 on"""

    @property
    def seeds(self) -> int:
        return len(self.shares)


class Alone(NamedTuple):
    """A stream that there is one of."""

    kept: float
    """the share, at the answer"""
    ends: tuple[float, float] | None
    """of its 95 % interval, by batches of the stream; None where it is too short"""
    missed: float | None
    """batches in which any request missed"""
    first: float | None
    """of all misses the share in the first batch"""
    worst: float | None = None
    """likewise, in the two batches with the most"""
    of_both: tuple[float, float] | None = None
    """where it is the lesser of the shares of a minute and of all: each"""


@dataclass(frozen=True)
class Answer:
    """`size` is the greatest load, or the fewest GPUs; None where the target is never met. Of GPUs it is the fewest
    that surely meet it, and `likely` the fewest that do on average; of a recording (`alone`) both are the fewest that
    keep it."""

    verdict: Verdict
    size: float | None
    low: float | None
    """the ends of its 95 % interval; of GPUs both None, but of a recording"""
    high: float | None
    """of a recording None where the fewest that surely keep it were not found"""
    likely: float | None
    target: float
    bracket: Bracket | None
    seeds: int
    runs: int
    requests: int
    """that were asked for of a run"""
    counted: int
    """that counted, of a run at this size, on average"""
    precise: bool
    """whether it is known as well as was asked for"""
    misses: float | None
    """that fall into a run, if they are too few for the interval to be trusted"""
    rise: float | None
    """by how much a seed's share went the wrong way along the sizes, if it did markedly"""
    grows: float | None
    """the share of arrivals by which the number in the system surely grows at this size, if it does"""
    curve: tuple[Spot, ...]
    alone: Alone | None = None
    """what is known of the stream, where that is one recording"""
    every: int | None = None
    """of GPUs where none are enough: up to how many each number was tried"""

    @classmethod
    def of(
        cls,
        table: Table,
        verdict: Verdict,
        size: float | None = None,
        *,
        interval: tuple[float, float | None] | None = None,
        likely: float | None = None,
        at: float | None = None,
        alone: bool = False,
        bracket: Bracket | None = None,
        precise: bool = True,
        falls: bool = True,
        every: int | None = None,
    ) -> Answer:
        """`at` is the measured size that stands for the answer; `falls`: greater sizes keep less. `alone`: it is of
        one recording."""
        rise = table.rise(1 if falls else -1)
        low, high = interval or (None, None)
        single = None if at is None or not alone else table.samples(at)[0]
        misses = None if at is None else table.misses(at)
        return cls(
            verdict=verdict,
            size=size,
            low=low,
            high=high,
            likely=likely,
            target=table.question.target,
            bracket=bracket,
            seeds=table.seeds,
            runs=table.runs,
            requests=table.requests,
            counted=round(table.counted(table.sizes[0] if at is None else at)),
            precise=precise,
            misses=misses if misses is not None and misses < ENOUGH_MISSES and not alone else None,
            rise=rise if rise > ROSE else None,
            grows=None if at is None else table.grows(at),
            curve=_curve(table),
            alone=single
            and Alone(single.kept, single.alone, single.missed, single.first, single.worst, single.of_both),
            every=every,
        )

    def times(self, count: int) -> Answer:
        """The same in units of which each size is `count`, as replicas are of GPUs."""
        if count == 1:
            return self

        def of(size: float | None) -> float | None:
            return None if size is None else size * count

        ends: dict[str, Any] = {name: of(getattr(self, name)) for name in ("size", "low", "high", "likely", "every")}
        curve = tuple(replace(spot, size=spot.size * count) for spot in self.curve)
        bracket = self.bracket and replace(self.bracket, low=self.bracket.low * count, high=self.bracket.high * count)
        return replace(self, **ends, bracket=bracket, curve=curve)

    @property
    def half_width(self) -> float | None:
        """Of the interval, as a share of the answer."""
        if self.size is None or self.high is None:
            return None
        return math.log(self.high / self.size)


def _curve(table: Table) -> tuple[Spot, ...]:
    return tuple(_spot(table, size) for size in table.sizes)


def _spot(table: Table, size: float) -> Spot:
    """A size that was given up after few of the seeds has no interval."""
    kept = table.kept(size)
    mean, half = mean_interval(kept)
    return Spot(size, mean, half if 2 * len(kept) >= table.seeds else None, tuple(kept))
