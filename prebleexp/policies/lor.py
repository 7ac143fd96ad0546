"""Least outstanding requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.policies.base import Policy
from prebleexp.sim.records import GPUS, View
from prebleexp.sim.types import Setup

GPU_BITS, MOST = 20, (1 << 63) - 1
"""as in `candidates`, which imports numba: a sweep by the default policy that is all cached does without"""

FEW = 32
"""GPUs whose books are all read sooner than it is found out which have changed"""


class Loads(NamedTuple):
    """Of many GPUs, side by side, which are read in half the time that their books take."""

    with_gpu: Any
    """(GPUs,) outstanding requests and the GPU in one number, as of the last look"""
    looked: Any
    """(1,) how often any GPU had been touched then"""


@dataclass(frozen=True)
class LeastOutstanding(Policy):
    """The GPU with the fewest requests that were sent to it and are not finished; the first of several."""

    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> Loads:
        return Loads(np.zeros(setup.gpus, np.int64), np.zeros(1, np.int64))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        sent, candidates, touched, least = view.sent, view.candidates, view.touched, MOST
        gpus, times = len(sent), touched.times[0]
        view.work[GPUS] += len(candidates)
        if gpus <= FEW or times == 0:
            for i in range(len(candidates)):
                gpu = i if len(candidates) == gpus else candidates[i]
                least = min(least, (sent[gpu].outstanding << GPU_BITS) | gpu)
            return least & ((1 << GPU_BITS) - 1)
        news = min(gpus, times - mine.looked[0])
        for i in range(news):  # of as many as there are GPUs it is not known which
            gpu = i if news == gpus else touched.gpus[(times - 1 - i) & (len(touched.gpus) - 1)]
            mine.with_gpu[gpu] = (sent[gpu].outstanding << GPU_BITS) | gpu
        mine.looked[0] = times
        for i in range(len(candidates)):
            gpu = i if len(candidates) == gpus else candidates[i]
            least = min(least, mine.with_gpu[gpu])
        return least & ((1 << GPU_BITS) - 1)
