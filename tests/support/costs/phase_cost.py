"""A cost model for recordings of Dynamo's replay: a step takes so long if it computes any prompt, and so long more if
any request decodes."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

from prebleexp.sim.compiled import compiled
from prebleexp.sim.types import Layers


class Cost(NamedTuple):
    prefill_s: float
    decode_s: float


@dataclass(frozen=True)
class PhaseCost:
    prefill_s: float
    decode_s: float
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
        return Cost(self.prefill_s, self.decode_s)


@compiled
def request_ms(self: Any, mine: Cost, new: int, length: int) -> float:
    return 0.0


@compiled
def step_s(
    self: Any, mine: Cost, prefills: int, new: int, length: int, running: int, context: int, unique: int, ms: float
) -> float:
    return (mine.prefill_s if prefills > 0 else 0.0) + (mine.decode_s if running > 0 else 0.0)


@compiled
def decode_s(self: Any, mine: Cost, running: int, context: int, unique: int, steps: int) -> float:
    return mine.decode_s * steps
