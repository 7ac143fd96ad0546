"""How much busier the busiest hour of a stream is than it is on average, or its busiest minute where it is short."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
STRETCHES = {"hour": 3600.0, "minute": 60.0}
"""seconds, the longest first"""
LEAST = 2
"""times as long as the stretch a stream is, at least, so that it can differ from the average"""


@dataclass(frozen=True)
class Busiest:
    """A stretch in which most requests come."""

    of: str
    """hour or minute"""
    rps: float
    """requests a second in it"""
    times: float
    """so many times the average of the stream"""


def within(start_s: Floats, begins_s: Floats, lasts_s: float) -> npt.NDArray[np.int64]:
    """Of (n,) starts in order, how many are in the stretch of so many seconds that each of (m,) `begins_s` begins."""
    return np.searchsorted(start_s, begins_s + lasts_s) - np.searchsorted(start_s, begins_s)


def busiest(start_s: Floats) -> Busiest | None:
    """Of (n,) starts in order; None of a stream of less than two minutes."""
    span_s = float(start_s[-1] - start_s[0]) if len(start_s) else 0.0
    if not math.isfinite(span_s):
        return None
    for of, lasts_s in STRETCHES.items():
        if span_s >= LEAST * lasts_s:
            rps = int(within(start_s, start_s, lasts_s).max()) / lasts_s
            return Busiest(of, rps, rps * span_s / len(start_s))
    return None
