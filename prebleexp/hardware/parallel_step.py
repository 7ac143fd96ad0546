"""What a step costs a data-parallel rank whose experts are spread over the GPUs of all ranks: its own part as
`composed_step` has it, and what all do in common, which is of the tokens of all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from prebleexp.hardware import composed_step
from prebleexp.hardware.composed_step import request_ms as request_ms
from prebleexp.sim.compiled import compiled

COST = np.dtype(
    [
        *((name, composed_step.COST[name]) for name in composed_step.COST.names or ()),
        ("ranks", np.float64),
        ("spread", np.float64),  # experts of a layer, over all GPUs
        ("busiest", np.float64),  # tokens of the busiest GPU over the mean
        ("exchange", np.float64),  # seconds of tokens' way to their experts and back, a step, …
        ("exchange_token", np.float64),  # … and a token of all ranks
    ],
    align=True,
)
"""`experts` is 0, so that `composed_step` leaves them out; what computing and reading them takes is of all GPUs."""


@compiled
def wave_s(self: Any, mine: Any, tokens: int) -> float:
    """The busiest GPU's experts, and the exchange of tokens: no GPU has more than all of its own experts to read."""
    touched = mine.spread * (1.0 - math.exp(tokens * mine.log_missed))
    memory = mine.expert_memory * min(touched * mine.busiest, mine.spread)
    compute = mine.expert_compute * mine.busiest * tokens
    return float(math.sqrt(compute * compute + memory * memory) + mine.exchange + mine.exchange_token * tokens)


@compiled
def step_s(
    self: Any,
    mine: Any,
    prefills: int,
    new: int,
    length: int,
    running: int,
    context: int,
    unique: int,
    requests_ms: float,
) -> float:
    """Where each rank has as many tokens."""
    if running + new == 0:
        return 0.0
    own = composed_step.step_s(self, mine, prefills, new, length, running, context, unique, requests_ms)
    return own + wave_s(self, mine, int(mine.ranks) * (running + new))


@compiled
def decode_s(self: Any, mine: Any, running: int, context: int, unique: int, steps: int) -> float:
    own = composed_step.decode_s(self, mine, running, context, unique, steps)
    return own + steps * wave_s(self, mine, int(mine.ranks) * running)
