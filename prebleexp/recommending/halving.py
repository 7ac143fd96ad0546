"""Successive halving: rounds of ever longer and more streams, each with fewer designs than the one before.

In a round all designs see the same streams. A design is judged by the price of as many replicas as keep the promise;
whoever cannot keep it for little more than the cheapest so far of its contest is not tried any further, so that most
take two runs: one replica less is tried, too, as fewer have warmer caches. Designs are in one contest if the streams of
a round can tell them apart: what a short stream needs in large replicas and in small ones says little of a long one,
whose bursts it may lack, nor do routers differ in it where one replica is enough. So a design is only dropped against
others of its contest, and whoever adds a contest takes nothing from the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from prebleexp.planning.gpus import closed, downwards, neighbours
from prebleexp.planning.trials import Bracket, Question, Sample, Table, Trial

HALVED = 4
"""of so many designs of a contest one goes on"""
DEARER = 1.25
"""times the price of the cheapest of its contest, at most, a design is tried for"""
AT_ONCE = 24
"""designs that are tried at a time"""
ROUNDS = ((0.125, 1), (1.0, 2))
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
    def rank(self) -> tuple[float, float, float]:
        """The cheapest first, and of those the one that would do with a fraction less; of those that do not keep the
        promise who comes nearest."""
        if self.found.size is None:
            return math.inf, math.inf, -self.found.kept
        return self.found.size * self.price, self.found.part * self.price, -self.found.kept


def fewest(question: Question, guess: int, most: int, least: int = 1) -> Trying:
    """The fewest replicas that keep the promise on average over the streams of a round, from `least` to `most`, of a
    share that has one peak: where the most do not, fewer are tried for as long as they keep more, as where replicas
    have a prefix cache each."""
    table = Table(question)
    low, high = yield from closed(table, guess, most, least)
    fewer = low
    while high is None and fewer > least:
        fewer -= 1
        if (yield from table.is_met(fewer)):
            low, high = yield from downwards(table, fewer, least)
        elif table.mean(fewer) <= table.mean(fewer + 1):
            break
    if high is None:
        return Found(None, math.inf, table.mean(low))
    low, high = yield from neighbours(table, low, high)
    part = float(high)
    if low:
        crossing = Bracket.of(table, low, high).crossing(question.target)
        part = math.exp(crossing) if math.isfinite(crossing) else part
    return Found(high, part, table.mean(high))


def round_of(
    designs: Mapping[Name, Priced],
    question: Callable[[Name], Question],
    find: Callable[[Mapping[Name, Trying]], Mapping[Name, Found]],
    contest: Callable[[Name], Hashable] = lambda name: None,
    on_done: Callable[[int], object] = lambda count: None,
    needless: Callable[[Name], bool] = lambda name: False,
) -> list[Judged[Name]]:
    """Designs after a round, the best first. Whoever is too dear at its least, beside the cheapest of its `contest`, is
    judged without a run. `needless` says of whom, by what was tried before it, another is as good: that is left out.
    `find` runs several at a time; `on_done` is told how many designs are done with by now."""
    judged: list[Judged[Name]] = []
    done = 0
    best: dict[Hashable, float] = {}
    like: dict[tuple[float, int, int], int] = {}
    """by kind, how many replicas the first of it takes; as many as may be had if these are too few"""
    order = sorted(designs, key=lambda name: designs[name].price * designs[name].guess)
    for batch in _batches(order, designs):
        tried = {}
        for name in batch:
            if needless(name):
                continue
            one = designs[name]
            cheapest = best.get(contest(name), math.inf)
            most = one.most if cheapest == math.inf else min(one.most, math.floor(DEARER * cheapest / one.price))
            if most < one.least:
                judged.append(Judged(name, Found(None, math.inf, -math.inf), one.price))
                continue
            guess = min(like.get(_kind(one), one.guess), most) if cheapest == math.inf else most
            tried[name] = fewest(question(name), guess, most, one.least)
        for name, found in find(tried).items():
            one = designs[name]
            judged.append(Judged(name, found, one.price))
            like.setdefault(_kind(one), one.most if found.size is None else found.size)
            if found.size is not None:
                best[contest(name)] = min(best.get(contest(name), math.inf), found.size * one.price)
        done += len(batch)
        on_done(done)
    return sorted(judged, key=lambda one: one.rank)


def _kind(of: Priced) -> tuple[float, int, int]:
    return of.price, of.least, of.guess


def _batches(order: Sequence[Name], designs: Mapping[Name, Priced]) -> Iterator[Sequence[Name]]:
    """First one of each price and size, so that it is soon known what is too dear."""
    kinds: dict[tuple[float, int, int], Name] = {}
    for name in order:
        kinds.setdefault(_kind(designs[name]), name)
    first = list(kinds.values())
    rest = [name for name in order if name not in set(first)]
    for some in (first, rest):
        for i in range(0, len(some), AT_ONCE):
            yield some[i : i + AT_ONCE]


def going_on(judged: Sequence[Judged[Name]], count: int, most_twins: int = MOST_TWINS) -> list[Judged[Name]]:
    """Of designs in order, the first so many that keep the promise; if none does, those that come nearest. Twins, which
    served these streams in the very same way, are counted once, but no more than `most_twins` go on for each."""
    kept = [one for one in judged if one.found.size is not None] or list(judged)
    found: dict[tuple[float, Found], list[Judged[Name]]] = {}
    for one in kept:
        twins = found.setdefault((one.price, one.found), [])
        if len(found) > count:
            break
        if len(twins) < most_twins:
            twins.append(one)
    return [one for twins in found.values() for one in twins]


def best_of_each(judged: Sequence[Judged[Name]], contest: Callable[[Name], Hashable]) -> list[Judged[Name]]:
    """Of designs in order, a quarter of each contest, one at least. Of twins the first goes on."""
    found: dict[Hashable, list[Judged[Name]]] = {}
    for one in judged:
        found.setdefault(contest(one.name), []).append(one)
    return [one for of in found.values() for one in going_on(of, math.ceil(len(of) / HALVED), 1)]


def guessed(one: Priced, judged: Judged[Name]) -> Priced:
    """The design with the answer found, as the next round's guess."""
    return one if judged.found.size is None else one._replace(guess=judged.found.size)
