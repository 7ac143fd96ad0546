"""Lines that are sets of features, such as "pools + tiers", and "nothing": what each is worth, alone and together.

Worth is a ratio of latencies over the same requests, with a feature over without it. Two features that have nothing to
do with one another are worth the product together; they help each other where latency is surely less than that, and
hurt each other where it is surely more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from prebleexp.intervals import mean_interval
from prebleexp.report import ranking
from prebleexp.report.answer import Answer
from prebleexp.report.measure import Measure
from prebleexp.report.ranking import ALL
from prebleexp.report.ratio import Ratio
from prebleexp.report.summary import Layout, Point, Row, Value
from prebleexp.report.wording import listed, plain

NOTHING, AND = "nothing", " + "
Set = frozenset[str]


class Sets:
    """Latencies of a load, by what the cluster has."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """`rows`: of `ranking.with_distance`, of one load."""
        self.of: dict[Set, dict[Value, float]] = {}
        for row in rows:
            of_set = self.of.setdefault(_set(row["line"]), {})
            of_set[row["seed"]] = math.log1p(float(row["distance"] or 0) / 100)
        self.features = tuple(dict.fromkeys(name for one in self.of for name in sorted(one, key=self._place)))

    def _place(self, name: str) -> tuple[bool, int]:
        """As alone, in the order of lines."""
        lines = list(self.of)
        alone = frozenset([name])
        return alone not in lines, lines.index(alone) if alone in lines else 0

    def worth(self, features: Iterable[str]) -> Ratio | None:
        """Of all of them over none; None where one of the two was not measured."""
        return self._mean({frozenset(features): 1, frozenset[str](): -1})

    def beside(self, features: Iterable[str]) -> Ratio | None:
        """Of all of them over the product of what each is worth alone; None where one of these was not measured."""
        names = tuple(features)
        alone = {frozenset([name]): -1 for name in names}
        return self._mean({frozenset(names): 1, **alone, frozenset[str](): len(names) - 1})

    def _mean(self, weights: Mapping[Set, int]) -> Ratio | None:
        if not all(one in self.of for one in weights):
            return None
        seeds = set.intersection(*(set(self.of[one]) for one in weights))
        if not seeds:
            return None
        sums = [math.fsum(by * self.of[one][seed] for one, by in weights.items()) for seed in sorted(seeds, key=str)]
        return Ratio(*mean_interval(sums))


def _set(line: Value) -> Set:
    name = plain(line)
    return frozenset() if name == NOTHING else frozenset(name.split(AND))


def answer(points: Sequence[Point], where: Layout, measure: Measure) -> Answer:
    """What each is worth over all loads, and where two of them help or hurt each other; with the ranking's table."""
    rows = [row for point in points if point.at["cluster"] == ALL for row in point.rows]
    said = ranking.answer(points, where, measure)
    sets = Sets(rows)
    return replace(said, question="Set", sentence=sentence(sets)) if frozenset() in sets.of else said


def sentence(sets: Sets) -> str:
    """What each is worth alone, what all are together, and which pairs help or hurt each other."""
    alone = {name: worth for name in sets.features if (worth := sets.worth([name]))}
    if not alone:
        return "No feature was measured alone."
    text = f"Latency changes by {listed([f'{worth.share} with {name}' for name, worth in alone.items()])}"
    together, product = sets.worth(sets.features), sets.beside(sets.features)
    if together and product and len(alone) > 1:
        expected = Ratio(together.mean - product.mean, None)
        text += f"; by {together.share} with all of it, where the product of these is {expected.share}"
    pairs = {pair: one for pair in combinations(alone, 2) if (one := sets.beside(pair)) and one.is_sure}
    said = [
        f"{listed([_pair(pair, one) for pair, one in pairs.items() if sign * one.mean > 0])} {verb} each other"
        for sign, verb in ((1, "hurt"), (-1, "help"))
        if any(sign * one.mean > 0 for one in pairs.values())
    ]
    more = "; ".join(said) or "no two of them surely help or hurt each other"
    return f"{text}. {more[:1].upper()}{more[1:]}."


def _pair(names: tuple[str, ...], worth: Ratio) -> str:
    return f"{listed(names)} ({worth.share} beside the product)"
