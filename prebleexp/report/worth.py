"""What a session's id is worth once prefixes are known: the best router of one kind against the best of another, over
the same requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from prebleexp.intervals import mean_interval
from prebleexp.report import ranking
from prebleexp.report.answer import Answer
from prebleexp.report.kinds import KINDS, PREFIX, SESSION, kind_of, name_of
from prebleexp.report.measure import Measure
from prebleexp.report.ranking import ALL, within
from prebleexp.report.ratio import Ratio
from prebleexp.report.summary import Layout, Point, Row, Value, grouped
from prebleexp.report.wording import listed, plain


@dataclass(frozen=True)
class Against(Ratio):
    """The best router of one kind against the best of another."""

    one: str
    other: str

    @property
    def words(self) -> str:
        """ "12 ± 1 % below that of" """
        side = "above" if self.mean > 0 else "below"
        return f"{self.share.lstrip('+−')} {side} that of {self.other}"


def bests(rows: Sequence[Row]) -> dict[str, dict[Value, float]]:
    """Of one cluster's rows of `ranking.with_distance`, the best line of each kind, and by seed the logarithm of its
    distance."""
    found: dict[str, dict[Value, float]] = {}
    lines = grouped(rows, lambda row: (row["line"],)).items()
    for kind in KINDS:
        of_kind = {
            plain(line): {row["seed"]: math.log1p(float(row["distance"] or 0) / 100) for row in of}
            for (line,), of in lines
            if kind_of(line) == kind
        }
        if of_kind:
            best = min(of_kind, key=lambda line: math.fsum(of_kind[line].values()) / len(of_kind[line]))
            found[best] = of_kind[best]
    return found


def against(rows: Sequence[Row], kind: str, other: str) -> Against | None:
    """None where no router of one of the kinds has run."""
    best = {kind_of(line): (line, values) for line, values in bests(rows).items()}
    if kind not in best or other not in best:
        return None
    (one, of_one), (base, of_base) = best[kind], best[other]
    mean, half = mean_interval([value - of_base[seed] for seed, value in of_one.items() if seed in of_base])
    return Against(mean, half, name_of(one), name_of(base))


def answer(points: Sequence[Point], where: Layout, measure: Measure) -> Answer:
    """Whether an id is worth anything, over all clusters and in each kind of them; with the ranking's table of
    words."""
    rows = [row for point in points for row in point.rows]
    said = ranking.answer(points, where, measure)
    return replace(said, sentence=verdict(rows)) if against(within(rows, ALL), SESSION, PREFIX) else said


def verdict(rows: Sequence[Row]) -> str:
    """A sentence on the rows of `ranking.with_distance`."""
    everywhere = against(within(rows, ALL), SESSION, PREFIX)
    assert everywhere is not None
    if not everywhere.is_sure:
        start = "Once prefixes are known, a session's id is worth nothing that can be seen"
    elif everywhere.mean > 0:
        start = "Once prefixes are known, a session's id is worth nothing"
    else:
        start = "A session's id is worth something even where prefixes are known"
    text = f"{start}: over all clusters the latency of the best router by session, {everywhere.one}, is "
    text += f"{everywhere.words}, the best by prefix"
    variants = dict.fromkeys(plain(row["cluster"]) for row in rows if row["cluster"] != ALL)
    each = {variant: against(within(rows, variant), SESSION, PREFIX) for variant in variants}
    shares = [f"{one.share} with {variant}" for variant, one in each.items() if one]
    return f"{text}{f' ({listed(shares)}, each with its own best)' if len(shares) > 1 else ''}."
