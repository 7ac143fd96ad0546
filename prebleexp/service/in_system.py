"""Whether the number of requests in the system grows: the least-squares slope of that number over time."""

from __future__ import annotations

import numpy as np

from prebleexp.sim.types import Floats


def slope(come_s: Floats, gone_s: Floats, start_s: float, end_s: float) -> float:
    """Of the number of requests that have come and are not gone, from `start_s` to `end_s`, a second. NaN in `gone_s`:
    not gone by then.

    The number is a step function; its slope is ∫(t − m)N dt / ∫(t − m)² dt, m the middle, of which each request has
    its share.
    """
    length, middle = end_s - start_s, (start_s + end_s) / 2
    begin = np.clip(come_s, start_s, end_s) - middle
    end = np.clip(np.where(np.isnan(gone_s), end_s, gone_s), start_s, end_s) - middle
    return float((end * end - begin * begin).sum()) / 2 / (length**3 / 12)
