"""The greatest load that keeps a promise, a rate or a number of users, with an interval (spec: workloads, 4).

A seed's stream is the same at every load, only quicker, so its share falls as the load grows. A bracket is halved until
it is narrow; in it the mean share over the seeds is straight in the logarithm of the load. What the seeds differ by at
the estimate, through the slope there, is the interval. Where too few requests of a run miss, runs are made longer, and
then, where the interval is too wide, seeds are added at the bracket's ends. At last the bracket is made no wider than
the interval: shares fall off a knee, and a straight line across that is off by more than the seeds are.
"""

from __future__ import annotations

import math
from collections.abc import Generator

from prebleexp.planning.answer import Answer, Verdict
from prebleexp.planning.trials import Bracket, Question, Sample, Table, Trial

STEP = 1.4
FAR = 6
"""steps down until an idle system is looked at, and up where that keeps too little"""
IDLE = 10_000.0
"""times less than the guess, unless another is said"""
MOST_STEPS = 24
STRAIGHT = 5.0
"""a bracket narrower than the tolerance over this is straight enough"""

Search = Generator[list[Trial], list[Sample], Answer]
Ends = Generator[list[Trial], list[Sample], tuple[float | None, float | None]]
"""a load that keeps the target and, a step above, one that does not; None where there is none"""
Above = Generator[list[Trial], list[Sample], tuple[float | None, float | None] | None]


def largest(question: Question, guess: float, idle: float = IDLE) -> Search:
    """Search from a guess; a load so many times less is taken for idle."""
    table, target, tolerance = Table(question), question.target, question.tolerance
    step = 1 + 2 * tolerance
    low, high = yield from _closed(table, table.rounded(guess), STEP, idle)
    while low is not None and high is not None:
        while (middle := _between(table, low, high, step)) is not None:
            if (yield from table.is_met(middle)):
                low = middle
            else:
                high = middle
        bracket = Bracket.of(table, low, high)
        crossing, half = bracket.estimate(target, table.around(low, high, 1 + tolerance))
        if table.lengthen(low) or table.add_seeds(half):
            low, high = yield from _kept_closed(table, low, high, 1 + 2 * tolerance, idle)
        elif _between(table, low, high, narrow := 1 + max(2 * half, tolerance / STRAIGHT)) is not None:
            step = narrow
        else:
            size, *ends = (table.down(math.exp(at)) for at in (crossing, crossing - half, crossing + half))
            found, precise = (ends[0], ends[1]), half <= tolerance
            return Answer.of(table, Verdict.FOUND, size, interval=found, at=low, bracket=bracket, precise=precise)
    if low is not None:
        return Answer.of(table, Verdict.AT_LEAST, low, at=low)
    if high is not None and high <= guess / idle * STEP:
        return Answer.of(table, Verdict.NEVER)
    return Answer.of(table, Verdict.AT_MOST, high)


def _between(table: Table, low: float, high: float, step: float) -> float | None:
    """The middle of a bracket that is wider than a step."""
    middle = table.rounded(math.sqrt(low * high))
    return middle if high / low > step and low < middle < high else None


def _closed(table: Table, start: float, step: float, idle: float) -> Ends:
    if (yield from table.is_met(start)):
        return (yield from _upwards(table, start, step))
    ends = yield from _downwards(table, start, step, idle)
    return ends if ends[0] is not None else ((yield from _busier(table, start, step)) or ends)


def _busier(table: Table, size: float, step: float) -> Above:
    """The bracket above a load from which on the target is met, though idle systems miss it: caches may be warmer."""
    for _ in range(FAR):
        size = table.above(size, step)
        if (yield from table.is_met(size)):
            return (yield from _upwards(table, size, step))
    return None


def _upwards(table: Table, low: float, step: float) -> Ends:
    for _ in range(MOST_STEPS):
        high = table.above(low, step)
        if not (yield from table.is_met(high)):
            return low, high
        low = high
    return low, None


def _downwards(table: Table, high: float, step: float, idle: float) -> Ends:
    least = table.rounded(high / idle)
    for i in range(MOST_STEPS):
        if i == FAR and not (yield from table.is_met(least)):
            return None, least
        low = table.below(high, step)
        if low == 0:  # not even one
            break
        if (yield from table.is_met(low)):
            return low, high
        high = low
    return None, high


def _kept_closed(table: Table, low: float, high: float, step: float, idle: float) -> Ends:
    """The bracket after there were more seeds, or longer runs."""
    yield from table.measure(low, high)
    if table.mean(low) < table.question.target:
        return (yield from _downwards(table, low, step, idle))
    if table.mean(high) >= table.question.target:
        return (yield from _upwards(table, high, step))
    return low, high
