"""Data-parallel ranks in lockstep, experts spread over them, and pipelines: counts, costs and memory by hand, laws, and
the second simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.overhead.model import Overhead
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim.types import Workload
from tests.support.costs.wave_cost import WaveCost
from tests.support.oracle import lockstep
from tests.support.oracle.compared import same
from tests.support.policies.looker import Looker
from tests.support.sampled import examples
from tests.support.strategies.few import few
from tests.support.strategies.vllms import VLLMS, streams

COST = WaveCost(step_s=2.0**-10, token_s=2.0**-13, context_token_s=2.0**-20, kv_tokens=1, gpu_memory_gib=48)
POLICIES = st.sampled_from([LeastOutstanding(), RoundRobin(), Looker()])


@st.composite
def deployments(draw: st.DrawFn) -> dict[str, Any]:
    ranks = draw(st.integers(2, 4))
    engine = replace(draw(VLLMS), host_s=2.0**-11)
    kv_tokens = draw(st.sampled_from([300, 600, 4000]))
    hardware = replace(
        COST, ranks=ranks, kv_tokens=kv_tokens, frontend_s=draw(st.sampled_from([(0.0, 0.0), (0.01, 0.0)]))
    )
    fixed = {"duration_s": 4.0, "seed": 0, "overhead": Overhead(), "engine": engine, "hardware": hardware}
    kinds = draw(st.sampled_from([(), (), ((1, replace(hardware, ranks=1)), (2 * ranks, hardware))]))
    gpus = 1 + 2 * ranks if kinds else ranks * draw(st.integers(1, 2))
    drawn = {
        "policy": draw(POLICIES),
        "horizon": draw(st.sampled_from(["stop", "drain"])),
        "gpus": gpus,
        "kinds": kinds,
    }
    return fixed | drawn | {"reports_ms": draw(st.sampled_from([0.0, 50.0]))}


@pytest.mark.slow
@settings(max_examples=examples(200, found=True), deadline=None)
@given(few() | streams(), deployments())
def test_ranks_in_lockstep_give_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    same(workload, cluster, lockstep.simulate)
