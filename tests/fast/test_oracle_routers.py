"""Several routers before pools, and with requests that are moved, a gateway too, against the layers of
`tests.support.oracle.composed`: the same bytes on random clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.engines.vllm.engine import VLLM
from prebleexp.faults.base import Event
from prebleexp.faults.timeline import Timeline
from prebleexp.overhead.model import Overhead
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.sim.pools import BOTH, DECODE, PREFILL, PULL
from prebleexp.sim.replicated import Replication
from prebleexp.sim.types import Workload
from tests.support.accounted import accounted
from tests.support.oracle import composed
from tests.support.oracle.compared import same
from tests.support.sampled import examples
from tests.support.strategies.conversations import conversations
from tests.support.strategies.gateways import GATEWAYS, of_clients
from tests.support.strategies.migrations import long_ones, moving_clusters
from tests.support.strategies.pools import CLUSTERS, DECIDED, RESERVING, faulty, split, streams_with_patience
from tests.support.strategies.replications import REPLICAS
from tests.support.strategies.timelines import timelines
from tests.support.strategies.vllms import COST, streams


def agree(workload: Workload, cluster: dict[str, Any]) -> None:
    """`cluster`: as in the tests of moves."""
    hardware = replace(COST, kv_tokens=cluster["kv"], frontend_s=cluster["frontend"])
    given = {name: one for name, one in cluster.items() if name not in ("kv", "frontend")}
    given |= {"hardware": hardware, "duration_s": 2.5, "seed": 0}
    accounted(workload, same(workload, given, composed.simulate), requeues=True)


def agree_split(workload: Workload, cluster: dict[str, Any], replicas: Replication, **more: Any) -> None:
    """`cluster`: as in the tests of pools."""
    workload, given = split(workload, cluster)
    accounted(workload, same(workload, given | more | {"replicas": replicas}, composed.simulate), requeues=True)


# ---------------------------------------------------------------- pools
SPLIT = CLUSTERS | DECIDED | RESERVING
STREAMS = streams_with_patience()


@pytest.mark.slow
@settings(max_examples=examples(150, found=True), deadline=None)
@given(STREAMS, SPLIT, REPLICAS)
def test_routers_before_pools_give_the_bytes_of_the_oracle(workload: Workload, cluster: Any, replicas: Any) -> None:
    agree_split(workload, cluster, replicas)


@pytest.mark.slow
@settings(max_examples=examples(100, found=True), deadline=None)
@given(STREAMS, faulty(), REPLICAS)
def test_routers_before_pools_that_lose_gpus_give_the_bytes_of_the_oracle(
    workload: Workload, of: Any, replicas: Any
) -> None:
    agree_split(workload, of[0], replicas, faults=of[1])


@pytest.mark.slow
@settings(max_examples=examples(100, found=True), deadline=None)
@given(of_clients(STREAMS), SPLIT, REPLICAS, GATEWAYS)
def test_gateways_of_several_routers_before_pools_give_the_bytes_of_the_oracle(
    workload: Workload, cluster: Any, replicas: Any, gateway: Any
) -> None:
    agree_split(workload, cluster, replicas, gateway=gateway)


# ---------------------------------------------------------------- requests that are moved
@st.composite
def moving(draw: st.DrawFn) -> dict[str, Any]:
    cluster = draw(moving_clusters())
    often = replace(cluster["migration"], interval_s=draw(st.sampled_from([0.005, 0.02])))
    some = st.tuples(st.none() | REPLICAS, st.none() | GATEWAYS).filter(lambda drawn: drawn != (None, None))
    replicas, gateway = draw(some)
    return cluster | {"migration": often, "replicas": replicas, "gateway": gateway}


@pytest.mark.slow
@settings(max_examples=examples(150, found=True), deadline=None)
@given(of_clients(long_ones() | streams()), moving())
def test_moves_behind_gateways_and_several_routers_give_the_bytes_of_the_oracle(
    workload: Workload, cluster: dict[str, Any]
) -> None:
    agree(workload, cluster)


@st.composite
def whole(draw: st.DrawFn) -> dict[str, Any]:
    """Neither pools nor moves: vLLM's GPUs behind a gateway, or several routers, with faults."""
    cluster = draw(moving()) | {"migration": None}
    return cluster | {"faults": draw(st.none() | timelines(cluster["gpus"], resumes=True))}


@pytest.mark.slow
@settings(max_examples=examples(60, found=True), deadline=None)
@given(of_clients(streams()), whole())
def test_gateways_and_several_routers_before_vllm_give_the_bytes_of_the_oracle(
    workload: Workload, cluster: dict[str, Any]
) -> None:
    agree(workload, cluster)


@pytest.mark.slow
def test_two_that_are_lost_together_begin_anew_in_their_order() -> None:
    """With a GPU for outputs that comes up and goes down at once: the oracle sent the second first, and told of both
    twice, since who has read a prompt hears of it then."""
    workload = conversations([((0,), 1, 1, "named")] * 3, [0.0] * 3)
    engine = VLLM(
        max_num_batched_tokens=64,
        max_num_seqs=3,
        block_size=1,
        async_scheduling=False,
        watermark=0.0,
        scheduler_reserve_full_isl=False,
    )
    cluster = {"engine": engine, "policy": LeastOutstanding(), "second": LeastOutstanding(), "counts": [1, 1, 1]}
    cluster |= {"roles": [DECODE, PREFILL, BOTH], "kv": 240, "frontend": (0.0, 0.0), "overhead": Overhead()}
    cluster |= {"latency_s": 0.0, "rate": 1e5, "sharing": 0, "protocol": PULL, "horizon": "stop", "reports_ms": 0.0}
    happen = (Event(0.0, 0, "down"), Event(0.5, 0, "up"), Event(0.5, 0, "down"))
    faults = Timeline(detect_ms=0.0, on_loss="retry", happen=happen)
    agree_split(workload, cluster, Replication(count=1, spread=0, gossip_s=0.0), faults=faults)
