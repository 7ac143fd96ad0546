"""A GPU's seconds per output token as a router sees them: the median of the last 200 finished requests."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.sim.compiled import compiled
from prebleexp.sim.types import records

KEPT = 200


STATE = np.dtype([("place", np.int64), ("count", np.int64), ("median_s", np.float64)], align=True)


class Tpots(NamedTuple):
    """The latest times per output token, a row for each GPU."""

    ring: Any
    """(GPUs, `KEPT`) in order of arrival"""
    values: Any
    """(GPUs, `KEPT`) the same, sorted"""
    state: Any
    """where the next one goes in the ring, how many there are, and their median"""


def seeded(gpus: int, tpot_s: float) -> Tpots:
    """Medians of time per output token, s, each GPU beginning with one observation of `tpot_s`."""
    ring, state = np.zeros((2, gpus, KEPT)), records(gpus, STATE)
    ring[:, :, 0] = state.median_s = tpot_s
    state.place = state.count = 1
    return Tpots(*ring, state)  # type: ignore[call-arg]


@compiled
def median_s(tpots: Tpots, gpu: int) -> float:
    return tpots.state[gpu].median_s


@compiled
def seed(tpots: Tpots, gpu: int, tpot_s: float) -> None:
    """Put another value in the place of the first observation."""
    tpots.ring[gpu, 0] = tpots.values[gpu, 0] = tpots.state[gpu].median_s = tpot_s


@compiled
def observe(tpots: Tpots, gpu: int, tpot_s: float) -> float:
    """Add an observation; beyond `KEPT` the oldest leaves. Returns the median."""
    state, ring, values = tpots.state[gpu], tpots.ring[gpu], tpots.values[gpu]
    gap = state.count
    if gap < KEPT:
        state.count += 1
    else:
        gap = _rank(values, KEPT, ring[state.place])
    ring[state.place] = tpot_s
    state.place = (state.place + 1) % KEPT
    last = state.count - 1
    rank = _rank(values, gap, tpot_s)
    if rank < gap:
        _shift_up(values[rank : gap + 1])
    else:  # what lies between the gap and the new value is smaller than that
        rank = gap + _rank(values[gap + 1 : last + 1], last - gap, tpot_s)
        _shift_down(values[gap : rank + 1])
    values[rank] = tpot_s
    middle = (last + 1) // 2
    state.median_s = values[middle] if last % 2 == 0 else (values[middle - 1] + values[middle]) / 2
    return state.median_s


@compiled
def _rank(values: Any, count: int, value: float) -> int:
    """How many of the first `count` sorted values are smaller."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _shift_up(values: Any) -> None:
    for row in range(len(values) - 1, 0, -1):
        values[row] = values[row - 1]


@compiled
def _shift_down(values: Any) -> None:
    for row in range(len(values) - 1):
        values[row] = values[row + 1]
