"""The local scheduler: when steps begin and end, queues, chunked prefills, blocks, refusals. Examples to check on
paper, and the bound on waiting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.engines.base import Engine
from prebleexp.engines.continuous import Continuous
from prebleexp.engines.released.engine import Released
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Outcome, State, Workload
from tests.support.by_hand.one_gpu import HOST, PLAIN, serve
from tests.support.by_hand.streams import own, stream
from tests.support.sampled import examples


def chunked(tokens: int = 512, **rest: Any) -> Continuous:
    return Continuous(prefill="chunked", chunk_tokens=tokens, **rest)


def test_a_prompt_of_1200_tokens_is_computed_in_chunks_of_512_512_and_176() -> None:
    """Arrives while the GPU is idle: three steps of 512, 512 and 176 ms, each with 0.6 ms of the host."""
    workload = stream([own(0, 10), own(1, 1200)], [0.0, 1.0], [1, 1])
    made, whole = serve(workload, chunked()), serve(workload, Continuous())
    assert made.finish_s[1] == pytest.approx(1.0 + 0.512 + 0.512 + 0.176 + 3 * HOST, abs=1e-12)
    assert whole.finish_s[1] == pytest.approx(1.0 + 1.2 + HOST, abs=1e-12)


def test_decoding_goes_on_while_a_prompt_is_computed() -> None:
    """A runs; B of 1,000 tokens comes. Whole: A waits for all of B's second. Chunked by 101: a token of A every 101 ms
    (100 of B and 1 of A), so that A, with 8 tokens left at most until its report, is done long before B."""
    workload = stream([own(0, 10), own(1, 1000)], [0.0, 0.005], [6, 1])
    made, whole = serve(workload, chunked(101)), serve(workload, Continuous())
    # The prefill of A takes 10.6 ms. Five mixed steps give A its other tokens.
    first = made.ttft_s[0]
    assert first == pytest.approx(0.010 + HOST)
    steps = (made.finish_s[0] - first) / (0.101 + HOST)
    assert steps == pytest.approx(5)
    assert made.finish_s[0] < 0.6 < 1.0 < whole.finish_s[1]
    assert made.finish_s[1] > made.finish_s[0]
    # while A runs B gets 100 tokens a step, then 101; all tokens are computed once
    assert made.gpu_prefilled_tokens.tolist() == [1010]


def test_an_unlimited_budget_is_a_whole_prefill() -> None:
    workload = stream([own(0, 777)], [0.0], [1])
    assert serve(workload, chunked(2**24)).ttft_s == serve(workload, Continuous()).ttft_s


def order_of_first_tokens(workload: Workload, engine: Engine) -> list[int]:
    return np.argsort(serve(workload, engine).ttft_s + workload.arrival_s, kind="stable").tolist()


def crowd(shares: list[int]) -> Workload:
    """Request 0 caches 1,000 tokens in ten segments and keeps the GPU busy; the others arrive meanwhile, each with
    shares[i] of its ten tenths cached, and have one step of the GPU each (a budget of 1,000 tokens)."""
    path = [(i, 100) for i in range(10)]
    prompts = [path]
    for number, share in enumerate(shares):
        prompts.append([*path[:share], (100 + number, 1000 - 100 * share)])
    return stream(prompts, [0.0] + [0.001 * (1 + i) for i in range(len(shares))], [1] * len(prompts))


def test_first_come_first_served_is_in_order_of_arrival_whatever_is_cached() -> None:
    assert order_of_first_tokens(crowd([0, 9, 5, 9]), chunked(500, queue="fcfs")) == [0, 1, 2, 3, 4]
    assert order_of_first_tokens(crowd([0, 9, 5, 9]), chunked(100, queue="lpm"))[1:3] == [2, 4]


def test_priority_groups_take_as_many_of_a_group_as_its_number() -> None:
    """Three of group 2, three of group 1, two of group 0. A round takes 2 of group 2, 1 of group 1, 1 of group 0. The
    request that keeps the GPU busy was the first round's one of group 0, so 2 2 1, then 2 1 0, then 1 0; a step has
    room for less than one request, so they come one after the other."""
    shares = [0, 1, 2, 0, 1, 2, 1, 2]
    order = order_of_first_tokens(crowd(shares), chunked(100, queue="priority_groups"))
    assert [shares[request - 1] for request in order[1:]] == [2, 2, 1, 2, 1, 0, 1, 0]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=60))
def test_nobody_starves_in_priority_groups(shares: list[int]) -> None:
    """The bound of `Continuous`: with k others before it in group i, k // max(1, i) + 2 rounds of at most 56
    admissions."""
    order = order_of_first_tokens(crowd(shares), chunked(100, queue="priority_groups"))
    for request, share in enumerate(shares, start=1):
        before = sum(1 for other in shares[: request - 1] if other == share)
        assert order.index(request) <= (before // max(1, share) + 2) * 56


def test_with_longest_prefix_match_a_request_waits_as_long_as_others_with_more_cached_come() -> None:
    """The counter-example: one request with nothing cached, then a hundred with nine tenths. Under lpm it is last."""
    workload = crowd([0] + [9] * 100)
    assert order_of_first_tokens(workload, chunked(100, queue="lpm"))[-1] == 1
    fair = order_of_first_tokens(workload, chunked(100, queue="priority_groups"))
    assert fair.index(1) <= 2 * 56


def test_blocks_count_cached_prefixes_in_whole_blocks() -> None:
    """100 tokens are shared: 96 of them in blocks of 16, so 4 more are computed."""
    prompts = [[(0, 100), (1, 50)], [(0, 100), (2, 50)]]
    workload = stream(prompts, [0.0, 5.0], [1, 1])
    assert serve(workload, Continuous()).prefilled_tokens.tolist() == [150, 50]
    assert serve(workload, Continuous(block_tokens=16)).prefilled_tokens.tolist() == [150, 54]


def test_a_prompt_that_is_all_cached_computes_its_last_block() -> None:
    workload = stream([[(0, 160)], [(0, 160)]], [0.0, 5.0], [2, 2])
    assert serve(workload, Continuous()).prefilled_tokens.tolist() == [160, 1]
    assert serve(workload, Continuous(block_tokens=16)).prefilled_tokens.tolist() == [160, 16]


def test_running_requests_hold_what_their_last_block_may_leave_unused() -> None:
    """Ten requests of 10 + 20 tokens decode together: 300 tokens at most, and 15 more each in blocks of 16."""
    workload = stream([own(i, 10) for i in range(10)], [0.0] * 10, [20] * 10)
    plain, blocks = (serve(workload, Continuous(block_tokens=size)).gpu_peak_kv_tokens[0] for size in (1, 16))
    assert blocks - plain == 150


# ---------------------------------------------------------------- when things happen
def test_an_idle_gpu_begins_when_a_request_comes() -> None:
    """Not at the next tick of a host that looks every 0.6 ms, as the release's does."""
    arrivals = [0.0, 0.1234567, 5.0]
    made = serve(stream([own(i, 10) for i in range(3)], arrivals, [1] * 3), Continuous())
    assert made.ttft_s == pytest.approx([0.010 + HOST] * 3, abs=1e-12)
    assert made.finish_s == pytest.approx(np.array(arrivals) + 0.010 + HOST, abs=1e-12)


def test_who_comes_during_a_step_waits_for_its_end() -> None:
    """The first prefill lasts from 0 to 10.6 ms; the two that come meanwhile are computed together after it."""
    made = serve(stream([own(0, 10), own(1, 20), own(2, 30)], [0.0, 0.001, 0.0105], [1] * 3), Continuous())
    first, both = 0.010 + HOST, 0.050 + HOST
    assert made.finish_s == pytest.approx([first, first + both, first + both], abs=1e-12)


def test_who_comes_at_the_end_of_a_step_is_part_of_the_next() -> None:
    """At one instant what ends comes before what arrives, and that before what begins."""
    whole = serve(stream([own(0, 10)], [0.0], [1]), Continuous())
    end = float(whole.finish_s[0])
    made = serve(stream([own(0, 10), own(1, 20), own(2, 30)], [0.0, end, end], [2, 1, 1]), Continuous())
    assert made.finish_s[1] == made.finish_s[2] == pytest.approx(end + 0.050 + HOST, abs=1e-12)
    assert made.finish_s[0] == pytest.approx(end + 0.050 + HOST + 0.001 + HOST, abs=1e-12)


def test_decode_steps_run_in_bursts_between_two_looks_at_the_queue() -> None:
    """One request, 10 output tokens, a decode step of 1 ms: the first by the prefill, nine by decode steps. In bursts
    of 4 the host takes its 0.6 ms after 4, 8 and 9 of them. B comes during the first burst and waits for the look."""
    workload = stream([own(0, 10), own(1, 10)], [0.0, 0.0116], [10, 1])
    first = 0.010 + HOST
    looks = first + 0.004 + HOST
    four = serve(workload, Continuous(decode_steps=4))
    assert four.finish_s[1] == pytest.approx(looks + 0.010 + HOST, abs=1e-12)
    assert four.finish_s[0] == pytest.approx(looks + (0.010 + HOST) + (0.004 + HOST) + (0.001 + HOST), abs=1e-12)
    one = serve(workload, Continuous(decode_steps=1))
    assert one.finish_s[1] == pytest.approx(first + (0.001 + HOST) + (0.010 + HOST), abs=1e-12)
    assert one.finish_s[0] == pytest.approx(first + 9 * (0.001 + HOST) + (0.010 + HOST), abs=1e-12)


def test_a_burst_ends_with_the_first_that_finishes() -> None:
    """Both have their first token at 20.6 ms. A wants 3 tokens, B 20: A is done after 2 decode steps, of 2 ms each."""
    made = serve(stream([own(0, 10), own(1, 10)], [0.0, 0.0], [3, 20]), Continuous(decode_steps=8))
    assert made.ttft_s == pytest.approx([0.020 + HOST] * 2, abs=1e-12)
    assert made.finish_s[0] == pytest.approx(0.020 + HOST + 2 * 0.002 + HOST, abs=1e-12)


def test_what_is_cached_by_a_step_is_found_by_the_next_and_not_before() -> None:
    """Two equal prompts in one prefill are computed twice; one that comes while they are computed finds them."""
    workload = stream([own(0, 100)] * 3, [0.0, 0.0, 0.05], [1] * 3)
    made = serve(workload, Continuous())
    assert made.prefilled_tokens.tolist() == [100, 100, 1]


def test_at_the_horizon_what_has_not_ended_has_not_happened() -> None:
    """A's prefill ends at 10.6 ms; at 10 ms it has no token, at 11 ms one and the burst's others are not there."""
    workload = stream([own(0, 10)], [0.0], [5])

    def until(duration_s: float) -> Outcome:
        return serve(workload, Continuous(), horizon="stop", duration_s=duration_s)

    before, within, after = until(0.010), until(0.0140), until(0.0153)
    assert before.output_seen.tolist() == [0]
    assert np.isnan(before.ttft_s).all()
    assert before.gpu_requests.tolist() == [1]
    assert within.output_seen.tolist() == [1]
    assert (within.state == State.RUNNING).all()
    assert within.latency_s == within.ttft_s
    assert (after.state == State.FINISHED).all()
    assert [one.end_s for one in (before, within)] == [0.010, 0.0140]
    assert after.end_s == after.finish_s[0]


# ---------------------------------------------------------------- what is never served
EVERY = [
    Continuous(),
    Continuous(queue="fcfs"),
    Continuous(queue="priority_groups"),
    chunked(64),
    chunked(64, queue="fcfs"),
    chunked(64, queue="priority_groups", block_tokens=16),
]


@pytest.mark.parametrize("engine", EVERY)
def test_a_request_that_never_fits_is_refused_and_those_behind_it_are_served(engine: Continuous) -> None:
    workload = stream([own(0, 900), own(1, 10), own(2, 400), own(3, 480)], [0.0, 0.1, 0.1, 0.2], [5, 5, 5, 30])
    made = serve(workload, engine, replace(PLAIN, kv_tokens=500))
    assert made.state.tolist() == [State.REFUSED, State.FINISHED, State.FINISHED, State.REFUSED]
    assert made.gpu.tolist() == [-1, 0, 0, -1]
    assert made.gpu_requests.tolist() == [2]
    assert np.isnan(made.latency_s[[0, 3]]).all()


@pytest.mark.parametrize(("block", "fits"), [(1, 88), (16, 58)])
def test_the_largest_request_that_fits_is_served_and_one_token_more_is_refused(block: int, fits: int) -> None:
    """prompt + 10 tokens it may generate + what its last block may leave unused + a block must be less than 100."""
    for prefill in ("whole", "chunked"):
        engine = Continuous(prefill=prefill, block_tokens=block)
        workload = stream([own(0, fits), own(1, fits + 1)], [0.0, 0.0], [10, 10])
        made = serve(workload, engine, replace(PLAIN, kv_tokens=100))
        assert made.state.tolist() == [State.FINISHED, State.REFUSED]


def test_what_it_may_generate_counts_not_what_it_does() -> None:
    workload = stream([own(0, 50)], [0.0], [1], most=[50])
    assert serve(workload, Continuous(), replace(PLAIN, kv_tokens=101)).state.tolist() == [State.REFUSED]
    assert serve(workload, Continuous(), replace(PLAIN, kv_tokens=102)).state.tolist() == [State.FINISHED]


def test_prompts_longer_than_the_context_are_refused() -> None:
    """Whole: also one that a prefill cannot take, which is of less than the context length, or of a sixth of the KV."""
    longest = replace(PLAIN, context_length=100)
    workload = stream([own(0, 99), own(1, 100), own(2, 101)], [0.0] * 3, [1] * 3)
    served, refused = State.FINISHED, State.REFUSED
    assert serve(workload, chunked(64), longest).state.tolist() == [served, served, refused]
    assert serve(workload, Continuous(), longest).state.tolist() == [served, served, refused]  # 16,666 tokens: a sixth
    little = replace(longest, kv_tokens=300)
    assert serve(workload, chunked(64), little).state.tolist() == [served, served, refused]
    assert serve(workload, Continuous(), little).state.tolist() == [served, refused, refused]


def test_in_the_release_a_request_that_never_fits_stays_queued() -> None:
    """Its queue is sorted by what is cached, and passes over what does not fit."""
    workload = stream([own(0, 900), own(1, 10)], [0.0, 0.1], [5, 5])
    made = serve(workload, Released(), replace(PLAIN, kv_tokens=500), horizon="stop")
    assert made.state.tolist() == [State.QUEUED, State.FINISHED]


# ---------------------------------------------------------------- settings
@pytest.mark.parametrize(
    ("name", "value", "valid"),
    [
        ("queue", "lifo", "one of lpm, fcfs, priority_groups"),
        ("prefill", "half", "one of whole, chunked"),
        ("groups", 0, "an integer from 1 to 1000"),
        ("chunk_tokens", 0, "an integer from 1 to 16777216"),
        ("chunk_tokens", 1.5, "an integer from 1 to 16777216"),
        ("block_tokens", True, "an integer from 1 to 65536"),
        ("decode_steps", 0, "an integer from 1 to 1000"),
        ("decode_steps", 1001, "an integer from 1 to 1000"),
        ("step_cost_s", 0, "a number of seconds, at least 1e-7"),
        ("step_cost_s", float("nan"), "a number of seconds, at least 1e-7"),
        ("step_cost_s", float("inf"), "a number of seconds, at least 1e-7"),
        ("step_cost_s", True, "a number of seconds, at least 1e-7"),
    ],
)
def test_a_value_that_is_not_valid_gets_one_line(name: str, value: Any, valid: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Continuous(**{name: value})
    assert str(caught.value) == f"engine.{name}={value} is not valid; it must be {valid}"


@pytest.mark.parametrize("name", ["step_cost_s", "output_step_cost_s"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), True, "1", None])
def test_so_does_one_of_the_release(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        Released(**{name: value})
    assert str(caught.value) == f"engine.{name}={value} is not valid; it must be a number of seconds, at least 1e-7"


def test_gpus_of_the_release_do_not_report_now_and_then() -> None:
    with pytest.raises(InvalidInput, match=r"^reports_ms=10 is not valid with engine=released; it must be 0$"):
        serve(stream([own(0, 10)], [0.0], [1]), Released(), reports_ms=10.0)
