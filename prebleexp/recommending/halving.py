"""Successive halving: rounds of ever longer and more streams, each with fewer designs than the one before.

In a round all designs see the same streams. A design is judged by the price of as many replicas as keep the promise;
whoever cannot keep it for little more than the cheapest so far is not tried any further, so that most take one run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from prebleexp.planning.gpus import closed, neighbours
from prebleexp.planning.trials import Bracket, Question, Sample, Table, Trial

HALVED = 4
"""of so many designs one goes on"""
DEARER = 1.25
"""times the cheapest's price, at most, a design is tried for"""
AT_ONCE = 24
"""designs that are tried at a time"""
ROUNDS = ((0.125, 1), (0.25, 2), (1.0, 2))
"""of each the share of a stream's length, and how many streams"""

MOST_TWINS = 3

Name = TypeVar("Name")


class Found(NamedTuple):
    """What a round says of a design."""

    size: int | None
    """the fewest replicas that keep the promise; None: not as many as were tried"""
    part: float
    """the same, in fractions, by where the share crosses the target"""
    kept: float
    """the share that they keep; of those that do not keep it, that of the most that were tried"""


Trying = Generator[list[Trial], list[Sample], Found]


class Priced(NamedTuple):
    """A design in a round: what is known of it before."""

    price: float
    """of a replica"""
    least: int
    most: int
    """replicas that may be had"""
    guess: int


@dataclass(frozen=True)
class Judged(Generic[Name]):
    """What a round of successive halving found of one design, and the price of a replica of it."""

    name: Name
    found: Found
    price: float
    """of a replica"""

    @property
    def rank(self) -> tuple[float, float]:
        """The cheapest first; of those that do not keep the promise who comes nearest."""
        if self.found.size is None:
            return math.inf, -self.found.kept
        return self.found.part * self.price, -self.found.kept


def fewest(question: Question, guess: int, most: int, least: int = 1) -> Trying:
    """The fewest replicas that keep the promise on average over the streams of a round, from `least` to `most`."""
    table = Table(question)
    low, high = yield from closed(table, max(guess, least), most)
    if high is None:
        return Found(None, math.inf, table.mean(low))
    low, high = yield from neighbours(table, max(low, least - 1), high)
    part = float(high)
    if low and low in table.sizes:
        crossing = Bracket.of(table, low, high).crossing(question.target)
        part = math.exp(crossing) if math.isfinite(crossing) else part
    return Found(high, part, table.mean(high))


def round_of(
    designs: Mapping[Name, Priced],
    question: Callable[[Name], Question],
    find: Callable[[Mapping[Name, Trying]], Mapping[Name, Found]],
    on_done: Callable[[int], object] = lambda count: None,
) -> list[Judged[Name]]:
    """All designs after a round, the best first. Whoever is too dear at its least is judged without a run. `find` runs
    several at a time; `on_done` is told how many are judged by now."""
    judged: list[Judged[Name]] = []
    best = math.inf
    order = sorted(designs, key=lambda name: designs[name].price * designs[name].guess)
    for batch in _batches(order, designs):
        tried = {}
        for name in batch:
            one = designs[name]
            most = one.most if best == math.inf else min(one.most, math.floor(DEARER * best / one.price))
            if most < one.least:
                judged.append(Judged(name, Found(None, math.inf, -math.inf), one.price))
                continue
            guess = min(one.guess, most) if best == math.inf else most
            tried[name] = fewest(question(name), guess, most, one.least)
        for name, found in find(tried).items():
            judged.append(Judged(name, found, designs[name].price))
            if found.size is not None:
                best = min(best, found.size * designs[name].price)
        on_done(len(judged))
    return sorted(judged, key=lambda one: one.rank)


def _batches(order: Sequence[Name], designs: Mapping[Name, Priced]) -> Iterator[Sequence[Name]]:
    """First one of each price and size, so that it is soon known what is too dear."""
    kinds: dict[tuple[float, int, int], Name] = {}
    for name in order:
        one = designs[name]
        kinds.setdefault((one.price, one.least, one.guess), name)
    first = list(kinds.values())
    rest = [name for name in order if name not in set(first)]
    for some in (first, rest):
        for i in range(0, len(some), AT_ONCE):
            yield some[i : i + AT_ONCE]


def going_on(judged: Sequence[Judged[Name]], count: int) -> list[Judged[Name]]:
    """Of designs in order, the first so many that keep the promise; if none does, those that come nearest. Twins, which
    served these streams in the very same way, are counted once, but no more than `MOST_TWINS` go on for each."""
    kept = [one for one in judged if one.found.size is not None] or list(judged)
    found: dict[tuple[float, Found], list[Judged[Name]]] = {}
    for one in kept:
        twins = found.setdefault((one.price, one.found), [])
        if len(found) > count:
            break
        if len(twins) < MOST_TWINS:
            twins.append(one)
    return [one for twins in found.values() for one in twins]


def left(count: int, least: int) -> list[int]:
    """How many designs go on after each round."""
    found = []
    for _ in ROUNDS:
        count = min(count, max(least, math.ceil(count / HALVED)))
        found.append(count)
    return found


def guessed(one: Priced, judged: Judged[Name]) -> Priced:
    """The design with the answer found, as the next round's guess."""
    return one if judged.found.size is None else one._replace(guess=judged.found.size)
