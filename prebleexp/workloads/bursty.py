"""Gaps between requests of a load generator."""

from __future__ import annotations

import math

import numpy as np

from prebleexp.sim.types import Floats

ENDLESS = ("inf", "Infinity", math.inf)
"""how request_rate and burstiness are written that have no end"""


def gaps(times: np.random.Generator, n: int, burstiness: float) -> Floats:
    """(n,) gaps of mean 1: gamma-distributed of this shape, so 1 is a Poisson process, less is burstier, and infinity
    is a clock."""
    return np.ones(n) if math.isinf(burstiness) else times.standard_gamma(burstiness, n) / burstiness


def arrivals_s(times: np.random.Generator, n: int, rate: float, burstiness: float) -> Floats:
    """(n,) seconds from the first request on, of so many requests a second with such gaps."""
    drawn = times.standard_gamma(burstiness, n) / (burstiness * rate)
    found: Floats = np.cumsum(drawn) - drawn[0]
    return found
