"""AIBrix's least-kv-cache routing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.policies.base import Policy
from prebleexp.policies.candidates import nth
from prebleexp.policies.reported import UNREAD, is_news
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import GPUS, View
from prebleexp.sim.types import Setup


class Reported(NamedTuple):
    read: Any
    """(1,) see `reported.is_news`"""
    best: Any
    """(1,) the choice among all GPUs since then"""


@dataclass(frozen=True)
class LeastKvCache(Policy):
    """The GPU that reports the least share of its KV memory in use by requests; the last of several.

    Source: AIBrix, commit e3e10f9e4 (after 0.7.0-rc.3), `least-kv-cache`, which polls every 50 ms. Read, not run, and
    so unproven. It adds the CPU's KV use, of which engines here have none.
    """

    reads_lengths: ClassVar[bool] = False
    reports_ms: ClassVar[float] = 50.0

    def start(self, setup: Setup) -> Reported:
        return Reported(np.array([UNREAD]), np.zeros(1, np.int64))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        view.work[GPUS] += len(view.candidates)
        if len(view.candidates) < len(view.gpus):
            return emptiest(view)
        if is_news(mine.read, view):
            mine.best[0] = emptiest(view)
        return mine.best[0]


@compiled
def emptiest(view: View) -> int:
    """The last candidate with the least share in use."""
    gpus, candidates, best, most, whole = view.gpus, view.candidates, view.candidates[0], 0, 1
    for i in range(len(candidates)):
        gpu = nth(candidates, len(gpus), i)
        free, tokens = gpus[gpu].kv_free + gpus[gpu].evictable, gpus[gpu].kv_tokens
        if free * whole >= most * tokens:  # free / tokens >= most / whole: to divide takes longer than all else
            best, most, whole = gpu, free, tokens
    return int(best)
