"""`engine=vllm`: its settings and defaults, what it refuses, and examples to check on paper."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from prebleexp.engines.vllm.engine import VLLM
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Setup, State
from tests.support.by_hand.one_gpu import serve as on_one_gpu
from tests.support.by_hand.streams import own, stream
from tests.support.costs.linear_cost import LinearCost

MS = LinearCost(step_s=0.001, token_s=0.0, context_token_s=0.0, kv_tokens=16 * 1001, gpu_memory_gib=48)
"""Every step takes 1 ms; 1,000 blocks can be held."""


serve = partial(on_one_gpu, hardware=MS)


@pytest.mark.parametrize(
    ("gpu", "memory_gib", "limits"),
    [
        ("a6000", 48, (2048, 256)),
        ("a100", 80, (2048, 256)),
        ("h100", 80, (8192, 1024)),
        ("h200", 141, (8192, 1024)),
        ("b200", 180, (16384, 1024)),
        ("", 0, (2048, 256)),
    ],
)
def test_defaults_are_those_of_vllm_for_the_gpu(gpu: str, memory_gib: float, limits: tuple[int, int]) -> None:
    workload = stream([own(0, 10)], [0.0], [5])
    setup = Setup(1, 0, 1, 1000, 1000, workload, gpu, memory_gib)
    assert VLLM().limits(setup) == limits
    assert VLLM(max_num_seqs=4).limits(setup) == (limits[0], 4)
    assert VLLM(max_num_batched_tokens=64).limits(setup) == (64, 64)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_num_seqs": 0}, "engine.max_num_seqs=0 is not valid; it must be an integer from 1 to 65536"),
        ({"max_num_batched_tokens": 8}, "engine.max_num_batched_tokens=8 is not valid; it must be at least "),
        ({"max_num_batched_tokens": 32, "max_num_seqs": 64}, "engine.max_num_seqs, 64 here"),
        ({"block_size": 0}, "engine.block_size=0 is not valid; it must be an integer from 1 to 65536"),
        ({"watermark": 1.0}, "engine.watermark=1.0 is not valid; it must be a number from 0 to below 1"),
        ({"scheduling_policy": "lpm"}, "engine.scheduling_policy=lpm is not valid; it must be one of fcfs, priority"),
        ({"async_scheduling": 1}, "engine.async_scheduling=1 is not valid; it must be true or false"),
        ({"host_s": -1.0}, "engine.host_s=-1.0 is not valid; it must be a number of seconds, >= 0"),
        ({"long_prefill_token_threshold": -1}, "it must be an integer from 0 to 16777216"),
    ],
)
def test_a_value_that_is_not_valid_gets_one_line(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        VLLM(**settings)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_burst_on_a_cold_prefix_computes_it_once() -> None:
    """Twelve prompts of 1,900 shared tokens and 100 of their own: 118 blocks are found by all but the first."""
    prompts = [[(0, 1900), (1 + i, 100)] for i in range(12)]
    made = serve(stream(prompts, [0.0] * 12, [5] * 12), VLLM(max_num_batched_tokens=8192))
    assert made.prefilled_tokens.tolist() == [2000] + [112] * 11
    assert made.gpu_prefilled_tokens.sum() == 3232


def test_at_least_the_last_token_is_computed_again() -> None:
    """32 tokens are two blocks: the second is computed again; of 33 both are found."""
    for tokens, hits in ((32, 16), (33, 32)):
        made = serve(stream([own(0, tokens)] * 2, [0.0, 0.5], [1, 1]), VLLM())
        assert made.hit_tokens.tolist() == [0, hits]


def test_the_kv_of_an_answer_is_found_by_the_next_turn() -> None:
    """20 tokens and an answer of 30, of which 29 are computed: 49 tokens, three full blocks."""
    turns = stream([[(0, 20)], [(0, 20), (1, 30), (2, 10)]], [0.0, 0.5], [30, 5])
    assert serve(replace(turns, answer_segment=[1, -1]), VLLM()).hit_tokens.tolist() == [0, 48]
    assert serve(turns, VLLM()).hit_tokens.tolist() == [0, 16]


@pytest.mark.parametrize(("later", "first_ms"), [(False, 2.5), (True, 3.5)])
def test_an_arrival_waits_for_one_step_more_if_scheduling_is_asynchronous(later: bool, first_ms: float) -> None:
    """B arrives in the middle of one of A's steps, at 10.5 ms: synchronous, the next one is its; else the one after."""
    made = serve(stream([own(0, 10), own(1, 10)], [0.0, 0.0105], [100, 1]), VLLM(async_scheduling=later, host_s=0.0))
    assert made.ttft_s[1] * 1e3 == pytest.approx(first_ms - 1.0)


def test_the_hosts_time_is_in_every_step_unless_it_is_hidden() -> None:
    one = stream([own(0, 10)], [0.0], [10])
    assert serve(one, VLLM(async_scheduling=False, host_s=0.002)).latency_s[0] == pytest.approx(10 * 0.003)
    assert serve(one, VLLM(async_scheduling=True, host_s=0.002)).latency_s[0] == pytest.approx(10 * 0.001)


def test_priority_goes_first_and_newcomers_preempt_nobody() -> None:
    workload = replace(stream([own(i, 10) for i in range(3)], [0.0, 0.001, 0.002], [9, 9, 9]), priority=[1, 5, 0])
    made = serve(workload, VLLM(scheduling_policy="priority", max_num_seqs=1))
    assert np.argsort(made.finish_s).tolist() == [0, 2, 1]
    assert made.gpu_retracted.sum() == 0


def test_a_request_ends_at_the_contexts_length() -> None:
    """And one whose prompt fills it is refused, as is one that all blocks cannot hold."""
    short = replace(MS, context_length=100)
    made = serve(stream([own(0, 90), own(1, 100), own(2, 10)], [0.0] * 3, [50, 1, 5]), VLLM(), hardware=short)
    assert made.state.tolist() == [State.FINISHED, State.REFUSED, State.FINISHED]
    assert made.output_seen.tolist() == [10, 0, 5]
    little = replace(MS, kv_tokens=16 * 5)
    made = serve(stream([own(0, 60), own(1, 60)], [0.0] * 2, [4, 5]), VLLM(), hardware=little)
    assert made.state.tolist() == [State.FINISHED, State.REFUSED]


def test_without_chunks_a_prompt_waits_for_a_step_that_takes_it_whole() -> None:
    whole = VLLM(enable_chunked_prefill=False, max_num_batched_tokens=100, async_scheduling=False, host_s=0.0)
    made = serve(stream([own(0, 60), own(1, 60), own(2, 120)], [0.0] * 3, [1, 1, 1]), whole)
    assert (made.ttft_s * 1e3).tolist()[:2] == pytest.approx([1.0, 2.0])
    assert made.state[2] == State.REFUSED


def test_scarce_memory_costs_what_changes_and_not_what_waits() -> None:
    """Ten times as many requests as fit, and forty times: all finish, in order of arrival."""
    scarce = replace(MS, kv_tokens=20_000)
    for n in (200, 800):
        made = serve(stream([own(i, 500) for i in range(n)], [0.0] * n, [300] * n), VLLM(), hardware=scarce)
        assert (made.state == State.FINISHED).all()
        assert made.gpu_retracted.sum() > 0
        never = made.ttft_s
        assert (np.diff(never) >= 0).all(), "nobody starves"


def test_there_is_room_for_what_may_come_over_a_link() -> None:
    """All of a pool, which gives way to it, and the longest context's blocks, of which the last may be part full."""
    for prompt, blocks in ((1000, 64), (1001, 65), (1016, 65), (1017, 66)):  # with an answer of 24 tokens
        alone = Setup(1, 0, 1, 16_000, 32_768, stream([own(0, prompt)], [0.0], [24]))
        room, linked = VLLM().own_cache(alone), VLLM().own_cache(replace(alone, legs=True))
        assert room is not None
        assert linked is not None
        assert linked - room >= 16_000 // 16 + blocks
