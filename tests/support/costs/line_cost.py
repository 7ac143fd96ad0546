"""A cost model for prices: as `linear_cost`, and each prefill of a step adds to it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from prebleexp.sim.compiled import compiled
from tests.support.reference.marginal import Line


@dataclass(frozen=True)
class LineCost:
    line: Line

    def kernels(self) -> Any:
        return sys.modules[__name__]

    def numbers(self) -> None:
        pass

    def start(self) -> Line:
        return self.line


@compiled
def request_ms(self: Any, mine: Line, new: int, length: int) -> float:
    return 1000.0 * mine.prefill_s


@compiled
def step_s(
    self: Any, mine: Line, prefills: int, new: int, length: int, running: int, context: int, unique: int, ms: float
) -> float:
    return mine.step_s + mine.token_s * (new + running) + mine.context_token_s * (length + context) + ms / 1000.0


@compiled
def decode_s(self: Any, mine: Line, running: int, context: int, unique: int, steps: int) -> float:
    return mine.step_s + mine.token_s * running + mine.context_token_s * context
