"""A histogram of times, of which bins are a fixed share of a value wide: what a run keeps of the gaps between tokens.

Each power of two is cut into `PARTS` equal bins, as in an HDR histogram: a bin is between 0.4 and 0.8 % of its values
wide, and its edges are numbers that floats have, so that it is never in doubt where a value belongs: an edge is of the
bin above it. Bin 0 has all that is shorter than `LEAST_S`, the last one all from `MOST_S` on.
"""

from __future__ import annotations

import numpy as np

from prebleexp.sim.arrays import Floats, Longs

PARTS = 128
"""bins of a power of two"""
LOW, HIGH = -20, 17
LEAST_S, MOST_S = 2.0**LOW, 2.0**HIGH
"""about a microsecond, and a day and a half"""
BINS = (HIGH - LOW) * PARTS + 2
SHIFT = 52 - 7
"""a float's bits but for so many of its mantissa count bins from one edge to the next, …"""
ZERO = ((1023 + LOW) << 7) - 1
"""… of which bin 0 is this one"""


def edges() -> Floats:
    """(`BINS` + 1,) bin i has the values from edge i up to edge i + 1, without that; in seconds."""
    powers = np.exp2(np.arange(LOW, HIGH))
    inner: Floats = (powers[:, None] * (1 + np.arange(PARTS) / PARTS)).ravel()
    return np.concatenate([[0.0], inner, [MOST_S, np.inf]])


def percentile(counts: Longs, most_s: float, share: float) -> float | None:
    """Of (`BINS`,) counts the middle of the bin with the least value that so great a share of all do not exceed, or the
    greatest of all, `most_s`, if that is less. None of no values."""
    below = np.cumsum(counts)
    if below[-1] == 0:
        return None
    at = int(np.searchsorted(below, share * below[-1]))
    low, high = edges()[at : at + 2]
    return float(min((low + high) / 2, most_s))
