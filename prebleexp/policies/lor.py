"""Least outstanding requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from prebleexp.policies.base import Policy
from prebleexp.sim.records import GPUS, View

GPU_BITS, MOST = 20, (1 << 63) - 1
"""as in `candidates`, which imports numba: a sweep by the default policy that is all cached does without"""


@dataclass(frozen=True)
class LeastOutstanding(Policy):
    """The GPU with the fewest requests that were sent to it and are not finished; the first of several."""

    reads_lengths: ClassVar[bool] = False

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        sent, candidates, least = view.sent, view.candidates, MOST
        for i in range(len(candidates)):
            gpu = i if len(candidates) == len(sent) else candidates[i]
            least = min(least, (sent[gpu].outstanding << GPU_BITS) | gpu)
        view.work[GPUS] += len(candidates)
        return least & ((1 << GPU_BITS) - 1)
