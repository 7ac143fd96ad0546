"""Where reuse falls off a cliff as memory gets scarce: hit ratios against tokens of KV a GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from prebleexp.report.answer import Answer
from prebleexp.report.kinds import KINDS, kind_of, name_of
from prebleexp.report.measure import Measure, of_metric
from prebleexp.report.ranking import SUMMED
from prebleexp.report.summary import Layout, Point, Row, grouped
from prebleexp.report.wording import listed, number, plain

KV = "hardware.kv_tokens"
HITS = "hit_ratio"
REUSE = replace(of_metric(HITS), against="tokens of KV of a GPU")
WHERE = Layout(KV, "line", ("variant",))
LEVEL = 0.05
"""a hit ratio that falls by less than this has no cliff"""


def reuse(rows: Sequence[Row]) -> list[Row]:
    """A row for each variant, size of memory, line and seed: the mean over clusters."""
    keys = ("variant", KV, "line", "seed")
    found: list[Row] = []
    for at, members in grouped(rows, lambda row: tuple(row.get(key) for key in keys)).items():
        known = [float(hit) for row in members if (hit := row.get(HITS)) is not None]
        sums = {name: sum(int(row.get(name) or 0) for row in members) for name in SUMMED}
        mean = math.fsum(known) / len(known) if known else None
        found.append({**dict(zip(keys, at, strict=True)), **sums, HITS: mean})
    return found


@dataclass(frozen=True)
class Found:
    """The hit ratios of a router by tokens of KV, ascending."""

    kind: str
    name: str
    hits: Mapping[float, float]

    @property
    def mean(self) -> float:
        return math.fsum(self.hits.values()) / len(self.hits)

    @property
    def edge(self) -> tuple[float, float]:
        """The neighbouring sizes, the greater first, between which the hit ratio falls most."""
        sizes = list(self.hits)
        pairs = list(zip(sizes[1:], sizes, strict=False))
        return max(pairs, key=lambda pair: self.hits[pair[0]] - self.hits[pair[1]])


def most(shown: Sequence[Point]) -> dict[str, list[Found]]:
    """By variant: of each kind the router that finds the most on average, the best first; nothing where memory is the
    same in all runs."""
    found: dict[str, list[Found]] = {}
    for (variant,), of_variant in grouped(shown, lambda point: (point.at["variant"],)).items():
        lines = []
        for (line,), of in grouped(of_variant, lambda point: (point.at["line"],)).items():
            hits = {float(point.at[KV] or 0): point.interval[0] for point in of if point.interval}
            if len(hits) > 1:
                lines.append(Found(kind_of(line), name_of(line), dict(sorted(hits.items()))))
        lines.sort(key=lambda one: -one.mean)
        kinds = {one.kind: one for one in reversed(lines)}
        if kept := [one for one in lines if one.kind in KINDS and kinds[one.kind] is one]:
            found[plain(variant)] = kept
    return found


def answer(shown: Sequence[Point], where: Layout, measure: Measure) -> Answer:
    """Where the hit ratio falls most, for the best router of each kind."""
    said = [falls(variant, of) for variant, of in most(shown).items()]
    return Answer(" ".join(said) or "All runs have the same memory, so there is no cliff to see.")


def falls(variant: str, of: Sequence[Found]) -> str:
    """Between the sizes where it falls most for the router that finds the most."""
    high, low = of[0].edge
    said = [
        f"{number(one.hits[high], 2)} to {number(one.hits[low], 2)} {one.kind} ({one.name})"
        for one in of
        if high in one.hits and low in one.hits
    ]
    off = "nowhere, not even" if of[0].hits[high] - of[0].hits[low] < LEVEL else "a cliff"
    where = f"between {high:,.0f} and {low:,.0f} tokens of KV a GPU"
    return f"With {variant}, reuse falls off {off} {where}: the hit ratio goes from {listed(said)}."
