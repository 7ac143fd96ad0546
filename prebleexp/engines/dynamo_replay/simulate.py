"""One run of Dynamo's replay."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from prebleexp.engines.dynamo_replay import loop, outcome
from prebleexp.engines.dynamo_replay.records import Sim
from prebleexp.engines.dynamo_replay.state import EXAMPLE, allocate
from prebleexp.errors import InvalidInput
from prebleexp.sim.given import PAUSE, Given
from prebleexp.sim.handles import Block
from prebleexp.sim.types import Outcome


def simulate(given: Given, on_pause: Callable[[], object], on_event: Callable[[Sim], object] | None) -> Outcome:
    """As `prebleexp.sim.simulate.simulate`. Raises InvalidInput if GPUs are to report now and then: its router asks
    nothing of them; and if requests come after others or give up: here they do not."""
    engine: Any = given.engine
    if given.reports_ms > 0:
        raise InvalidInput(f"reports_ms={given.reports_ms:g} is not valid with engine=dynamo_replay; it must be 0")
    if not given.workload.is_open or np.isfinite(given.workload.patience_s).any():
        raise InvalidInput(
            "engine=dynamo_replay is not valid with requests that come after others, in stages, or that give up; "
            "engines with sessions are vllm, sglang, sglang_2024 and preble"
        )
    end_ms = float(given.duration_s) * 1e3 if given.horizon == "stop" else math.inf
    sim = allocate(given.workload, engine, given.gpus, end_ms, PAUSE if on_event is None else 1)
    block = Block(sim, EXAMPLE.layout)
    while True:
        status = loop.advance(block.handle)
        if on_event is not None:
            on_event(sim)
        if status == loop.DONE:
            return outcome.outcome(sim, given.workload)
        on_pause()
