"""How much of a recording's busiest minute is chance, where it is laid over itself to be quicker.

Counts of a minute vary with the rate, and by chance. Copies of a session come within the same minutes, so chance grows
as the rate does, as if it were a rush hour; of as many independent sessions it would grow as its root does. Sessions
that begin independently make counts whose variance is that of their rate, and the mean over minutes of the sum of n²,
n of one session in it (a compound Poisson process). So the stream tells both parts, once with a session's copies as one
and once with each as its own. The busiest minute is taken to be as many standard deviations above the average either
way.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from prebleexp.busiest import STRETCHES, within
from prebleexp.sim.types import Floats, Longs

MINUTE_S = STRETCHES["minute"]
LEAST = 10
"""minutes that tell how they vary"""


class Peak(NamedTuple):
    """Requests of a minute over those of the average one."""

    busiest: float
    independent: float
    """of the busiest, if the sessions of copies were independent"""


def peak(start_s: Floats, session: Longs, copy: Longs) -> Peak | None:
    """Of (n,) starts in order from 0, the sessions that they are of, and the copies of these; None of a stream that is
    too short."""
    minutes = int(start_s[-1] // MINUTE_S) if len(start_s) else 0
    if minutes < LEAST:
        return None
    whole = start_s < minutes * MINUTE_S
    minute = (start_s[whole] // MINUTE_S).astype(np.int64)
    each = session[whole] + copy[whole] * (int(session.max()) + 1)
    variance = float(np.bincount(minute, minlength=minutes).var(ddof=1))
    as_copied, independent = (_by_chance(of * minutes + minute) / minutes for of in (session[whole], each))
    of_rate = max(0.0, variance - as_copied)
    most = int(within(start_s, start_s, MINUTE_S).max()) / (len(start_s) / float(start_s[-1]) * MINUTE_S)
    less = math.sqrt((of_rate + independent) / (of_rate + as_copied))
    return Peak(most, 1 + (most - 1) * less)


def _by_chance(places: Longs) -> float:
    """The sum of squares of how many requests are at each place."""
    return float((np.unique(places, return_counts=True)[1].astype(np.float64) ** 2).sum())
