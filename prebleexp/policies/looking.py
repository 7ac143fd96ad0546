"""Which GPUs have changed since a policy looked at them last: those that `View.touched` has of later, or all."""

from __future__ import annotations

from typing import Any

from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import View

FEW = 16
"""GPUs of which all are looked at sooner than it is found out which have changed"""


@compiled
def news(looked: Any, view: View) -> int:
    """How many there are. `looked`: (1,) how often any GPU had been touched at the last look, 0 before the first; it is
    this look from now on."""
    times, gpus = view.touched.times[0], len(view.sent)
    new = min(gpus, times - looked[0]) if gpus > FEW and times > 0 else gpus  # if nobody counts, it may be all
    looked[0] = times
    return int(new)


@compiled
def nth_new(view: View, new: int, i: int) -> int:
    """The i-th of `new`, from 0 on; one that has changed twice is met twice."""
    touched = view.touched
    return i if new == len(view.sent) else int(touched.gpus[(touched.times[0] - 1 - i) & (len(touched.gpus) - 1)])
