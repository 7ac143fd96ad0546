"""Paired comparisons: by how much one line's latency differs from another's over the same request streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from prebleexp.intervals import relative_difference
from prebleexp.report.summary import Row, Value

METRIC = "norm_latency_mean_s"


class Verdict(Enum):
    """What an effect, or several, say of a claim."""

    REPRODUCED = "reproduced"
    SMALLER = "smaller"
    NONE = "no effect seen"
    OPPOSITE = "opposite"
    MIXED = "mixed"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Side:
    """One side of a comparison: the rows of a part that have these values."""

    part: str
    line: str
    at: tuple[tuple[str, Value], ...] = ()

    def rows(self, parts: Mapping[str, Sequence[Row]]) -> dict[Value, Row]:
        """The rows of this line, by seed."""
        wanted = (("line", self.line), *self.at)
        return {
            row.get("seed"): row
            for row in parts.get(self.part, ())
            if row.get(METRIC) is not None and all(row.get(name) == value for name, value in wanted)
        }


@dataclass(frozen=True)
class Effect:
    """The mean of the paired differences, relative to the other side's mean, with the half-width of its 95 % interval.

    The half-width is None where there are fewer than two common seeds.
    """

    where: str
    what: str
    relative: float
    half_width: float | None
    seeds: int
    finished: float | None
    """the least share of requests that finished, of both sides"""
    expected: int
    """the sign that the claim says; 0 where it says none"""
    published: float | None
    """relative, where a number is published"""

    @property
    def verdict(self) -> Verdict:
        if self.half_width is None:
            return Verdict.NOT_MEASURED
        if abs(self.relative) <= self.half_width:
            return Verdict.NONE
        if self.expected and (self.relative > 0) != (self.expected > 0):
            return Verdict.OPPOSITE
        if self.published is not None and abs(self.relative) + self.half_width < abs(self.published):
            return Verdict.SMALLER
        return Verdict.REPRODUCED


def effect(
    parts: Mapping[str, Sequence[Row]],
    one: Side,
    other: Side,
    *,
    where: str,
    what: str,
    expected: int = 0,
    published: float | None = None,
) -> Effect | None:
    """How much higher `one` is than `other`; None if they have no seed in common."""
    ones, others = one.rows(parts), other.rows(parts)
    found = relative_difference(
        *({seed: float(row[METRIC] or 0) for seed, row in rows.items()} for rows in (ones, others))
    )
    if found is None:
        return None
    seeds = [seed for seed in ones if seed in others]
    shares = [_share([rows[seed] for seed in seeds]) for rows in (ones, others)]
    known = [share for share in shares if share is not None]
    return Effect(
        where,
        what,
        *found,
        len(seeds),
        min(known, default=None),
        expected,
        published,
    )


def overall(effects: Sequence[Effect]) -> Verdict:
    """The verdict that all have; mixed if they differ."""
    found = {one.verdict for one in effects} - {Verdict.NOT_MEASURED}
    if not found:
        return Verdict.NOT_MEASURED
    return found.pop() if len(found) == 1 else Verdict.MIXED


def _share(rows: Sequence[Row]) -> float | None:
    total = sum(float(row.get("n_requests") or 0) for row in rows)
    return sum(float(row.get("n_finished") or 0) for row in rows) / total if total else None
