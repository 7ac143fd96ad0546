"""What a plan found for each contender, and how they compare."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prebleexp.experiment.cell import Cell
from prebleexp.planning.answer import Answer, Verdict
from prebleexp.planning.contender import GPUS, RPS, USERS, Contender
from prebleexp.planning.paired import ratio
from prebleexp.planning.prices import Prices

NAMES = {RPS: RPS, USERS: "users", GPUS: GPUS}
"""of columns"""
MILLION = 1e6
HOUR_S = 3600.0


@dataclass(frozen=True)
class Planned:
    """`name` tells a contender from the others of its plan; `at` are its values on the swept axes."""

    name: str
    at: Mapping[str, Any]
    contender: Contender
    answer: Answer
    prices: Prices | None = None

    @property
    def load(self) -> float | None:
        """That is borne: requests a second, or users."""
        return self.contender.load if self.contender.searched == GPUS else self.answer.size

    @property
    def gpus(self) -> int | None:
        """GPUs that the answer takes; None if there is no answer."""
        if self.contender.searched == GPUS:
            return None if self.answer.size is None else int(self.answer.size)
        return self.contender.cell.gpus

    @property
    def cell(self) -> Cell:
        """With as many GPUs as it takes; where none are enough, as many as were given."""
        return self.at_size(self.gpus)

    def at_size(self, gpus: float | None) -> Cell:
        """The contender's cell, with so many GPUs."""
        cell = self.contender.cell
        return cell if gpus in (None, cell.gpus) else replace(cell, gpus=int(gpus or 0))

    @property
    def served(self) -> Cell:
        """`cell` at the rate that it bears, where that was searched for."""
        cell = self.cell
        return cell if self.load is None or self.contender.load_key == USERS else replace(cell, rps=self.load)

    @property
    def is_alone(self) -> bool:
        """Whether the answer is one replica, without which nothing is served."""
        return not self.contender.cell.cluster.groups and self.cell.gpus == self.contender.each

    @property
    def price(self) -> float | None:
        """Of an hour of all its GPUs."""
        return None if self.prices is None or self.gpus is None else self.prices.an_hour(self.cell)

    @property
    def gpu_hours(self) -> float | None:
        """For a million requests; users are not known to make so many."""
        if self.contender.load_key == USERS or not self.load or not self.gpus or self.answer.verdict is Verdict.NEVER:
            return None
        return self.gpus / self.load * MILLION / HOUR_S

    def row(self) -> dict[str, Any]:
        """Flat, with all digits: its axes, the answer with its interval, how it was found, what it costs."""
        answer, cell = self.answer, self.cell
        replicas = None if self.gpus is None else cell.replicas
        load = NAMES[self.contender.load_key]
        if self.contender.is_recorded:
            alone = answer.alone
            low, high = (alone and alone.ends) or (None, None)
            found = {
                load: self.load,
                "gpus": self.gpus,
                "gpus_low": _whole(answer.low),
                "gpus_high": _whole(answer.high),
                "replicas": replicas,
                "kept": alone and alone.kept,
                "kept_low": low,
                "kept_high": high,
            }
        elif self.contender.searched == GPUS:
            likely = _whole(answer.likely)
            found = {load: self.load, "gpus": self.gpus, "replicas": replicas, "gpus_likely": likely}
        else:
            found = {
                "gpus": cell.gpus,
                "replicas": replicas,
                load: answer.size,
                f"{load}_low": answer.low,
                f"{load}_high": answer.high,
            }
        ends = {
            f"{side}_{name}": value
            for side, size, kept in self._ends()
            for name, value in ((NAMES[self.contender.searched], size), ("kept", kept))
        }
        hours = self.gpu_hours
        return {
            **{name: value for name, value in self.at.items() if name not in found},
            **found,
            "verdict": answer.verdict.value,
            "target": answer.target,
            "precise": answer.precise,
            **ends,
            "seeds": answer.seeds,
            "runs": answer.runs,
            "requests_of_run": answer.counted,
            "duration_s": self.contender.duration_s(answer.requests, self.load or math.nan) if self.load else None,
            "warmup_s": cell.slo.warmup_s,
            "rise": answer.rise,
            "in_system_growth": answer.grows,
            "gpu_hours_per_million": hours,
            "cost_per_million": None if hours is None or self.price is None else hours * self.price / cell.gpus,
            "cost_per_hour": self.price,
        }

    def _ends(self) -> list[tuple[str, float | None, float | None]]:
        """Of the bracket: which size, and what was kept there on average."""
        bracket = self.answer.bracket
        if bracket is None:
            return [("below", None, None), ("above", None, None)]
        sides = (("below", bracket.low, bracket.at_low), ("above", bracket.high, bracket.at_high))
        return [(name, size, math.fsum(kept) / len(kept)) for name, size, kept in sides]


def _whole(size: float | None) -> int | None:
    return None if size is None else int(size)


@dataclass(frozen=True)
class Ratio:
    """How many times as much load `one` bears as `other`, or as many GPUs it takes, and the ends of its interval."""

    one: str
    other: str
    times: float
    low: float
    high: float

    @property
    def is_sure(self) -> bool:
        return not self.low <= 1 <= self.high


def best_first(found: Sequence[Planned]) -> list[Planned]:
    """The most load for a GPU first, or for the money where there are prices; those whose target cannot be met last. Of
    as many GPUs, or as much money, those that would do with a fraction less, or that are known to be enough for streams
    like a recording. Loads that were searched are ranked over streams that two have in common (`_over_the_same`)."""
    found, loads = _over_the_same(found)

    def rank(one: Planned) -> tuple[float, float, float]:
        answer, load = one.answer, loads.get(one.name, one.load)
        is_recorded = one.contender.is_recorded
        if answer.verdict is Verdict.NEVER or not one.gpus or (not load and not is_recorded):
            return math.inf, math.inf, math.inf
        if is_recorded and answer.verdict is not Verdict.FOUND:
            return math.inf, one.gpus, math.inf
        a_gpu = 1.0 if one.price is None else one.price / one.gpus
        part = float(one.gpus)
        if one.contender.searched == GPUS and answer.bracket is not None:
            part = math.exp(answer.bracket.crossing(answer.target))
        similar = answer.high if is_recorded else None
        return a_gpu * one.gpus / (load or 1), a_gpu * part / (load or 1), math.inf if similar is None else similar

    return sorted(found, key=rank)


def _over_the_same(found: Sequence[Planned]) -> tuple[list[Planned], dict[str, float]]:
    """The contenders, and of each the load to rank it by: that of the first times their ratio over the streams that
    both have. The first is who is not beaten so by any other; it stands before those, in a circle of several, that are
    ranked as high."""

    def money(one: Planned) -> float:
        return float(one.cell.gpus) if one.price is None else one.price

    closed = [one for one in found if one.contender.searched != GPUS and one.answer.bracket is not None]
    loads = {one.name: one.load or 0.0 for one in closed}
    seen: list[Planned] = []
    better = max(closed, key=lambda one: loads[one.name] / money(one), default=None)
    while better is not None and better not in seen:
        seen.append(first := better)
        pairs = {one.name: ratio_of(one, first) for one in closed if one is not first}
        loads = {one.name: one.load or 0.0 for one in closed}
        loads |= {name: (first.load or 0.0) * of.times for name, of in pairs.items() if of is not None}
        better = max(closed, key=lambda one: (loads[one.name] / money(one), one is first))
    if not seen:
        return list(found), loads
    most = loads[first.name] / money(first)
    loads = {one.name: min(loads[one.name], most * money(one)) for one in closed}
    return [first, *(one for one in found if one is not first)], loads


def others_first(order: Sequence[Planned]) -> list[Planned]:
    """Of an order the best of each kind of GPU and size of a replica, and then the rest: routers of one are more alike
    than what they route to."""
    first: dict[tuple[object, ...], Planned] = {}
    for one in order:
        first.setdefault((*(kind.hardware.gpu_name for kind in one.cell.kinds), one.contender.each), one)
    return [*first.values(), *(one for one in order if one not in first.values())]


def enough_for_others(found: Sequence[Planned]) -> tuple[float, list[Planned]] | None:
    """Of a recording, those contenders whose GPUs for all streams like it, by their intervals, cost the least, and how
    many that are; by number where all have one kind of GPU. None where the best answer itself is enough, or it is not
    known which costs less."""

    def cost(one: Planned) -> float:
        assert one.answer.high is not None
        return one.answer.high if one.prices is None else one.prices.an_hour(one.at_size(one.answer.high))

    known = [one for one in best_first(found) if one.answer.verdict is Verdict.FOUND and one.answer.high is not None]
    kinds = {tuple(kind.hardware.gpu_name for kind in one.cell.kinds) for one in found}
    first = best_first(found)[0].answer
    if not known or first.high == first.size or (known[0].prices is None and len(kinds) > 1):
        return None
    least = min(known, key=cost)
    alike = [one for one in known if cost(one) == cost(least) and one.cell.kinds[0] == least.cell.kinds[0]]
    return least.answer.high or 0.0, [one for one in alike if one.answer.high == least.answer.high]


def ratio_of(one: Planned, other: Planned) -> Ratio | None:
    """Over the seeds that both have; None unless both brackets are closed, and these seeds tell."""
    of = ratio(one.answer, other.answer)
    if of is None:
        return None
    middle, half = of
    return Ratio(one.name, other.name, *(math.exp(value) for value in (middle, middle - half, middle + half)))


def ratios(found: Sequence[Planned]) -> list[Ratio]:
    """Of the first to each of the others, of those whose brackets are closed."""
    closed = [one for one in best_first(found) if one.answer.bracket is not None]
    return [of for other in closed[1:] if (of := ratio_of(closed[0], other)) is not None]


def rows(found: Sequence[Planned]) -> list[dict[str, Any]]:
    """A row for each, the best first, with its ratio to the best."""
    of_first = {one.other: one for one in ratios(found)}
    made = []
    for one in best_first(found):
        of = of_first.get(one.name)
        # of the other to the first: its ends change places
        times = (None, None, None) if of is None else (1 / of.times, 1 / of.high, 1 / of.low)
        made.append(one.row() | dict(zip(("ratio", "ratio_low", "ratio_high"), times, strict=True)))
    return made
