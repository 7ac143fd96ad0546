"""`LinearCost` of ranks that step together: a step takes all_s + T all_token_s more, T tokens of all ranks. All numbers
are sums of powers of two, so that they are the same in whatever order they are added."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

from prebleexp.sim.compiled import compiled
from tests.support.costs.linear_cost import LinearCost


class Cost(NamedTuple):
    step_s: float
    token_s: float
    context_token_s: float
    all_s: float
    all_token_s: float
    ranks: int


@dataclass(frozen=True)
class WaveCost(LinearCost):
    all_s: float = 2.0**-9
    all_token_s: float = 2.0**-15

    def kernels(self) -> Any:
        return sys.modules[__name__]

    def start(self) -> Any:
        return Cost(self.step_s, self.token_s, self.context_token_s, self.all_s, self.all_token_s, self.ranks)


@compiled
def wave_s(self: Any, mine: Cost, tokens: int) -> float:
    return mine.all_s + mine.all_token_s * tokens


@compiled
def request_ms(self: Any, mine: Cost, new: int, length: int) -> float:
    return 0.0


@compiled
def step_s(
    self: Any, mine: Cost, prefills: int, new: int, length: int, running: int, context: int, unique: int, ms: float
) -> float:
    own = mine.step_s + mine.token_s * (new + running) + mine.context_token_s * (length + context)
    return own + wave_s(self, mine, (new + running) * mine.ranks)


@compiled
def decode_s(self: Any, mine: Cost, running: int, context: int, unique: int, steps: int) -> float:
    seconds = 0.0
    for _ in range(steps):
        seconds += mine.step_s + mine.token_s * running + mine.context_token_s * context
        seconds += wave_s(self, mine, running * mine.ranks)
        context += running
    return seconds
