"""Steps in which nothing but tokens comes are taken in one call: whoever looks, whenever, finds what is there where
each is an end and a beginning. They are that where somebody watches every event."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.policies.base import Policy
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup
from tests.support.outcomes import assert_same


@dataclass(frozen=True)
class Writing(Policy):
    """Writes down all that it sees of the GPUs whenever it is asked, and sends requests to one after the other."""

    seen: list[bytes] = field(default_factory=list)

    compiled: ClassVar[bool] = False
    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> None:
        self.seen.clear()

    def route(self, mine: None, view: View, request: int, now: float) -> int:
        self.seen.append(b"".join(view.gpus[g].tobytes() + view.sent[g].tobytes() for g in range(len(view.gpus))))
        return int(view.candidates[request % len(view.candidates)])


SERVED = (
    "hardware=composed",  # layers in groups
    "hardware=composed engine.async_scheduling=false hardware.kv_tokens=12000",
    pytest.param("hardware=a6000_mistral_7b engine=vllm", marks=pytest.mark.slow),
    pytest.param("hardware=a6000_mistral_7b engine=vllm hardware.kv_tokens=9000 horizon=stop", marks=pytest.mark.slow),
)


@pytest.mark.parametrize("served", SERVED)
def test_steps_taken_in_one_call_are_those_taken_one_by_one(served: str) -> None:
    """Also of what is due when a step ends: arrivals are put at ends that a run without them has."""
    policy = Writing()
    for seed in range(4):
        size = f"gpus={1 + seed} rps={3 + 4 * seed} duration_s=4 seed={seed}"
        (cell,) = configure.cells([*size.split(), *served.split(), "policy=lor"])
        cell, workload = replace(cell, policy=policy), runs.draw(cell)
        ends_s, at_ends = runs.simulate_cell(cell, workload).finish_s, np.arange(len(workload)) % 3 == 0
        arrival_s = np.sort(np.where(at_ends & (ends_s > 0), ends_s, workload.arrival_s))
        for stream in (workload, workload.changed(arrival_s=arrival_s)):
            made, seen = runs.simulate_cell(cell, stream), policy.seen[:]
            events: list[Any] = []
            one_by_one = runs.simulate_cell(cell, stream, on_event=events.append)
            assert_same(made, one_by_one)
            assert seen == policy.seen
            assert len(events) > len(stream)
