"""By what a sweep's lines are ranked where nobody says: by what was promised to users, if anything, and by latency."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.comparison import ATTAINMENT
from prebleexp.report.figures import Figure
from prebleexp.report.measures import drawing
from prebleexp.report.summary import Row

LATENCY = "latency_against_rate"


def names(asked: Sequence[str], rows: Sequence[Row]) -> tuple[str, ...]:
    """Of the figures: the metrics that were asked for, else these."""
    if asked:
        return tuple(asked)
    return (ATTAINMENT, LATENCY) if any(row.get(ATTAINMENT) is not None for row in rows) else (LATENCY,)


def answer(figures: Sequence[Figure]) -> str:
    """The first figure's sentence; of what was promised with that of latency, which tells lines apart where it does
    not."""
    first, *rest = figures
    if first.name != ATTAINMENT or not rest or rest[0].name != LATENCY:
        return first.headline
    return f"{first.headline} In {drawing(LATENCY).measure.words}: {rest[0].headline}"
