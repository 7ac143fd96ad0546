"""A run whose requests come one by one, of which nothing is known before, is the simulator's, to the bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.launch import configure
from tests.support.outcomes import assert_same
from tests.support.places import ROOT
from tests.support.sampled import sampled
from tests.support.stepping import stepped

POLICIES = sorted({one.stem for one in (ROOT / "conf" / "policy").glob("*.yaml")} - {"replay", "e2_released"})
"""those that decide, in a loop that is not their own"""
SEAMS = {
    "reports": ["policy=lor", "reports_ms=50"],
    "serial": ["policy=e2", "overhead=serial"],
    "gateway": ["policy=lor", "gateway.max_in_flight=3", "gateway.order=edf", "gateway.queue_limit=4"],
    "expires": ["policy=lor", "gateway.max_in_flight=2", "gateway.ttl_queue_s=0.5", "gateway.retries=2"],
    "replicas": ["policy=lmetric", "gateway.replicas=2"],
    "faults": [
        "policy=lor",
        "faults=timeline",
        "faults.happen=[{at_s: 2, gpu: 0, event: down}, {at_s: 4, gpu: 0, event: up}, {at_s: 5, gpu: 1, event: drain}]",
    ],
    "mean": ["policy=lor_tokens", "lengths=mean"],
    "tiers": ["policy=lmetric", "cluster=tiered"],
    "stop": ["policy=e2", "horizon=stop"],
    "sglang_2024": ["policy=lor", "engine=sglang_2024"],
}


def cell_of(*words: str) -> Cell:
    return configure.cells(["gpus=3", "rps=12", "duration_s=6", "seed=3", "engine=vllm", *words])[0]


def _is_simulated(*words: str) -> None:
    cell = cell_of(*words)
    drawn = runs.draw(cell)
    rows = np.arange(len(drawn))
    workload = replace(drawn, session=rows // 4, turn=rows % 4)  # some route by session
    assert_same(stepped(cell, workload), runs.simulate_cell(cell, workload))


@pytest.mark.thorough
@pytest.mark.parametrize("policy", sampled(POLICIES, 9))
def test_with_every_policy(policy: str) -> None:
    _is_simulated(f"policy={policy}")


@pytest.mark.parametrize("policy", sampled(POLICIES, 18))
def test_with_every_policy_before_sglang(policy: str) -> None:
    _is_simulated(f"policy={policy}", "engine=sglang")


@pytest.mark.thorough
@pytest.mark.parametrize("words", sampled([(words,) for words in SEAMS.values()], 3))
def test_with_what_else_may_stand_between(words: list[str]) -> None:
    _is_simulated(*words)
