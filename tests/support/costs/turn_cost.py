"""A cost model for worked examples: each prompt token that is computed takes its time, and each step of output its own,
whatever else is in the batch."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

from prebleexp.sim.compiled import compiled
from prebleexp.sim.types import Layers


class Cost(NamedTuple):
    prompt_token_s: float
    output_token_s: float


@dataclass(frozen=True)
class TurnCost:
    prompt_token_s: float = 0.001
    output_token_s: float = 0.01
    kv_tokens: int = 10_000_000
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
        return Cost(self.prompt_token_s, self.output_token_s)


@compiled
def request_ms(self: Any, mine: Cost, new: int, length: int) -> float:
    return 0.0


@compiled
def step_s(
    self: Any, mine: Cost, prefills: int, new: int, length: int, running: int, context: int, unique: int, ms: float
) -> float:
    return mine.prompt_token_s * new + mine.output_token_s


@compiled
def decode_s(self: Any, mine: Cost, running: int, context: int, unique: int, steps: int) -> float:
    return mine.output_token_s * steps
