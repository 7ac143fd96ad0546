"""The fewest replicas, and so GPUs, that keep a promise at a load.

More replicas do not always keep more: a router that spreads a session over them spreads its prefix cache, too. So a
bracket that ends at neighbours only says where to look. The answer is proven by trying every smaller number, and that
none is enough is said of a range of which each was tried.

Two answers: the fewest that meet the target on average over streams, and the fewest that surely do, of which the whole
interval does.
"""

from __future__ import annotations

import math
from collections.abc import Generator

from prebleexp.cluster.replicas import MOST_GPUS
from prebleexp.planning.answer import Answer, Verdict
from prebleexp.planning.load import STEP, Search
from prebleexp.planning.trials import Bracket, Question, Sample, Table, Trial

FAR = 6
"""steps up until as many are looked at as there may be: they idle"""
EVERY = 32
"""replicas, or the guess where that is more: up to there each number is tried before none is said to be enough"""
MORE = 16
"""replicas beyond those that meet the target on average, at most, until one surely does"""

Ends = Generator[list[Trial], list[Sample], tuple[int, int | None]]
"""a number that fails, 0 if none was tried that does, and a greater one that does not; None: no such one was found"""
Fewest = Generator[list[Trial], list[Sample], int | None]


def fewest(question: Question, guess: int, most: int = MOST_GPUS, each: int = 1, least: int = 1) -> Search:
    """Search from a guess: sizes are numbers of replicas, from `least` to `most`. The answer is in GPUs, of which a
    replica takes `each`."""
    answer = yield from _fewest(question, guess, most, least)
    return answer.times(each)


def _fewest(question: Question, guess: int, most: int, least: int) -> Search:
    table, target = Table(question), question.target
    low, high = yield from closed(table, guess, most, least)
    while True:
        if high is not None:
            low, high = yield from neighbours(table, low, high)
            yield from table.measure(*filter(None, (low, high)))
            bracket = Bracket.of(table, low, high) if low else None
            if table.lengthen(high) or (table.lower(high) < target and table.add_seeds(_half_width(bracket, target))):
                yield from table.measure(*filter(None, (low, high)))
                if low and table.mean(low) >= target:
                    low, high = yield from downwards(table, low, least)
                elif table.mean(high) < target:
                    low, high = yield from _upwards(table, high, most)
                continue
        every = tried(guess, most) if high is None else high - 1
        smaller = yield from table.first_met(range(least, every + 1))
        if smaller is None:
            break
        low, high = smaller - 1 if smaller > least else 0, smaller
    if high is None:
        return Answer.of(table, Verdict.NEVER, falls=False, every=every)
    sure = yield from _sure(table, high, most)
    verdict = Verdict.FOUND if sure else Verdict.AT_LEAST
    size = sure or high
    return Answer.of(table, verdict, size, likely=high, at=size, bracket=bracket, precise=sure is not None, falls=False)


def tried(guess: int, most: int) -> int:
    """Up to how many each number is tried before none is said to be enough."""
    return min(max(EVERY, guess), most)


def neighbours(table: Table, low: int, high: int) -> Generator[list[Trial], list[Sample], tuple[int, int]]:
    """Of these, one that fails, and one more, which does not."""
    while low and high - low > 1:
        middle = max(low + 1, min(high - 1, round(math.sqrt(low * high))))
        if (yield from table.is_met(middle)):
            high = middle
        else:
            low = middle
    return low, high


def _half_width(bracket: Bracket | None, target: float) -> float:
    """Of the logarithm of the number at which the mean meets the target; infinite where one GPU is enough."""
    return math.inf if bracket is None else bracket.estimate(target, bracket)[1]


def _sure(table: Table, start: int, most: int) -> Fewest:
    """The fewest from `start` on of which the whole interval meets the target."""
    for size in range(start, min(start + MORE, most) + 1):
        yield from table.measure(size)
        if table.lower(size) >= table.question.target:
            return size
    return None


def closed(table: Table, guess: int, most: int, least: int = 1) -> Ends:
    """A bracket, searched from a guess on, in steps."""
    start = min(max(guess, least), most)
    if (yield from table.is_met(start)):
        return (yield from downwards(table, start, least))
    return (yield from _upwards(table, start, most))


def _upwards(table: Table, low: int, most: int) -> Ends:
    for i in range(most):
        if low >= most or (i == FAR and not (yield from table.is_met(most))):
            break
        high = min(most, max(low + 1, round(low * STEP)))
        if (yield from table.is_met(high)):
            return low, high
        low = high
    return low, None


def downwards(table: Table, high: int, least: int) -> Ends:
    """From a number that keeps the target; 0 and the least where that does, too."""
    while high > least:
        low = max(least, min(high - 1, round(high / STEP)))
        if not (yield from table.is_met(low)):
            return low, high
        high = low
    return 0, high
