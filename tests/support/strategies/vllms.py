"""Random clusters of `engine=vllm`, and streams for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from prebleexp.engines.vllm.engine import VLLM
from prebleexp.overhead.model import Overhead
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim.types import Workload
from prebleexp.workloads.adapters import Zipf, given
from tests.support.costs.linear_cost import LinearCost
from tests.support.policies.looker import Looker
from tests.support.sessions import linked
from tests.support.strategies.conversations import NOW_AND_THEN, PATHS, conversations
from tests.support.strategies.paths import workloads
from tests.support.strategies.timelines import timelines

VLLMS = st.builds(
    VLLM,
    max_num_batched_tokens=st.sampled_from([64, 200]),
    max_num_seqs=st.sampled_from([3, 64]),
    block_size=st.sampled_from([1, 4, 16]),
    enable_prefix_caching=st.sampled_from([True, True, False]),
    async_scheduling=st.booleans(),
    scheduler_reserve_full_isl=st.booleans(),
    watermark=st.sampled_from([0.0, 0.1]),
    max_loras=st.sampled_from([1, 2, 1000]),
    kv_load_failure_policy=st.just("recompute"),  # the second simulator knows no other; recordings and examples do
)
POLICIES = st.one_of(
    st.sampled_from([LeastOutstanding(), RoundRobin()]),
    st.builds(Looker, outstanding=st.sampled_from([0, 0, 1, 3]), refuses=st.sampled_from([0, 0, 5])),
)
COST = LinearCost(step_s=0.0013, token_s=0.0001, context_token_s=1e-6, kv_tokens=1, gpu_memory_gib=48)


@st.composite
def kinds(draw: st.DrawFn, gpus: int, hardware: LinearCost) -> list[tuple[int, LinearCost]]:
    """One of all GPUs or, more often, a second one that has other memory, and is faster or slower."""
    if gpus == 1 or draw(st.sampled_from([True, False, False])):
        return [(gpus, hardware)]
    count, tokens = draw(st.integers(1, gpus - 1)), draw(st.sampled_from([200, 300, 600]))
    second = replace(hardware, kv_tokens=tokens, token_s=draw(st.sampled_from([0.00003, 0.0004])))
    return [(gpus - count, hardware), (count, second)]


def streams() -> st.SearchStrategy[Workload]:
    request = st.tuples(PATHS, st.integers(1, 70), st.sampled_from([1, 30, 60]), st.sampled_from(["named", "turn"]))
    drawn = st.lists(st.tuples(request, NOW_AND_THEN), min_size=1, max_size=40)
    turns = drawn.map(lambda rows: conversations([row[0] for row in rows], [row[1] / 10 for row in rows]))
    return st.one_of(workloads(), turns, linked(workloads()))


def with_adapters(drawn: st.SearchStrategy[Workload]) -> st.SearchStrategy[Workload]:
    """Every other one with three of them."""
    some = st.sampled_from([None, Zipf(count=3, exponent=0.0, base_share=0.3)])
    return st.tuples(drawn, some).map(lambda of: of[0] if of[1] is None else given(of[0], of[1], seed=0))


@st.composite
def faulty_vllm(draw: st.DrawFn, engines: st.SearchStrategy[Any] = VLLMS) -> dict[str, Any]:
    gpus = draw(st.integers(1, 3))
    hardware = replace(COST, kv_tokens=draw(st.sampled_from([300, 600, 4000])))
    fixed = {"gpus": gpus, "hardware": hardware, "duration_s": 4.0, "seed": 0, "overhead": Overhead()}
    drawn = {name: draw(one) for name, one in (("engine", engines), ("policy", POLICIES))}
    drawn |= {"horizon": draw(st.sampled_from(["stop", "drain"])), "reports_ms": draw(st.sampled_from([0.0, 50.0]))}
    return fixed | drawn | {"faults": draw(timelines(gpus, resumes=True))}
