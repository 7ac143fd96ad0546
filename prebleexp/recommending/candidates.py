"""What came of the last round: each design with how many replicas it takes, and its price with the ends of what streams
leave open."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prebleexp.experiment import counting
from prebleexp.experiment.cell import Cell
from prebleexp.intervals import mean_interval
from prebleexp.planning.answer import Answer, Verdict
from prebleexp.planning.promise import ToKeep
from prebleexp.recommending.designs import Design
from prebleexp.report import evidence, stored

Mean = tuple[float, float | None]
KEPT = "kept"
"""how the promise is kept, as `prebleexp.planning.promise.ToKeep.kept` is"""
SEEN = ("slo_attainment", "ttft_p50_s", "ttft_p95_s", "tpot_p50_s", "tpot_p95_s", "hit_ratio")
ALIKE = 3
"""candidates that are shown at least"""


@dataclass(frozen=True)
class Point:
    """A design with so many replicas, measured over all streams of the last round."""

    design: Design
    replicas: int
    seen: Mapping[str, Mean]
    """of `SEEN`, and `KEPT`; means over streams, with the half-widths of their intervals"""
    keeps: bool
    """whether the promise is kept, on average"""
    beyond: str = ""
    """what of these runs is larger than what step times were measured at; empty: nothing"""

    @property
    def price(self) -> float:
        """The price of an hour of all its replicas."""
        return self.replicas * self.design.price

    @property
    def name(self) -> str:
        """ "4 H100 (2 replicas of 2), lor" """
        return f"{counting.named(self.design.at_size(self.replicas))}, {self.design.at['policy']}"


@dataclass(frozen=True)
class Candidate:
    """`answer` counts replicas: `size` those that surely keep the promise, or of a recording those that do."""

    design: Design
    answer: Answer
    point: Point
    """at the answer"""
    twins: tuple[Design, ...] = ()
    """others that served these streams in the very same way"""

    @property
    def replicas(self) -> int:
        return self.point.replicas

    @property
    def cell(self) -> Cell:
        return self.design.at_size(self.replicas)

    @property
    def to_keep(self) -> ToKeep:
        return self.design.contender.to_keep

    @property
    def router(self) -> str | None:
        """The policy's name; None for one replica, which has nothing to route."""
        return str(self.design.at["policy"]) if self.replicas > 1 or self.cell.cluster.has_roles else None

    @property
    def price(self) -> float:
        """The price of an hour at the answer."""
        return self.point.price

    @property
    def ends(self) -> tuple[float, float]:
        """Prices of the fewest replicas that may keep the promise, by the interval of their share, and of the fewest
        that surely do; infinite where none of those that were tried does."""
        answer, target = self.answer, self.answer.target
        if answer.alone is not None:
            low = answer.low or self.replicas
            high = math.inf if answer.high is None and answer.alone.ends is not None else answer.high or self.replicas
        else:
            may = [spot.size for spot in answer.curve if spot.kept + (spot.half_width or 0) >= target]
            low = min([*may, float(self.replicas)])
            high = self.replicas if answer.verdict is Verdict.FOUND else math.inf
        return low * self.design.price, high * self.design.price

    @property
    def part(self) -> float:
        """The price in fractions of a replica, by where the share crosses the target: it orders what costs the same."""
        bracket = self.answer.bracket
        if bracket is None:
            return self.price
        crossing = bracket.crossing(self.answer.target)
        return self.design.price * math.exp(crossing) if math.isfinite(crossing) else self.price

    def row(self) -> dict[str, Any]:
        """A flat row for programs, with all digits."""
        low, high = self.ends
        cell = self.cell
        found = {**self.design.at, "gpus": cell.gpus, "replicas": cell.replicas}
        found |= {"evidence": evidence.word(cell), "formats": stored.formats(cell.hardware)}
        if cell.cluster.has_roles:
            found |= {f"{group.role}_replicas": group.replicas for group in cell.cluster.groups}
        found |= {
            "price_per_hour": self.price,
            "price_low": low,
            "price_high": None if math.isinf(high) else high,
            "verdict": self.answer.verdict.value,
            "seeds": self.answer.seeds,
        }
        for name, (mean, half) in self.point.seen.items():
            found |= {name: mean, f"{name}_half_width": half}
        return found


def seen(runs: Sequence[Mapping[str, Any]]) -> dict[str, Mean]:
    """Means over streams of what will be seen."""
    found = {}
    for name in SEEN:
        values = [one[name] for one in runs if one.get(name) is not None]
        if values:
            found[name] = mean_interval(values)
    return found


def ordered(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The cheapest first; of those that cost the same who would do with a fraction less, and then who keeps more."""

    def rank(one: Candidate) -> tuple[bool, float, float, float, int]:
        chosen = sum(value is not None for value in one.design.at.values())
        never = one.answer.verdict is Verdict.NEVER
        return never, one.price, one.part, -one.point.seen[KEPT][0], chosen

    return sorted(candidates, key=rank)


def without_twins(order: Sequence[Candidate]) -> list[Candidate]:
    """Those that served all streams in the very same way as one, the plainest of them, with what else they are."""
    found: dict[str, list[Candidate]] = {}
    for one in order:
        found.setdefault(repr((one.price, sorted(one.point.seen.items()))), []).append(one)
    return [replace(of[0], twins=tuple(one.design for one in of[1:])) for of in found.values()]


def alike(order: Sequence[Candidate]) -> list[Candidate]:
    """Those of which streams leave open whether they are cheaper than the first, which is one of them."""
    if not order:
        return []
    _, high = order[0].ends
    return [one for one in order if one.ends[0] <= max(high, order[0].price)]


def other_kinds(order: Sequence[Candidate]) -> list[Candidate]:
    """Of each kind of GPU but the first's the best that serves the first's model in whole replicas."""
    first, *others = order
    best: dict[tuple[str | None, str], Candidate] = {}
    for one in others:
        if one.design.split is None and one.design.model == first.design.model:
            best.setdefault(one.design.gpu, one)
    return [one for gpu, one in best.items() if gpu != first.design.gpu]


def front(points: Sequence[Point], metric: str, *, higher: bool) -> list[Point]:
    """The points than which none is both as cheap and better, the cheapest first."""
    sign = -1 if higher else 1
    known = [one for one in points if metric in one.seen]
    found: list[Point] = []
    for one in sorted(known, key=lambda one: (one.price, sign * one.seen[metric][0], one.name)):
        if not found or sign * one.seen[metric][0] < sign * found[-1].seen[metric][0]:
            found.append(one)
    return found
