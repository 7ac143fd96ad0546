"""Outstanding requests of each GPU, side by side: a policy that goes through all of them reads some at a time, which
the router's books, record behind record, do not allow."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.policies.looking import news, nth_new
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup


class Loads(NamedTuple):
    outstanding: Any
    """(GPUs,) requests that were sent to each and are not finished, as of the last look"""
    total: Any
    """(1,) of all GPUs"""
    looked: Any
    """(1,) when that was (see `looking`)"""


def loads(setup: Setup) -> Loads:
    return Loads(np.zeros(setup.gpus, np.int32), *np.zeros((2, 1), np.int64))


@compiled
def look(mine: Loads, view: View) -> None:
    """At the GPUs that have changed."""
    new, sent, kept, more = news(mine.looked, view), view.sent, mine.outstanding, 0
    for i in range(new):
        gpu = nth_new(view, new, i)
        now = sent[gpu].outstanding
        more += now - kept[gpu]
        kept[gpu] = now
    mine.total[0] += more
