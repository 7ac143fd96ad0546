"""production-stack's QPS routing: where the fewest requests arrived of late, whether they have ended or not."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.policies.growing import longer
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import GPUS, View
from prebleexp.sim.types import Setup

NEVER = -1
"""arrivals of a GPU that was not sent any request"""


class Arrivals(NamedTuple):
    window_s: float
    time_s: Any
    """(arrivals,) of each, in order; room for one a request at first"""
    gpu: Any
    """(arrivals,) where it went"""
    ends: Any
    """(2,) the first arrival of the window, and the next to come"""
    counts: Any
    """(GPUs,) arrivals of the window, or `NEVER`"""


def arrivals(setup: Setup, window_s: float) -> Arrivals:
    """None yet; those of the last `window_s` seconds will count."""
    n = setup.requests
    return Arrivals(
        float(window_s),
        np.zeros(n),
        np.zeros(n, np.int32),
        np.zeros(2, np.int64),
        np.full(setup.gpus, NEVER, np.int64),
    )


@compiled
def lacks_room(mine: Arrivals) -> int:
    """Whether there is none for one more arrival."""
    return int(mine.ends[1] == len(mine.time_s))


def with_more_room(mine: Arrivals) -> Arrivals:
    return mine._replace(time_s=longer(mine.time_s), gpu=longer(mine.gpu))


@compiled
def fewest(mine: Arrivals, view: View, now: float) -> int:
    """The first candidate that never got a request, else the first of those with the fewest arrivals."""
    while mine.ends[0] < mine.ends[1] and mine.time_s[mine.ends[0]] < now - mine.window_s:
        mine.counts[mine.gpu[mine.ends[0]]] -= 1
        mine.ends[0] += 1
    best = view.candidates[0]
    for gpu in view.candidates:
        if mine.counts[gpu] < mine.counts[best]:
            best = gpu
    view.work[GPUS] += len(view.candidates)
    return int(best)


@compiled
def arrived(mine: Arrivals, gpu: int, now: float) -> None:
    """A request is sent to the GPU."""
    end = mine.ends[1]
    mine.time_s[end], mine.gpu[end] = now, gpu
    mine.ends[1] = end + 1
    mine.counts[gpu] = max(0, mine.counts[gpu]) + 1
