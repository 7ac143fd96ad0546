"""vllm-router's power of two choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from prebleexp.policies.base import Policy
from prebleexp.policies.choices import Draws, two_different
from prebleexp.sim.draws import generator
from prebleexp.sim.records import GPUS, View
from prebleexp.sim.types import Setup


@dataclass(frozen=True)
class VLLMPowerOfTwo(Policy):
    """Of two GPUs drawn at random, the second if fewer requests were sent to it and are not finished, else the first.

    vllm-router 0.1.17, replayed from recordings of the wheel. Its source also adds what a worker reports where it is
    polled; that was not run, and is not here."""

    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> Draws:
        return Draws(generator(setup.seed))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        first, second = two_different(mine.draws, view)
        view.work[GPUS] += 2
        return second if view.sent[second].outstanding < view.sent[first].outstanding else first
