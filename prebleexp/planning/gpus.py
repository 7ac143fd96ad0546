"""The fewest replicas, and so GPUs, that keep a promise at a load: as for loads, with a bracket that ends at
neighbours.

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
MORE = 16
"""replicas beyond those that meet the target on average, at most, until one surely does"""

Ends = Generator[list[Trial], list[Sample], tuple[int, int | None]]
"""the most that fail, 0 if one is enough, and the fewest that do not; None: not even many"""


def fewest(question: Question, guess: int, most: int = MOST_GPUS, each: int = 1) -> Search:
    """Search from a guess: sizes are numbers of replicas, `most` at most. The answer is in GPUs, of
    which a replica takes `each`."""
    answer = yield from _fewest(question, guess, most)
    return answer.times(each)


def _fewest(question: Question, guess: int, most: int) -> Search:
    table, target = Table(question), question.target
    low, high = yield from closed(table, guess, most)
    while high is not None:
        low, high = yield from neighbours(table, low, high)
        bracket = Bracket.of(table, low, high) if low else None
        if not (table.lengthen(high) or (table.lower(high) < target and table.add_seeds(_half_width(bracket, target)))):
            sure = yield from _sure(table, high, most)
            verdict = Verdict.FOUND if sure else Verdict.AT_LEAST
            size = sure or high
            return Answer.of(
                table, verdict, size, likely=high, at=size, bracket=bracket, precise=sure is not None, falls=False
            )
        yield from table.measure(*filter(None, (low, high)))
        if low and table.mean(low) >= target:
            low, high = yield from _downwards(table, low)
        elif table.mean(high) < target:
            low, high = yield from _upwards(table, high, most)
    return Answer.of(table, Verdict.NEVER, falls=False)


def neighbours(table: Table, low: int, high: int) -> Generator[list[Trial], list[Sample], tuple[int, int]]:
    """Of these, the most that fail and the fewest that do not, one more."""
    while high - low > 1:
        middle = max(low + 1, min(high - 1, round(math.sqrt(max(low, 1) * high))))
        if (yield from table.is_met(middle)):
            high = middle
        else:
            low = middle
    return low, high


def _half_width(bracket: Bracket | None, target: float) -> float:
    """Of the logarithm of the number at which the mean meets the target; infinite where one GPU is enough."""
    return math.inf if bracket is None else bracket.estimate(target, bracket)[1]


def _sure(table: Table, start: int, most: int) -> Generator[list[Trial], list[Sample], int | None]:
    """The fewest from `start` on of which the whole interval meets the target."""
    for size in range(start, min(start + MORE, most) + 1):
        yield from table.measure(size)
        if table.lower(size) >= table.question.target:
            return size
    return None


def closed(table: Table, guess: int, most: int) -> Ends:
    """The bracket of the fewest GPUs, searched from a guess on."""
    start = min(max(guess, 1), most)
    if (yield from table.is_met(start)):
        return (yield from _downwards(table, start))
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


def _downwards(table: Table, high: int) -> Ends:
    while high > 1:
        low = min(high - 1, round(high / STEP))
        if not (yield from table.is_met(low)):
            return low, high
        high = low
    return 0, high
