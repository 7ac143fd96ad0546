"""What authors of policies import under one name is enough for a router that looks at caches, costs and loads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.policies.api import HOLD, Policy, Setup, Steps, View, insert, matches, prefill_s, prefix_index
from prebleexp.sim.given import given_of


@dataclass(frozen=True)
class SoonestPrefill(Policy):
    """Where the prompt is computed soonest, alone."""

    compiled: ClassVar[bool] = False

    def start(self, setup: Setup) -> Any:
        return prefix_index(setup)

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        hits = np.zeros(len(view.sent), np.int64)
        matches(mine, view, request, hits)
        length = int(view.requests[request].prompt_tokens)
        best = min(
            view.candidates.tolist(),
            key=lambda g: (prefill_s(view.costs[g], max(1, length - int(hits[g])), length), view.sent[g].outstanding),
        )
        insert(mine, view, request, best)
        return int(best)


@pytest.mark.thorough
def test_a_router_is_written_with_one_import() -> None:
    (cell,) = configure.cells(["gpus=3", "rps=20", "duration_s=5"])
    found = runs.run(replace(cell, policy=SoonestPrefill()))
    assert found.metrics["n_finished"] == found.metrics["n_requests"]
    assert found.metrics["hit_ratio"] > runs.run(cell).metrics["hit_ratio"], "lor does not look at caches"


@dataclass(frozen=True)
class OneAtATime(Policy):
    """Binds late: a request waits at the router until all before it have their first tokens."""

    compiled: ClassVar[bool] = False
    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> Any:
        return {"without": set[int](), "sent": dict[int, float](), "first": dict[int, float](), "asked": 0}

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        mine["asked"] += 1
        SEEN[:] = [mine]
        if mine["without"]:
            return HOLD
        mine["without"].add(request)
        mine["sent"][request] = now
        return 0

    def first_token(self, mine: Any, view: View, request: int, now: float) -> None:
        mine["without"].discard(request)
        mine["first"][request] = now


SEEN: list[Any] = []


def test_who_is_held_is_asked_about_again_at_every_first_token() -> None:
    (cell,) = configure.cells(["gpus=2", "rps=20", "duration_s=3"])
    found = runs.run(replace(cell, policy=OneAtATime()))
    sent, first = SEEN[0]["sent"], SEEN[0]["first"]
    waited = [row for row in range(1, len(sent)) if sent[row] > found.workload.arrival_s[row]]
    at_once = sum(sent[row] == first[row - 1] for row in waited)
    print(f"{len(waited)} of {len(sent)} were held, {at_once} of them until the very first token that they waited for")
    assert len(waited) > 10
    assert at_once == len(waited)
    assert any(first[row - 1] < found.outcome.finish_s[row - 1] for row in waited), "not at ends alone"
    assert SEEN[0]["asked"] > len(sent) + len(waited), "and at ends of steps that bring none"


def test_a_router_is_told_how_engines_make_their_steps() -> None:
    mixed = "cluster.groups=[{gpus: 1, hardware/gpu: h100}, {gpus: 2, hardware/gpu: l40s}]"
    for engine, expected in {
        "vllm": [Steps("vllm", 8192), *[Steps("vllm", 2048)] * 2],
        "sglang": [Steps("sglang", 8192, mixed=False), *[Steps("sglang", 4096, mixed=False)] * 2],
        "preble": [Steps(prefill_tokens=512, host_s=0.0006)] * 3,
    }.items():
        (cell,) = configure.cells(["hardware/model=llama_3_1_8b", "rps=20", "duration_s=5", mixed, f"engine={engine}"])
        given = given_of(runs.draw(cell), **runs.asked_of(cell), check=True, before=None)
        assert list(given.setup().steps) == expected
        assert given.setup(0).steps == (), "an engine knows itself"
