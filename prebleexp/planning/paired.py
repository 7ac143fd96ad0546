"""How two contenders compare over the request streams that both have seen.

The load of each at which its promise is just kept lies between two tried loads. Which two depends on the streams: those
that both have may be harder or easier than all of those that one search ended with. So it is looked for anew among all
loads that were tried with these streams, and never beyond the outermost of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from prebleexp.intervals import t_quantile
from prebleexp.planning.answer import Answer


def ratio(one: Answer, other: Answer) -> tuple[float, float] | None:
    """The logarithm of the ratio of two sizes and the half-width of its 95 % interval, over seeds that both have: a
    jackknife, each seed left out of both. Of as many seeds as have, together, tried sizes on both sides of the target;
    None where two have not, or where one of the searches did not end in a bracket."""
    for seeds in _in_common(one, other):
        a, b = (_Tried.of(answer, seeds).crossings() for answer in (one, other))
        if a is not None and b is not None:
            whole, *without = (x - y for x, y in zip(a, b, strict=True))
            mean = math.fsum(without) / seeds
            variance = (seeds - 1) / seeds * math.fsum((each - mean) ** 2 for each in without)
            return whole, t_quantile(seeds - 1) * math.sqrt(variance)
    return None


def _in_common(one: Answer, other: Answer) -> list[int]:
    """Numbers of seeds that sizes of both have, the greatest first: a size has the first so many."""
    if one.bracket is None or other.bracket is None:
        return []
    counts = [{spot.seeds for spot in answer.curve} for answer in (one, other)]
    most = min(map(max, counts))
    return sorted({count for of in counts for count in of if 2 <= count <= most}, reverse=True)


@dataclass(frozen=True)
class _Tried:
    """The sizes that were tried with some seeds, ascending."""

    target: float
    falls: bool
    """whether greater sizes keep less"""
    near: float
    """the logarithm of the size that the search found"""
    places: list[float]
    """the logarithm of each size"""
    shares: list[tuple[float, ...]]
    """of each size, what each seed keeps"""
    sums: list[float]

    @classmethod
    def of(cls, answer: Answer, seeds: int) -> _Tried:
        bracket = answer.bracket
        assert bracket is not None
        spots = [spot for spot in answer.curve if spot.seeds >= seeds]
        shares = [spot.shares[:seeds] for spot in spots]
        return cls(
            answer.target,
            bracket.falls,
            math.log(bracket.low * bracket.high) / 2,
            [math.log(spot.size) for spot in spots],
            shares,
            [math.fsum(of) for of in shares],
        )

    def crossings(self) -> list[float] | None:
        """The logarithm of the size at which the mean share is at the target: of all seeds, and without each in turn.
        None where those of all do not cross it. One without a seed that crosses it beyond the outermost sizes is taken
        by the slope where those of all do: by how much it misses the target there."""
        means = [total / len(of) for total, of in zip(self.sums, self.shares, strict=True)]
        found = self._crossing(means)
        if found is None:
            return None
        whole, i = found
        part = (whole - self.places[i]) / (self.places[i + 1] - self.places[i])
        slope = (means[i + 1] - means[i]) / (self.places[i + 1] - self.places[i])
        made = [whole]
        seeds = len(self.shares[0])
        for seed in range(seeds):
            left = [(total - of[seed]) / (seeds - 1) for total, of in zip(self.sums, self.shares, strict=True)]
            there = self._crossing(left)
            missed = self.target - left[i] - part * (left[i + 1] - left[i])
            made.append(whole + missed / slope if there is None else there[0])
        return made

    def _crossing(self, means: list[float]) -> tuple[float, int] | None:
        """Where these are at the target, straight between neighbours, and behind which of the sizes that is. Of several
        the nearest to what the search found."""
        found = []
        for i, (low, high) in enumerate(pairwise(means)):
            if low >= self.target > high if self.falls else low < self.target <= high:
                part = (low - self.target) / (low - high)
                found.append((self.places[i] + part * (self.places[i + 1] - self.places[i]), i))
        return min(found, key=lambda one: abs(one[0] - self.near), default=None)
