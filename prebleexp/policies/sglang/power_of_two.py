"""SGLang's power of two choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from prebleexp.policies.base import Policy
from prebleexp.policies.choices import Draws, two_different
from prebleexp.sim.compiled import compiled
from prebleexp.sim.draws import generator
from prebleexp.sim.records import GPUS, View
from prebleexp.sim.types import Setup


@dataclass(frozen=True)
class SGLangPowerOfTwo(Policy):
    """Of two GPUs drawn at random, the second if it last reported fewer tokens, in use or waiting, else the first.
    What was sent since then does not count, so until the next report all go by the same numbers.

    sglang-router 0.3.2, replayed from recordings of the wheel, which polls each second. That a load is the tokens in
    use and those that wait is read from its source; recordings are of made-up loads."""

    reads_lengths: ClassVar[bool] = False
    reports_ms: ClassVar[float] = 1000.0

    def start(self, setup: Setup) -> Draws:
        return Draws(generator(setup.seed))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        first, second = two_different(mine.draws, view)
        view.work[GPUS] += 2
        return second if load(view, second) < load(view, first) else first


@compiled
def load(view: View, gpu: int) -> int:
    report = view.gpus[gpu]
    return int(report.kv_tokens - report.kv_free - report.evictable + report.waiting_tokens)
