"""The fewest replicas, and so GPUs, that keep a promise to one recording as it came.

That is a fact of the recording. How surely others like it would be kept, the recording says on its own: the interval of
its share is over contiguous batches of it. So an interval of the answer goes from the fewest whose interval reaches the
target to the fewest whose whole interval does.
"""

from __future__ import annotations

from collections.abc import Generator

from prebleexp.planning.answer import Answer, Verdict
from prebleexp.planning.gpus import MORE, closed, neighbours, tried
from prebleexp.planning.load import Search
from prebleexp.planning.trials import Bracket, Question, Sample, Table, Trial

Ends = Generator[list[Trial], list[Sample], tuple[float, float | None] | None]


def fewest(question: Question, guess: int, most: int, each: int, least: int = 1) -> Search:
    """Search from a guess: sizes are numbers of replicas, from `least` to `most`; each smaller than the answer is
    tried. The answer is in GPUs, of which a replica takes `each`."""
    table = Table(question)
    low, high = yield from closed(table, guess, most, least)
    if high is not None:
        low, high = yield from neighbours(table, low, high)
    every = tried(guess, most) if high is None else high - 1
    smaller = yield from table.first_met(range(least, every + 1))
    high = high if smaller is None else smaller
    if high is None:
        return Answer.of(table, Verdict.NEVER, falls=False, every=every).times(each)
    ends = yield from _ends(table, high, most)
    bracket = Bracket.of(table, high - 1, high) if high > least else None
    answer = Answer.of(
        table, Verdict.FOUND, high, interval=ends, likely=high, at=high, alone=True, bracket=bracket, falls=False
    )
    return answer.times(each)


def given(question: Question, gpus: int) -> Search:
    """Whether a cluster that has so many GPUs keeps it: more are not to be had of its kinds."""
    table = Table(question)
    verdict = Verdict.FOUND if (yield from table.is_met(gpus)) else Verdict.AT_LEAST
    return Answer.of(table, verdict, gpus, likely=gpus, at=gpus, alone=True, falls=False)


def _ends(table: Table, found: int, most: int) -> Ends:
    """The fewest of which the interval reaches the target, and the fewest of which all of it does: None if these are
    far more. None where the recording is too short for an interval."""
    target = table.question.target
    if table.samples(found)[0].alone is None:
        return None
    low = next(size for size in table.sizes if _end(table, size, 1) >= target)  # each smaller one was tried
    for high in range(found, min(found + MORE, most) + 1):
        yield from table.measure(high)
        if _end(table, high, 0) >= target:
            return low, high
    return low, None


def _end(table: Table, size: float, which: int) -> float:
    sample = table.samples(size)[0]
    return sample.kept if sample.alone is None else sample.alone[which]
