"""What a search asks for, and what it knows: the same seeds at every size, so that sizes are compared on equal streams.

A size is what is searched for: a load, or a number of GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from prebleexp.intervals import mean_interval

ROSE = 0.02
"""of a seed's share, where it should fall: from here on it is said"""
ENOUGH_MISSES = 100
"""of a run: with fewer, shares are too skewed for the interval"""
DIGITS = 4
"""of a load"""
MOST_AT_ONCE = 4.0
"""times as many requests or seeds as before"""


class Trial(NamedTuple):
    """A run that is asked for."""

    size: float
    seed: int
    """from 0"""
    requests: int


class Sample(NamedTuple):
    """What a search needs of one run: how well it kept the promise, and how surely."""

    kept: float
    """the share of the requests that kept what was promised"""
    requests: int
    """that count"""
    trend: float | None
    """of the number in the system, as a share of arrivals; None where the run is too short to tell"""
    alone: tuple[float, float] | None = None
    """the ends of the 95 % interval of `kept` by what the run's stream says on its own"""
    missed: float | None = None
    """batches of that stream, of those that the interval is of, in which any request missed"""
    first: float | None = None
    """of all misses the share in the first batch"""
    worst: float | None = None
    """likewise, in the two batches with the most"""
    of_both: tuple[float, float] | None = None
    """where a promise is to be kept in a minute and over all, of which `kept` is the lesser: what each has"""


Asking = Generator[list[Trial], list[Sample], None]
"""yields runs that it needs, and is sent what they say, in order"""


@dataclass(frozen=True)
class Question:
    """What is to be known, and how well."""

    target: float
    """the share that is to be kept, on average over streams"""
    strictest: float
    """the share by which misses are counted: the target, unless there are several"""
    tolerance: float = 0.05
    """the half-width of the interval, as a share of the answer"""
    seeds: int = 8
    most_seeds: int = 64
    requests: int = 12_000
    """of a run, at first"""
    most_requests: int = 200_000
    whole: bool = False
    """whether sizes are whole numbers, as of users"""


@dataclass
class Table:
    """What is known of each size."""

    question: Question
    requests: int = field(init=False)
    """of a run, by now"""
    seeds: int = field(init=False)
    """at each size, by now"""
    runs: int = 0
    """that were asked for"""
    known: dict[tuple[int, float], dict[int, Sample]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.requests, self.seeds = self.question.requests, self.question.seeds

    def rounded(self, size: float) -> float:
        """To a size that may be asked for: the same cells are found again by whoever comes near."""
        return float(max(1, round(size))) if self.question.whole else float(f"{size:.{DIGITS}g}")

    def above(self, size: float, step: float) -> float:
        """The size a step above; the next one at least."""
        return max(self.rounded(size * step), size + 1) if self.question.whole else self.rounded(size * step)

    def below(self, size: float, step: float) -> float:
        """The size a step below; of whole ones the next one at most, 0 below 1."""
        return min(self.rounded(size / step), size - 1) if self.question.whole else self.rounded(size / step)

    def down(self, size: float) -> float:
        """The greatest size that is no greater."""
        return float(math.floor(size)) if self.question.whole else size

    def measure(self, *sizes: float, seeds: int | None = None) -> Asking:
        """Have all seeds of these sizes, or the first so many."""
        missing = [
            Trial(size, seed, self.requests)
            for size in sizes
            for seed in range(self.seeds if seeds is None else seeds)
            if seed not in self.known.get((self.requests, size), ())
        ]
        if not missing:
            return
        self.runs += len(missing)
        for trial, sample in zip(missing, (yield missing), strict=True):
            self.known.setdefault((trial.requests, trial.size), {})[trial.seed] = sample

    def is_met(self, size: float) -> Generator[list[Trial], list[Sample], bool]:
        """Whether the target is, on average over seeds."""
        yield from self.measure(size)
        return self.mean(size) >= self.question.target

    def first_met(self, sizes: Iterable[int]) -> Generator[list[Trial], list[Sample], int | None]:
        """The first of these that meets the target, as `is_met` has it. A size is given up as soon as the seeds that
        are left could keep everything and it would miss all the same: of most hopeless ones the first one says so."""
        left, seeds = list(sizes), 1
        while left:
            yield from self.measure(*left, seeds=min(seeds, self.seeds))
            left = [size for size in left if self._may_meet(size)]
            if seeds >= self.seeds:
                break
            seeds *= 2
        return left[0] if left else None

    def _may_meet(self, size: float) -> bool:
        """Whether the target may be met on average over all seeds, by those that are known."""
        kept, question = self.kept(size), self.question
        if len(kept) >= self.seeds:
            return self.mean(size) >= question.target
        short = math.fsum(question.target - one for one in kept)
        return short <= (self.seeds - len(kept)) * (1 - question.strictest)

    def samples(self, size: float) -> list[Sample]:
        """The samples at a size, in order of seeds."""
        found = self.known[self.requests, size]
        return [found[seed] for seed in sorted(found)]

    def kept(self, size: float) -> list[float]:
        """What each seed keeps at a size, in order of seeds."""
        return [sample.kept for sample in self.samples(size)]

    def mean(self, size: float) -> float:
        return mean_interval(self.kept(size))[0]

    def lower(self, size: float) -> float:
        """The lower end of the interval of the mean."""
        mean, half = mean_interval(self.kept(size))
        return -math.inf if half is None else mean - half

    def counted(self, size: float) -> float:
        """Requests of a run, on average."""
        counts = [sample.requests for sample in self.samples(size)]
        return math.fsum(counts) / len(counts)

    def misses(self, size: float) -> float:
        """That would fall into a run of this size, were the target just met in it."""
        return round(self.counted(size) * (1 - self.question.strictest), 6)  # 1000 · (1 − 0.9) is 100

    def lengthen(self, size: float) -> bool:
        """Make runs longer from now on, if too few misses would fall into one of this size in which the target is just
        met, and longer ones may be asked for; whether that was so."""
        misses = self.misses(size)
        if misses >= ENOUGH_MISSES or self.requests >= self.question.most_requests:
            return False
        longer = math.ceil(self.requests * min(MOST_AT_ONCE, ENOUGH_MISSES / max(misses, 1.0)))
        self.requests = min(self.question.most_requests, longer)
        return True

    def add_seeds(self, half: float) -> bool:
        """Ask for more seeds from now on, if this half-width of the answer's logarithm is wider than was asked for, and
        more may be asked for; whether that was so."""
        if half <= self.question.tolerance or self.seeds >= self.question.most_seeds:
            return False
        wanted = math.ceil(self.seeds * min(MOST_AT_ONCE, (half / self.question.tolerance) ** 2))
        self.seeds = min(self.question.most_seeds, max(self.seeds + 2, wanted))
        return True

    @property
    def sizes(self) -> list[float]:
        """Measured with runs as long as those of now, ascending."""
        return sorted(size for requests, size in self.known if requests == self.requests)

    def around(self, low: float, high: float, step: float) -> Bracket:
        """A bracket and what was measured next to it, the nearest first, until it is a step wide or there is no more;
        of the seeds that all its sizes have."""
        sizes = self.sizes
        first, last = sizes.index(low), sizes.index(high)
        middle = math.sqrt(low * high)
        while sizes[last] / sizes[first] < step and (first > 0 or last < len(sizes) - 1):
            below = middle / sizes[first - 1] if first > 0 else math.inf
            above = sizes[last + 1] / middle if last < len(sizes) - 1 else math.inf
            first, last = (first - 1, last) if below <= above else (first, last + 1)
        found = Bracket.of(self, sizes[first], sizes[last])
        return found.of_seeds(min(len(found.at_low), len(found.at_high)))

    def rise(self, sign: int) -> float:
        """The most by which any seed's share goes the wrong way from one size to a greater: up where `sign` is 1, as
        loads should lower it, down where it is -1."""
        worst = 0.0
        best: dict[int, float] = {}
        for size in self.sizes:
            for seed, sample in self.known[self.requests, size].items():
                value = sign * sample.kept
                worst = max(worst, value - best.get(seed, value))
                best[seed] = min(best.get(seed, value), value)
        return worst

    def grows(self, size: float) -> float | None:
        """The share of arrivals by which the number in the system grows there, if it surely does."""
        trends = [sample.trend for sample in self.samples(size) if sample.trend is not None]
        if len(trends) < 2:
            return None
        mean, half = mean_interval(trends)
        return mean if half is not None and mean > half else None


@dataclass(frozen=True)
class Bracket:
    """Two sizes, of which one keeps the target and the other does not, and each seed's shares at both."""

    low: float
    high: float
    at_low: tuple[float, ...]
    at_high: tuple[float, ...]

    @classmethod
    def of(cls, table: Table, low: float, high: float) -> Bracket:
        return cls(low, high, tuple(table.kept(low)), tuple(table.kept(high)))

    def crossing(self, target: float) -> float:
        """The logarithm of the size at which the mean over seeds, straight in the logarithm of the size, is at the
        target. NaN where the mean is the same at both ends."""
        low, high = _mean(self.at_low), _mean(self.at_high)
        if low == high:
            return math.nan
        return math.log(self.low) + (low - target) / (low - high) * math.log(self.high / self.low)

    @property
    def falls(self) -> bool:
        """Whether the greater size keeps less."""
        return _mean(self.at_low) > _mean(self.at_high)

    @property
    def slope(self) -> float:
        """By how much the mean share changes where the logarithm of the size changes by 1."""
        return abs(_mean(self.at_low) - _mean(self.at_high)) / math.log(self.high / self.low)

    def of_seeds(self, count: int) -> Bracket:
        """The bracket as the first `count` seeds have it."""
        return Bracket(self.low, self.high, self.at_low[:count], self.at_high[:count])

    def estimate(self, target: float, around: Bracket) -> tuple[float, float]:
        """The logarithm of the size that just keeps the target, and the half-width of its 95 % interval: of the mean at
        the estimate, through the slope. A narrow bracket is chosen for falling across the target, so that what seeds
        do by chance from one size to the next makes it steeper than it is; the slope is that of the bracket `around`
        it, if that is gentler."""
        crossing = self.crossing(target)
        part = (crossing - math.log(self.low)) / math.log(self.high / self.low)
        there = [low + part * (high - low) for low, high in zip(self.at_low, self.at_high, strict=True)]
        _, half = mean_interval(there)
        assert half is not None
        slope = min(self.slope, around.slope)
        return crossing, half / slope if slope else math.inf


def _mean(values: tuple[float, ...]) -> float:
    return math.fsum(values) / len(values)
