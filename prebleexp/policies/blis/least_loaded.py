"""BLIS's least-loaded routing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.policies.base import Policy
from prebleexp.policies.candidates import MOST, gpu_of, nth, with_gpu
from prebleexp.policies.reported import UNREAD, is_news
from prebleexp.sim.records import GPUS, View
from prebleexp.sim.types import Setup


class Reported(NamedTuple):
    read: Any
    """(1,) see `reported.is_news`"""
    loads: Any
    """(GPUs,) requests that wait and run, as each has reported"""


@dataclass(frozen=True)
class BlisLeastLoaded(Policy):
    """The GPU with the least sum of requests that wait, that run, and that were sent there and are not finished; the
    first of several. The last are all of the others too, so that what a GPU has reported counts twice.

    Source: inference-sim f90a1e3 (v0.7.15+43); dynamo-llmd-research.md, section 3. Verified, by recordings of its own
    code.
    """

    reads_lengths: ClassVar[bool] = False
    reports_ms: ClassVar[float] = 50.0

    def start(self, setup: Setup) -> Reported:
        return Reported(np.array([UNREAD]), np.zeros(setup.gpus, np.int64))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        gpus, sent, candidates, loads, least = view.gpus, view.sent, view.candidates, mine.loads, MOST
        if is_news(mine.read, view):
            for gpu in range(len(loads)):
                loads[gpu] = gpus[gpu].queued + gpus[gpu].running
        for i in range(len(candidates)):
            gpu = nth(candidates, len(sent), i)
            least = min(least, with_gpu(loads[gpu] + sent[gpu].outstanding, gpu))
        view.work[GPUS] += len(candidates)
        return gpu_of(least)
