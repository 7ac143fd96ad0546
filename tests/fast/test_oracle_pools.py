"""Pools against `tests.oracle_pools`: the same bytes on random streams, clusters, policies and links."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.engines.sglang.engine import SGLang
from prebleexp.engines.vllm.engine import VLLM
from prebleexp.faults.base import Faults
from prebleexp.gateway.base import Gateway
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import HOLD, REFUSE, Policy
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim.links import FAIR, FIFO, INFINITE
from prebleexp.sim.pools import (
    BOTH,
    CHUNKS,
    DECODE,
    END,
    LAYERS,
    NEVER,
    PREDICTED,
    PREFILL,
    PULL,
    PUSH_AT_END,
    RESERVE_FIRST,
    UNCACHED,
    Disaggregation,
)
from prebleexp.sim.records import View
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Longs, Outcome, Setup, Workload
from tests import oracle_gateway_pools, oracle_pools, oracle_reserving, oracle_split_faults
from tests.fast.test_laws import workloads
from tests.fast.test_oracle import NOW_AND_THEN, PATHS, conversations
from tests.gateways import GATEWAYS, of_clients
from tests.linear_cost import LinearCost
from tests.sampled import examples
from tests.sessions import impatient, linked
from tests.timelines import timelines

HEARD: list[Longs] = []
"""what policies of the last runs heard, as numbers that any difference changes"""


@dataclass(frozen=True)
class Looker(Policy):
    """Takes the GPU whose published numbers are least, and sums up all that it sees and hears."""

    outstanding: int = 0
    refuses: int = 0

    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> Longs:
        HEARD.append(np.zeros(3, np.int64))
        return HEARD[-1]

    def route(self, mine: Longs, view: View, request: int, now: float) -> int:
        if self.refuses > 0 and request % self.refuses == self.refuses - 1:
            return REFUSE
        best, least, room = HOLD, 0, False
        for g in view.candidates:
            seen = view.gpus[g]
            score = 3 * seen.queued + 5 * seen.running + 2 * seen.waiting_tokens + seen.generated
            score += (seen.kv_free + 2 * seen.evictable) % 17 + seen.window_hit_tokens % 11
            score += 40 * view.sent[g].outstanding + view.sent[g].tokens % 7
            mine[0] = (mine[0] * 31 + score + seen.window_prompt_tokens) % 1000003
            room = room or view.sent[g].outstanding < self.outstanding
            if best == HOLD or score < least:
                best, least = g, score
        return best if room or self.outstanding == 0 else HOLD

    def first_token(self, mine: Longs, view: View, request: int, now: float) -> None:
        mine[1] = (mine[1] * 31 + request + int(now * 1e6)) % 1000003

    def finished(self, mine: Longs, view: View, request: int, now: float) -> None:
        mine[2] = (mine[2] * 31 + request + int(now * 1e6) + view.requests[request].output_seen) % 1000003


VLLMS = st.builds(
    VLLM,
    max_num_batched_tokens=st.sampled_from([64, 200]),
    max_num_seqs=st.sampled_from([3, 64]),
    block_size=st.sampled_from([1, 4, 16]),
    enable_prefix_caching=st.sampled_from([True, True, False]),
    async_scheduling=st.booleans(),
    scheduler_reserve_full_isl=st.booleans(),
    watermark=st.sampled_from([0.0, 0.1]),
)
POLICIES = st.one_of(
    st.sampled_from([LeastOutstanding(), RoundRobin()]),
    st.builds(Looker, outstanding=st.sampled_from([0, 0, 1, 3]), refuses=st.sampled_from([0, 0, 5])),
)
CLUSTERS = st.fixed_dictionaries(
    {
        "engine": VLLMS,
        "policy": POLICIES,
        "second": POLICIES,
        "counts": st.lists(st.integers(1, 2), min_size=3, max_size=3),
        "roles": st.permutations([PREFILL, DECODE, BOTH]) | st.permutations([PREFILL, DECODE, DECODE]),
        "kv": st.sampled_from([240, 300, 600, 1200, 4000]),
        "frontend": st.sampled_from([(0.0, 0.0), (0.003, 0.0007)]),
        "sharing": st.sampled_from([INFINITE, FIFO, FAIR]),
        "latency_s": st.sampled_from([0.0, 0.003, 0.1]),
        "protocol": st.sampled_from([PULL, PUSH_AT_END]),
        "rate": st.sampled_from([1e5, 1e6, 1e9]),
        "horizon": st.sampled_from(["stop", "drain"]),
        "overhead": st.sampled_from([Overhead(), Overhead("recorded"), Overhead("serial", decision_s=0.002)]),
        "reports_ms": st.sampled_from([0.0, 50.0]),
    }
)
COST = LinearCost(step_s=0.0013, token_s=0.0001, context_token_s=1e-6, kv_tokens=1, gpu_memory_gib=48)


DECIDED = st.tuples(CLUSTERS, st.sampled_from([NEVER, UNCACHED, PREDICTED]), st.sampled_from([1, 10, 50])).map(
    lambda drawn: drawn[0] | {"roles": (PREFILL, DECODE, DECODE), "decider": drawn[1], "least_tokens": drawn[2]}
)


def streams() -> st.SearchStrategy[Workload]:
    request = st.tuples(PATHS, st.integers(1, 70), st.sampled_from([1, 30, 60]), st.sampled_from(["named", "turn"]))
    drawn = st.lists(st.tuples(request, NOW_AND_THEN), min_size=1, max_size=40)
    turns = drawn.map(lambda rows: conversations([row[0] for row in rows], [row[1] / 10 for row in rows]))
    return st.one_of(workloads(), turns, linked(workloads()))


def streams_with_patience() -> st.SearchStrategy[Workload]:
    return st.one_of(streams(), impatient(streams()))


def agree(
    workload: Workload, cluster: dict[str, Any], faults: Faults | None = None, gateway: Gateway | None = None
) -> Outcome:
    if cluster["protocol"] == RESERVE_FIRST:
        workload = replace(workload, patience_s=np.full(len(workload), np.nan))
    hardware = replace(COST, kv_tokens=cluster["kv"], frontend_s=cluster["frontend"])
    names = ("sharing", "latency_s", "rate", "protocol", "send", "layers", "decider", "least_tokens")
    link = {name: cluster[name] for name in names if name in cluster}
    given = {name: cluster[name] for name in ("engine", "policy", "horizon", "overhead", "reports_ms")}
    given |= {"gpus": sum(cluster["counts"]), "hardware": hardware, "duration_s": 2.5, "seed": 0}
    given["kinds"] = [(count, hardware) for count in cluster["counts"]]
    given["pools"] = Disaggregation(tuple(cluster["roles"]), cluster["second"], 1000.0, **link)
    if faults is not None:
        return same(workload, given | {"faults": faults}, oracle_split_faults.simulate)
    if gateway is not None:
        return same(workload, given | {"gateway": gateway}, oracle_gateway_pools.simulate)
    reserving = cluster["protocol"] == RESERVE_FIRST
    return same(workload, given, oracle_reserving.simulate if reserving else oracle_pools.simulate)


def same(workload: Workload, given: dict[str, Any], oracle: Callable[..., Outcome]) -> Outcome:
    """What becomes of it, which the oracle says too, and whatever policies hear."""
    HEARD.clear()
    made = simulate(workload, lengths=Max(), **given)
    heard = list(HEARD)
    HEARD.clear()
    expected = oracle(workload, **given)
    for one in fields(Outcome):
        ours, theirs = getattr(made, one.name), getattr(expected, one.name)
        np.testing.assert_array_equal(ours, theirs, err_msg=one.name, strict=True)
    for ours, theirs in zip(heard, HEARD[-len(heard) :] if heard else [], strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg="what a policy heard")
    return made


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(streams_with_patience(), CLUSTERS)
def test_pools_give_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


GATED = st.tuples(CLUSTERS.map(lambda drawn: drawn | {"protocol": PULL}), GATEWAYS)


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(of_clients(streams_with_patience()), GATED)
def test_gateways_before_pools_give_the_bytes_of_the_oracle(workload: Workload, of: tuple[Any, Gateway]) -> None:
    agree(workload, of[0], gateway=of[1])


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(of_clients(streams_with_patience()), GATED)
def test_gateways_before_pools_give_the_bytes_of_the_oracle_on_many(
    workload: Workload, of: tuple[Any, Gateway]
) -> None:
    agree(workload, of[0], gateway=of[1])


@st.composite
def faulty(draw: st.DrawFn) -> tuple[dict[str, Any], Faults]:
    cluster = draw(st.one_of(CLUSTERS, CLUSTERS, DECIDED))
    return cluster, replace(draw(timelines(sum(cluster["counts"]))), drain="finish")


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(streams_with_patience(), faulty())
def test_pools_that_lose_gpus_give_the_bytes_of_the_oracle(workload: Workload, of: tuple[Any, Faults]) -> None:
    agree(workload, *of)


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(streams_with_patience(), faulty())
def test_pools_that_lose_gpus_give_the_bytes_of_the_oracle_on_many(workload: Workload, of: tuple[Any, Faults]) -> None:
    agree(workload, *of)


SGLANGS = st.builds(
    SGLang,
    chunked_prefill_size=st.sampled_from([16, 64, 200]),
    max_running_requests=st.sampled_from([3, 64]),
    schedule_policy=st.sampled_from(["fcfs", "lpm"]),
    disable_overlap_schedule=st.booleans(),
    skip_finishing_decode=st.booleans(),
    num_reserved_decode_tokens=st.sampled_from([1, 20, 100]),
)
RESERVING = st.tuples(CLUSTERS, SGLANGS, st.sampled_from([END, LAYERS, CHUNKS]), st.sampled_from([1, 3, 4])).map(
    lambda drawn: drawn[0] | {"engine": drawn[1], "protocol": RESERVE_FIRST, "send": drawn[2], "layers": drawn[3]}
)


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(streams_with_patience(), DECIDED)
def test_deciders_give_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(streams_with_patience(), RESERVING)
def test_reserving_first_gives_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(streams_with_patience(), RESERVING)
def test_reserving_first_gives_the_bytes_of_the_oracle_on_many(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(streams_with_patience(), CLUSTERS)
def test_pools_give_the_bytes_of_the_oracle_on_many(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)
