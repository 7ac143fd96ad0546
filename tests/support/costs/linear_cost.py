"""A cost model for recordings of engines: a step of T tokens that ends at contexts C takes step_s + T token_s + sum(C)
context_token_s."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

from prebleexp.sim.compiled import compiled
from prebleexp.sim.types import Layers


class Cost(NamedTuple):
    step_s: float
    token_s: float
    context_token_s: float


@dataclass(frozen=True)
class LinearCost:
    step_s: float
    token_s: float
    context_token_s: float
    kv_tokens: int
    context_length: int = 2**30
    gpu_name: str = ""
    gpu_memory_gib: float = 0.0
    frontend_s: tuple[float, float] = (0.0, 0.0)
    layer_kinds: tuple[Layers, ...] = ()
    ranks: int = 1
    stages: int = 1
    handoff_s: tuple[float, float] = (0.0, 0.0)

    def kernels(self) -> Any:
        return sys.modules[__name__]

    def numbers(self) -> None:
        pass

    def start(self) -> Cost:
        return Cost(self.step_s, self.token_s, self.context_token_s)


@compiled
def request_ms(self: Any, mine: Cost, new: int, length: int) -> float:
    return 0.0


@compiled
def step_s(
    self: Any, mine: Cost, prefills: int, new: int, length: int, running: int, context: int, unique: int, ms: float
) -> float:
    return mine.step_s + mine.token_s * (new + running) + mine.context_token_s * (length + context)


@compiled
def decode_s(self: Any, mine: Cost, running: int, context: int, unique: int, steps: int) -> float:
    seconds = 0.0
    for _ in range(steps):
        seconds += mine.step_s + mine.token_s * running + mine.context_token_s * context
        context += running
    return seconds
