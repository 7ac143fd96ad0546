"""Prompts and outputs on GPUs of their own: examples to check on paper, and what holds of every run."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.engines.continuous import Continuous
from prebleexp.engines.sglang.engine import SGLang
from prebleexp.engines.vllm.engine import VLLM
from prebleexp.errors import InvalidInput
from prebleexp.faults.base import Event
from prebleexp.faults.timeline import Timeline
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import HOLD, REFUSE, Policy
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim.links import FAIR, FIFO, INFINITE
from prebleexp.sim.pools import (
    ALWAYS,
    BOTH,
    DECODE,
    NEVER,
    PREDICTED,
    PREFILL,
    PULL,
    PUSH_AT_END,
    UNCACHED,
)
from prebleexp.sim.records import View
from prebleexp.sim.types import OF_REQUESTS, Outcome, Setup, State, Workload
from tests.support.by_hand.pools import KV_BYTES, MS, SYNCHRONOUS, Counted, serve, split
from tests.support.by_hand.streams import own, stream
from tests.support.hears_at_once import HearsAtOnce
from tests.support.outcomes import assert_same
from tests.support.sampled import examples
from tests.support.sessions import impatient, in_order, linked
from tests.support.strategies.paths import workloads
from tests.support.strategies.timelines import timelines


# ---------------------------------------------------------------- by hand
def test_a_request_is_computed_read_and_goes_on() -> None:
    """1,000 tokens: 100 ms; 63 blocks of 16 over the link: 100.8 ms; then a token of 0.1 ms, and three more."""
    made = serve(stream([own(0, 1000)], [0.0], [4]), split())
    assert made.gpu.tolist() == [0]
    assert made.decode_gpu.tolist() == [1]
    assert made.prefill_end_s[0] == 0.1
    assert made.ttft_s[0] == (0.1 + 63 * 16 * KV_BYTES / 1e7) + 0.0001
    assert made.latency_s[0] == pytest.approx(made.ttft_s[0] + 3 * 0.0001)
    assert made.output_seen.tolist() == [4]
    assert made.transferred_tokens.tolist() == [63 * 16]
    assert made.prefilled_tokens.tolist() == [1000]
    assert made.gpu_prefilled_tokens.tolist() == [1000, 0]
    assert made.gpu_forwarded_tokens.tolist() == [1000, 4]
    assert made.gpu_requests.tolist() == [1, 1]


def test_a_gpu_that_has_nothing_to_compute_looks_each_millisecond() -> None:
    """The KV is there at 200.8 ms; the second GPU, with nothing to do since 100 ms, looks at 201."""
    engine = VLLM(async_scheduling=False, host_s=0.0)
    made = serve(stream([own(0, 1000)], [0.0], [1]), split(), engine=engine)
    assert made.ttft_s * 1e3 == pytest.approx([201.1])


@pytest.mark.parametrize(
    ("sharing", "ms"), [(INFINITE, [300.8, 300.8]), (FIFO, [300.8, 401.6]), (FAIR, [401.6, 401.6])]
)
def test_two_prompts_of_one_step_share_the_link(sharing: int, ms: list[float]) -> None:
    """Both are computed at 200 ms, and take 100.8 ms on a link that they have alone. Unshared both go on in one step of
    two tokens; so they do where the link is shared evenly."""
    made = serve(stream([own(0, 1000), own(1, 1000)], [0.0] * 2, [1, 1]), split(sharing=sharing))
    together = ms[0] == ms[1]
    assert made.ttft_s * 1e3 == pytest.approx([one + (0.2 if together else 0.1) for one in ms])


def test_what_the_second_gpu_has_already_is_not_sent() -> None:
    """A repeat of 1,000 tokens: 62 blocks are there from the first time, the last, of 8 tokens, never was cached. Of 32
    tokens one block is found, and the other is sent, since at least a token is computed again."""
    for tokens, sent in ((1000, 16), (32, 16), (33, 16)):
        made = serve(stream([own(0, tokens)] * 2, [0.0, 1.0], [1, 1]), split())
        assert made.transferred_tokens.tolist() == [-(-tokens // 16) * 16, sent]
        assert made.hit_tokens.tolist() == [0, (tokens - 1) // 16 * 16]


def test_the_next_turn_misses_the_answer_where_prompts_are_computed() -> None:
    """The first GPU has the prompt's 62 blocks, not the answer, of which it computes 40 tokens again; the second has
    both: 1,040 tokens less the last, 64 blocks."""
    turns = stream([[(0, 1000)], [(0, 1000), (1, 40), (2, 60)]], [0.0, 1.0], [40, 1])
    made = serve(replace(turns, answer_segment=[1, -1]), split())
    assert made.hit_tokens.tolist() == [0, 62 * 16]
    assert made.transferred_tokens.tolist() == [63 * 16, (69 - 64) * 16]


def test_blocks_are_held_until_they_are_read_and_a_prompt_waits_for_them() -> None:
    """65 blocks, prompts of 63: the second one's computation begins when the first has been read, at 200.8 ms."""
    little = replace(MS, kv_tokens=16 * 66)
    made = serve(stream([own(0, 1000), own(1, 1000)], [0.0] * 2, [1, 1]), split(), hardware=little)
    assert made.prefill_end_s.tolist() == [0.1, pytest.approx(0.2008 + 0.1)]


def test_the_second_gpu_takes_no_more_than_it_can_hold() -> None:
    """Prompts of 100 ms a time on three GPUs end at once; the fourth, with 65 blocks, takes them one after the other:
    each is read in 100.8 ms and makes 3 tokens in 0.3 ms."""
    prompts = stream([own(i, 1000) for i in range(3)], [0.0] * 3, [3] * 3)
    made = serve(prompts, split(), (3, 1), hardware=replace(MS, kv_tokens=16 * 66))
    assert made.prefill_end_s.tolist() == [0.1] * 3
    assert np.sort(made.latency_s) * 1e3 == pytest.approx([100 + k * 101.1 for k in (1, 2, 3)])


def test_gpus_of_both_kinds_serve_to_the_end() -> None:
    """Of three GPUs the second computes and goes on: there is no transfer, and it is told of once."""
    made = serve(stream([own(0, 1000), own(1, 1000)], [0.0] * 2, [4, 4]), split((PREFILL, BOTH, DECODE)), (1, 1, 1))
    assert made.gpu.tolist() == [0, 1]
    assert made.decode_gpu.tolist() == [2, 1]
    assert made.transferred_tokens.tolist() == [1008, 0]
    assert made.prefill_end_s[1] == made.ttft_s[1] == 0.1
    assert made.output_seen.tolist() == [4, 4]
    assert made.gpu_requests.tolist() == [1, 1, 1]


def test_a_run_that_stops_says_where_requests_are() -> None:
    """At 150 ms: one in a transfer, one held since the second GPU has no room for it, one computed, one waiting."""
    prompts = stream([own(i, 1000) for i in range(4)], [0.0, 0.0, 0.06, 0.06], [5] * 4)
    hardware = replace(MS, kv_tokens=16 * 66)
    made = serve(prompts, split(), (2, 1), hardware=hardware, policy=RoundRobin(), duration_s=0.15, horizon="stop")
    assert made.state.tolist() == [State.RESERVED, State.HELD, State.QUEUED, State.QUEUED]
    assert made.gpu.tolist() == [0, 1, 0, 1]
    assert made.decode_gpu.tolist() == [2, 2, -1, -1]
    assert np.isfinite(made.prefill_end_s).tolist() == [True, True, False, False]
    assert np.isnan(made.ttft_s).all()


@pytest.mark.parametrize(
    ("patience_s", "state", "sent", "ms"),
    [
        (0.05, State.CANCELLED, 0, [200, 400.8]),  # in its prompt's step, which goes on until 100 ms
        (0.15, State.CANCELLED, 1008, [250, 450.8]),  # on the link
        (0.25, State.FINISHED, 1008, [300.8, 501.6]),  # it has had its token
    ],
)
def test_whoever_gives_up_leaves_its_blocks_to_others(
    patience_s: float, state: int, sent: int, ms: list[float]
) -> None:
    """Three prompts of 100 ms on GPUs that have room for one: the next one begins when the one before has been read, at
    200.8 ms, or is given up, there and then. Each is read in 100.8 ms, and has its token 0.1 ms later."""
    prompts = stream([own(i, 1000) for i in range(3)], [0.0] * 3, [1] * 3)
    prompts = replace(prompts, patience_s=np.array([patience_s, np.nan, np.nan]))
    engine = replace(SYNCHRONOUS, max_num_batched_tokens=1008, max_num_seqs=1)
    made = serve(prompts, split(), engine=engine, hardware=replace(MS, kv_tokens=16 * 66))
    assert made.state.tolist() == [state, State.FINISHED, State.FINISHED]
    assert made.transferred_tokens.tolist() == [sent, 1008, 1008]
    assert made.prefill_end_s[1:] * 1e3 == pytest.approx(ms)
    assert (made.latency_s - made.prefill_end_s)[1:] * 1e3 == pytest.approx([100.9] * 2)


def test_whoever_is_held_and_gives_up_is_let_go() -> None:
    """At 150 ms the second one's KV waits for room where outputs are made, whose blocks the first one has until
    200.9 ms; whoever held it may compute the third."""
    prompts = stream([own(i, 1000) for i in range(3)], [0.0] * 3, [1] * 3)
    prompts = replace(prompts, patience_s=np.array([np.nan, 0.15, np.nan]))
    given: dict[str, Any] = {"policy": RoundRobin(), "hardware": replace(MS, kv_tokens=16 * 66)}
    made = serve(prompts, split(), (2, 1), engine=replace(SYNCHRONOUS, max_num_seqs=1), **given)
    assert made.state.tolist() == [State.FINISHED, State.CANCELLED, State.FINISHED]
    assert made.decode_gpu.tolist() == [2, 2, 2]
    assert made.transferred_tokens.tolist() == [1008, 0, 1008]


@pytest.mark.parametrize(
    ("counts", "down", "detect_ms", "losses", "first_ms", "last_ms"),
    [
        ((2, 1), (0.05, 0), 0, 1, 250.9, 350.8),  # its prompt is being computed: 100 ms more at the other GPU, …
        ((2, 1), (0.15, 0), 0, 1, 350.9, 450.8),  # … so it is where its KV is on the link, …
        ((2, 1), (0.15, 0), 20, 1, 370.9, 470.8),  # … as soon as the router knows
        ((2, 1), (0.25, 0), 0, 0, 200.9, 300.8),  # nobody needs that GPU any more
        ((1, 2), (0.15, 1), 0, 1, 251.7, 351.6),  # its KV is on the link: of its prompt 8 tokens are computed again
        ((1, 2), (0.25, 1), 0, 1, 200.9, 451.6),  # its output is being made: the same, and all of it is made again
    ],
)
def test_a_gpu_is_lost_while_a_request_needs_it(
    counts: tuple[int, int], down: tuple[float, int], detect_ms: float, losses: int, first_ms: float, last_ms: float
) -> None:
    """1,000 tokens: computed at 100 ms, read at 200.8 ms, and 1,000 tokens of 0.1 ms each. Who computed the prompt has
    62 of its blocks in its cache, wherever the rest of it goes."""
    faults = Timeline(detect_ms, "retry", (Event(*down, "down"),))
    made = serve(stream([own(0, 1000)], [0.0], [1000]), split(), counts, faults=faults)
    assert made.state.tolist() == [State.FINISHED]
    assert made.losses.tolist() == [losses]
    assert made.ttft_s * 1e3 == pytest.approx([first_ms])
    assert made.latency_s * 1e3 == pytest.approx([last_ms])
    failed = serve(stream([own(0, 1000)], [0.0], [1000]), split(), counts, faults=replace(faults, on_loss="fail"))
    assert failed.state.tolist() == [State.LOST if losses else State.FINISHED]


def test_a_gpu_that_is_drained_is_not_empty_before_its_kv_was_read() -> None:
    """It is drained at 120 ms and back at 150, and has its cache then: 62 blocks are found by the second request."""
    happen = (Event(0.12, 0, "drain"), Event(0.15, 0, "up"))
    made = serve(stream([own(0, 1000)] * 2, [0.0, 0.5], [1, 1]), split(), faults=Timeline(happen=happen))
    assert made.ttft_s[0] * 1e3 == pytest.approx(200.9)
    assert made.hit_tokens.tolist() == [0, 62 * 16]
    later = Timeline(happen=(Event(0.12, 0, "drain"), Event(0.25, 0, "up")))
    assert serve(stream([own(0, 1000)] * 2, [0.0, 0.5], [1, 1]), split(), faults=later).hit_tokens.tolist() == [0, 0]


def test_whoever_lost_its_kv_waits_for_its_prompt_anew_and_gives_up() -> None:
    """The first prompt is computed at 50 ms, and its KV lost at 80 ms, with the GPU that reads it. The second prompt
    has 63 of 70 blocks from then on, until it is read, at 280.8 ms. At 200 ms the first gives up, in the queue."""
    prompts = stream([own(0, 500), own(1, 1000), own(2, 100)], [0.0, 0.06, 0.3], [1] * 3)
    prompts = replace(prompts, patience_s=np.array([0.2, np.nan, np.nan]))
    faults = Timeline(0, "retry", (Event(0.08, 1, "down"),))
    made = serve(prompts, split(), (1, 2), faults=faults, hardware=replace(MS, kv_tokens=16 * 71))
    assert made.state.tolist() == [State.CANCELLED, State.FINISHED, State.FINISHED]
    assert (made.due_s + made.ttft_s)[1:] == pytest.approx([0.2809, 0.3213])
    assert made.prefilled_tokens.tolist() == [500, 1000, 100]


@pytest.mark.parametrize("second", [LeastOutstanding(), RoundRobin()])
def test_frontend_and_decisions_are_counted_once_and_twice(second: Policy) -> None:
    """HTTP and tokenising once; two decisions of 10 ms each."""
    hardware = replace(MS, frontend_s=(0.01, 0.0001))
    serial = Overhead("serial", decision_s=0.01)
    made = serve(stream([own(0, 1000)], [0.0], [1]), split(decode_policy=second), hardware=hardware, overhead=serial)
    assert made.ttft_s[0] == pytest.approx(0.01 + (0.01 + 0.1) + 0.1 + 0.01 + 0.1008 + 0.0001)
    assert made.overhead_s[0] == 0.02


def test_md1_of_prompts_alone() -> None:
    """DistServe's: prompts of 100 ms, 5 a second, at random: they end after 150 ms in the mean."""
    rng, n = np.random.default_rng(3), 20_000
    prompts = stream([own(i, 1000) for i in range(n)], np.cumsum(rng.exponential(0.2, n)).tolist(), [1] * n)
    made = serve(prompts, split(rate=1e15), engine=replace(SYNCHRONOUS, max_num_seqs=1, enable_prefix_caching=False))
    blocks = made.prefill_end_s.reshape(20, -1).mean(axis=1)
    assert abs(blocks.mean() - 0.15) < 2.58 * blocks.std(ddof=1) / np.sqrt(20)


@pytest.mark.slow
def test_a_tandem_of_prompts_and_outputs_is_burkes() -> None:
    """Poisson arrivals, one request at a time on either side, exponential times of 20 ms: what leaves the first server
    is Poisson again, so that a request takes 1 / (50 - 30) s on each, in the mean."""
    rng, n = np.random.default_rng(5), 20_000
    tokens = np.ceil(rng.exponential(200, (2, n))).astype(int)
    requests = stream(
        [own(i, int(tokens[0, i])) for i in range(n)],
        np.cumsum(rng.exponential(1 / 30, n)).tolist(),
        tokens[1].tolist(),
    )
    engine = replace(SYNCHRONOUS, max_num_seqs=1, enable_prefix_caching=False)
    made = serve(requests, split(rate=1e15), engine=engine, hardware=replace(MS, kv_tokens=10**7), duration_s=1e9)
    assert (made.state == State.FINISHED).all()
    for spent_s in (made.prefill_end_s, made.latency_s - made.prefill_end_s):
        blocks = spent_s.reshape(20, -1).mean(axis=1)
        assert abs(blocks.mean() - 1 / 20) < 2.86 * blocks.std(ddof=1) / np.sqrt(20)


# ---------------------------------------------------------------- push_at_end, by hand
PUSH = {"protocol": PUSH_AT_END}


@pytest.mark.slow
def test_a_prompt_is_sent_when_it_is_computed_and_its_token_is_shown() -> None:
    """1,000 tokens: 100 ms, the first token; 63 blocks of 16 over the link: 100.8 ms; then three tokens of 0.1 ms."""
    made = serve(stream([own(0, 1000)], [0.0], [4]), split(**PUSH))
    assert made.decode_gpu.tolist() == [1]
    assert made.ttft_s.tolist() == made.prefill_end_s.tolist() == [0.1]
    assert made.latency_s[0] == pytest.approx(0.1 + 0.1008 + 3 * 0.0001)
    assert made.transferred_tokens.tolist() == [63 * 16]
    assert made.gpu_forwarded_tokens.tolist() == [1000, 3]


def test_one_token_needs_no_second_gpu() -> None:
    """It is shown when the prompt is computed; the KV goes at once, so that a second prompt of 63 blocks finds room."""
    made = serve(
        stream([own(0, 1000), own(1, 1000)], [0.0] * 2, [1, 1]), split(**PUSH), hardware=replace(MS, kv_tokens=16 * 66)
    )
    assert made.latency_s.tolist() == [0.1, 0.2]
    assert not made.transferred_tokens.any()


def test_room_for_all_of_the_output_is_taken_at_once_or_looked_for_a_second_later() -> None:
    """70 blocks hold one prompt of 63 with 3 more for 49 tokens. Three end at 100 ms: the first is sent, and done at
    100 + 100.8 + 4.8 ms; the others look again at 1.1 s, where one is sent, and at 2.1 s."""
    prompts = stream([own(i, 1000) for i in range(3)], [0.0] * 3, [49] * 3)
    made = serve(prompts, split(**PUSH), (3, 1), hardware=replace(MS, kv_tokens=16 * 71))
    assert made.ttft_s.tolist() == [0.1] * 3
    assert made.latency_s == pytest.approx([0.1 + 0.1008 + 0.0048 + second for second in (0, 1, 2)])
    assert made.gpu_retracted.sum() == 0


def test_kv_that_has_come_waits_for_the_watermark() -> None:
    """Two prompts are there at 50 + 51.2 ms, with 35 blocks each for 48 more tokens, of 70, of which 7 are to be free
    where something runs. So the second begins when the first is done, 4.8 ms later."""
    prompts = stream([own(i, 500) for i in range(2)], [0.0] * 2, [49] * 2)
    engine = replace(SYNCHRONOUS, watermark=0.1)
    made = serve(prompts, split(**PUSH), (2, 1), engine=engine, hardware=replace(MS, kv_tokens=16 * 71))
    assert made.latency_s == pytest.approx([0.1012 + 0.0048, 0.1012 + 2 * 0.0048])


def test_both_gpus_are_chosen_at_arrival() -> None:
    """Outputs alternate by arrival. A router of outputs that holds a request keeps it from its prompt's GPU, too: here
    the second, until the first has its tokens, at 100 + 100.8 + 0.1 ms; one that it refuses is computed nowhere."""
    NOTES.clear()
    prompts = stream([own(i, 1000) for i in range(3)], [0.0, 0.001, 0.002], [2] * 3)
    made = serve(prompts, split(decode_policy=RoundRobin(), **PUSH), (1, 2))
    assert made.decode_gpu.tolist() == [1, 2, 1]
    made = serve(prompts, split(decode_policy=Asked(), **PUSH), (2, 3), policy=RoundRobin())
    assert made.state.tolist() == [State.FINISHED, State.FINISHED, State.REFUSED]
    assert made.gpu_prefilled_tokens.tolist() == [1000, 1000, 0, 0, 0]
    assert (made.due_s + made.ttft_s)[:2] == pytest.approx([0.1, 0.2009 + 0.1])
    shown = [one for one in NOTES[-1] if one[0] == "first_token"]
    assert shown == [("first_token", i, pytest.approx(made.due_s[i] + made.ttft_s[i])) for i in (0, 1)]


@pytest.mark.parametrize(
    ("counts", "down", "detect_ms", "losses", "first_ms", "last_ms"),
    [
        ((2, 1), (0.05, 0), 0, 1, 150, 350.7),  # its prompt is being computed: 100 ms more at the other GPU, …
        ((2, 1), (0.15, 0), 0, 1, 100, 450.7),  # … so it is where its KV is on the link, after its first token, …
        ((2, 1), (0.15, 0), 20, 1, 100, 470.7),  # … as soon as the router knows
        ((2, 1), (0.25, 0), 0, 0, 100, 300.7),  # nobody needs that GPU any more
        ((1, 2), (0.05, 1), 0, 1, 100.8, 301.5),  # it is lost when its KV is to go: 8 tokens are computed again
        ((1, 2), (0.15, 1), 0, 1, 100, 351.5),  # its KV is on the link: the same
        ((1, 2), (0.25, 1), 0, 1, 100, 451.5),  # its output is being made: the same, and all of it is made again
    ],
)
def test_a_gpu_is_lost_of_two_that_were_chosen_at_arrival(
    counts: tuple[int, int], down: tuple[float, int], detect_ms: float, losses: int, first_ms: float, last_ms: float
) -> None:
    """1,000 tokens: computed at 100 ms, when the first token is shown, read at 200.8 ms, and 999 tokens of 0.1 ms."""
    faults = Timeline(detect_ms, "retry", (Event(*down, "down"),))
    made = serve(stream([own(0, 1000)], [0.0], [1000]), split(**PUSH), counts, faults=faults)
    assert made.state.tolist() == [State.FINISHED]
    assert made.losses.tolist() == [losses]
    assert made.ttft_s * 1e3 == pytest.approx([first_ms])
    assert made.latency_s * 1e3 == pytest.approx([last_ms])
    failed = serve(stream([own(0, 1000)], [0.0], [1000]), split(**PUSH), counts, faults=replace(faults, on_loss="fail"))
    assert failed.state.tolist() == [State.LOST if losses else State.FINISHED]


def test_room_is_looked_for_no_more_where_a_gpu_is_lost() -> None:
    """Of three prompts computed at 100 ms one is sent; the others look for room again at 1.1 s. Who computed the second
    goes down at 0.5 s: computed again by the first GPU at 600 ms, it finds room at once."""
    prompts = stream([own(i, 1000) for i in range(3)], [0.0] * 3, [49] * 3)
    given: dict[str, Any] = {"hardware": replace(MS, kv_tokens=16 * 71), "faults": Timeline(0, "retry", DOWN_AT_HALF)}
    made = serve(prompts, split(**PUSH), (3, 1), **given)
    assert made.losses.tolist() == [0, 1, 0]
    assert made.ttft_s.tolist() == [0.1] * 3
    assert made.latency_s == pytest.approx([one + 0.1008 + 0.0048 for one in (0.1, 0.6, 1.1)])


DOWN_AT_HALF = (Event(0.5, 1, "down"),)


@pytest.mark.parametrize(
    ("who", "patience_s", "state", "ms"),
    [
        (0, 0.05, State.CANCELLED, [np.nan, 200, 300]),  # in its prompt's step, which goes on
        (0, 0.15, State.FINISHED, [100, 200, 300]),  # it has had its token
        (1, 0.05, State.CANCELLED, [100, np.nan, 200]),  # it waits for the first one's prompt
    ],
)
def test_whoever_gives_up_leaves_both_gpus(who: int, patience_s: float, state: int, ms: list[float]) -> None:
    """One prompt at a time, of 100 ms."""
    prompts = stream([own(i, 1000) for i in range(3)], [0.0] * 3, [2] * 3)
    prompts = replace(prompts, patience_s=np.where(np.arange(3) == who, patience_s, np.nan))
    engine, last = replace(SYNCHRONOUS, max_num_batched_tokens=1008, max_num_seqs=1), []
    made = serve(prompts, split(**PUSH), engine=engine, on_event=lambda world: last.append(world.seen.sent.outstanding))
    assert made.state[who] == state
    assert made.gpu_requests.tolist() == [3, 3]
    assert last[-1].tolist() == [0, 0]
    assert made.ttft_s * 1e3 == pytest.approx(ms, nan_ok=True)


def test_whoever_is_held_by_the_second_router_and_gives_up_leaves_the_first_gpu() -> None:
    """Outputs are routed one at a time, and the third never."""
    prompts = stream([own(i, 1000) for i in range(3)], [0.0, 0.001, 0.002], [2] * 3)
    prompts = replace(prompts, patience_s=np.array([np.nan, 0.05, np.nan]))
    made = serve(prompts, split(decode_policy=Asked(), **PUSH), (2, 3), policy=RoundRobin())
    assert made.state.tolist() == [State.FINISHED, State.CANCELLED, State.REFUSED]
    assert made.gpu_prefilled_tokens.tolist() == [1000, 0, 0, 0, 0]
    assert made.decode_gpu[1] == -1


# ---------------------------------------------------------------- deciders, by hand
def test_a_prompt_that_stays_is_lost_with_its_gpu() -> None:
    """At 50 ms: 100 ms more at the other one, and 999 tokens of 0.1 ms."""
    for protocol in (PULL, PUSH_AT_END):
        faults = Timeline(0, "retry", (Event(0.05, 1, "down"),))
        pools = split(decider=NEVER, protocol=protocol)
        made = serve(stream([own(0, 1000)], [0.0], [1000]), pools, (1, 2), faults=faults)
        assert made.decode_gpu.tolist() == [2]
        assert made.losses.tolist() == [1]
        assert [made.ttft_s[0], made.latency_s[0]] == pytest.approx([0.15, 0.2499])


def test_whoever_decides_never_computes_where_outputs_are_made() -> None:
    """100 ms for the prompt, and three more tokens: nothing moves, and the prompts' GPU has nobody."""
    for protocol in (PULL, PUSH_AT_END):
        made = serve(stream([own(0, 1000)], [0.0], [4]), split(decider=NEVER, protocol=protocol))
        assert made.gpu.tolist() == made.decode_gpu.tolist() == [1]
        assert made.ttft_s.tolist() == made.prefill_end_s.tolist() == [0.1]
        assert made.latency_s[0] == pytest.approx(0.1003)
        assert made.gpu_requests.tolist() == [0, 1]
        assert not made.transferred_tokens.any()


def test_prompts_go_of_which_enough_is_not_cached_where_outputs_are_made() -> None:
    """The first, of 1,000 tokens, and then the same with 8 more: 992 of them are cached, and 16 are left, which is less
    than 100, and not less than 16. Other 100 tokens go."""
    prompts = stream([own(0, 1000), [(0, 1000), (1, 8)], own(2, 100)], [0.0, 1.0, 2.0], [1] * 3)
    for tokens, first in ((100, [0, 1, 0]), (16, [0, 0, 0]), (101, [0, 1, 1])):
        made = serve(prompts, split(decider=UNCACHED, least_tokens=tokens))
        assert made.gpu.tolist() == first
        assert made.decode_gpu.tolist() == [1, 1, 1]
        assert made.hit_tokens[1] == 992
    assert made.ttft_s[1:] == pytest.approx([0.0016, 0.01])


def test_prompts_go_if_they_are_predicted_to_be_there_sooner() -> None:
    """On an idle cluster none does: 100 ms for the prompt there, and as much on the link. Three at once: the second
    finds 1,000 tokens that wait before it, 100 ms more, and as it is no sooner elsewhere, stays; the third goes."""
    prompts = stream([own(i, 1000) for i in range(3)], [0.0] * 3, [1] * 3)
    made = serve(prompts, split(decider=PREDICTED))
    assert made.gpu.tolist() == [1, 1, 0]
    assert made.transferred_tokens.tolist() == [0, 0, 1008]
    made = serve(prompts, split(decider=PREDICTED, rate=1e12))  # a link that takes no time
    assert made.gpu.tolist() == [1, 0, 1]


def test_a_prompt_that_its_router_refuses_leaves_the_outputs_gpu() -> None:
    made = serve(
        stream([own(i, 1000) for i in range(3)], [0.0, 1.0, 2.0], [2] * 3),
        split(decider=UNCACHED, least_tokens=1),
        policy=Refusing(),
    )
    assert (made.state == State.REFUSED).all()
    assert made.gpu.tolist() == [-1, -1, -1]
    assert not made.gpu_forwarded_tokens.any()


class Refusing(LeastOutstanding):
    """Everybody."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return REFUSE


# ---------------------------------------------------------------- who is asked, and told
class Asked(LeastOutstanding):
    """The first candidate but for every third request, which is refused (or held, until something ends)."""

    compiled: ClassVar[bool] = False

    def start(self, setup: Setup) -> list[Any]:
        assert setup.legs
        NOTES.append([])
        return NOTES[-1]

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        mine.append(("route", request, view.candidates.tolist()))
        if request % 3 == 2:
            return REFUSE
        busy = view.sent[view.candidates[0]].outstanding > 0
        return HOLD if busy else int(view.candidates[0])

    def first_token(self, mine: Any, view: View, request: int, now: float) -> None:
        mine.append(("first_token", request, now))

    def finished(self, mine: Any, view: View, request: int, now: float) -> None:
        mine.append(("finished", request, now))

    def stored(self, mine: Any, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        mine.append(("stored", request, gpu))


NOTES: list[list[Any]] = []


@pytest.mark.parametrize("first", [Asked(), LeastOutstanding()])
def test_each_policy_hears_of_its_own_gpus_and_rows(first: Policy) -> None:
    """Rows 0, 1 and 2 are requests, 3, 4 and 5 what computes their prompts; the second policy refuses request 2, whose
    KV is let go."""
    NOTES.clear()
    prompts = stream([own(i, 1000) for i in range(3)], [0.0] * 3, [2] * 3)
    second = Asked()
    made = serve(prompts, split(decode_policy=second), (2, 1), policy=first)
    notes = NOTES[-1]
    alone = not isinstance(first, Asked)
    assert {one[1] for one in notes} == ({0, 1, 2} if alone else {0, 1})
    assert {tuple(one[2]) for one in notes if one[0] == "route"} == {(2,)}
    assert {one[2] for one in notes if one[0] == "stored"} == {2}
    assert made.state.tolist() == [State.FINISHED, State.FINISHED, State.REFUSED]
    for request in (0, 1):
        told = [one for one in notes if one[1] == request and one[0] in ("first_token", "finished")]
        assert told == [("first_token", request, made.ttft_s[request]), ("finished", request, made.finish_s[request])]
    if alone:
        assert made.gpu[2] >= 0
        assert np.isfinite(made.prefill_end_s[2])
    else:
        assert {one[1] for one in NOTES[0]} == {3, 4, 5}
        assert made.gpu.tolist() == [0, 0, -1]
        ended = [one for one in NOTES[0] if one[0] == "finished"]
        assert ended == [("finished", 3 + i, made.prefill_end_s[i]) for i in (0, 1)]


# ---------------------------------------------------------------- laws
VLLMS = [
    VLLM(block_size=4, max_num_batched_tokens=64, max_num_seqs=64),
    VLLM(block_size=16, max_num_batched_tokens=64, max_num_seqs=5, async_scheduling=False),
    VLLM(block_size=1, max_num_batched_tokens=64, max_num_seqs=64, enable_prefix_caching=False),
    VLLM(block_size=4, max_num_batched_tokens=64, max_num_seqs=64, watermark=0.1, scheduler_reserve_full_isl=False),
]
CLUSTERS = st.fixed_dictionaries(
    {
        "engine": st.sampled_from(VLLMS),
        "counts": st.lists(st.integers(1, 2), min_size=3, max_size=3),
        "roles": st.sampled_from([(PREFILL, DECODE, DECODE), (PREFILL, BOTH, DECODE), (BOTH, PREFILL, DECODE)]),
        "kv": st.sampled_from([400, 600, 100_000]),
        "sharing": st.sampled_from([INFINITE, FIFO, FAIR]),
        "latency_s": st.sampled_from([0.0, 0.003]),
        "rate": st.sampled_from([1e5, 1e6, 1e9]),
        "policies": st.sampled_from([(LeastOutstanding(), LeastOutstanding()), (RoundRobin(), LeastOutstanding())]),
        "protocol": st.sampled_from([PULL, PUSH_AT_END]),
        "horizon": st.sampled_from(["stop", "drain"]),
        "overhead": st.sampled_from([Overhead(), Overhead("serial", decision_s=0.002)]),
    }
)


def run(workload: Workload, cluster: dict[str, Any], **given: Any) -> Outcome:
    first, second = cluster["policies"]
    link = {name: cluster[name] for name in ("sharing", "latency_s", "rate", "protocol", "decider") if name in cluster}
    pools = split(cluster["roles"], decode_policy=second, **link)
    hardware = replace(MS, step_s=0.0013, kv_tokens=cluster["kv"])
    names = ("engine", "horizon", "overhead")
    rest = {name: cluster[name] for name in names} | {"duration_s": 2.5}
    return serve(workload, pools, cluster["counts"], hardware=hardware, policy=first, **rest | given)


@pytest.mark.slow
@settings(max_examples=examples(100, found=True), deadline=None)
@given(st.one_of(workloads(), linked(workloads())), CLUSTERS)
def test_every_request_is_accounted_for_at_every_event(workload: Workload, cluster: dict[str, Any]) -> None:
    roles = np.repeat(cluster["roles"], cluster["counts"]).tolist()
    made = run(workload, cluster, on_event=Counted(cluster["protocol"], roles, len(workload)))
    again = run(workload, cluster)
    assert_same(made, again)  # watching changes nothing
    in_order(workload, made)
    check(workload, cluster, made)


def check(workload: Workload, cluster: dict[str, Any], made: Outcome) -> None:
    roles, block = np.repeat(cluster["roles"], cluster["counts"]), cluster["engine"].block_size
    finished = made.state == State.FINISHED
    if cluster["horizon"] == "drain":
        assert np.isin(made.state, (State.FINISHED, State.REFUSED, State.CANCELLED, State.NOT_DUE)).all()
    assert (made.output_seen[finished] == np.minimum(workload.output_tokens, workload.max_new_tokens)[finished]).all()
    # causality: each part begins when the one before it is over
    moved = finished & (made.gpu != made.decode_gpu)
    assert (roles[made.gpu[moved]] == PREFILL).all()
    assert (roles[made.decode_gpu[moved]] == DECODE).all()
    whole = finished & ~moved
    assert (roles[made.gpu[whole]] == BOTH).all()
    assert (made.prefill_end_s[whole] == made.ttft_s[whole]).all()
    # at least as long as alone on its link; of this prompt at most what is not there, at least its last block
    blocks = made.transferred_tokens // block
    assert (made.transferred_tokens % block == 0).all()
    assert (blocks <= -(-workload.prompt_tokens // block)).all()
    pulled = cluster["protocol"] == PULL
    fresh = moved & (made.gpu_retracted.sum() == 0) & (pulled | (made.output_seen > 1))
    assert (blocks[fresh] >= 1).all()
    least = made.transferred_tokens * KV_BYTES / cluster["rate"] + np.where(blocks > 0, cluster["latency_s"], 0.0)
    if pulled:
        assert ((made.ttft_s - made.prefill_end_s)[moved] >= least[moved] - 1e-9).all()
    else:
        assert (made.ttft_s[moved] == made.prefill_end_s[moved]).all()
        assert ((made.latency_s - made.ttft_s)[moved] >= least[moved] - 1e-9).all()
        assert not made.gpu_retracted[roles == DECODE].any()
    assert (made.ttft_s[finished] >= made.prefill_end_s[finished]).all()
    assert not made.transferred_tokens[whole].any()
    # tokens add up: each prompt is computed once where it was sent, but for what was thrown away
    if made.gpu_retracted.sum() == 0 and finished.all():
        prompts = made.gpu_hit_tokens + made.gpu_prefilled_tokens
        first = np.zeros(len(roles), np.int64)
        np.add.at(first, made.gpu, workload.prompt_tokens)
        np.testing.assert_array_equal(prompts, first)
        outputs = np.zeros(len(roles), np.int64)
        np.add.at(outputs, made.decode_gpu, made.output_seen - int(not pulled))
        of_decode = roles == DECODE
        np.testing.assert_array_equal(made.gpu_forwarded_tokens[of_decode], outputs[of_decode])


@settings(max_examples=examples(60, found=True), deadline=None)
@given(workloads(), st.sampled_from(VLLMS[:2]))
def test_with_a_link_that_takes_no_time_prompts_end_as_in_one_pool(workload: Workload, engine: VLLM) -> None:
    """Where each is alone: prompts apart by more than anything takes, that share nothing."""
    n = len(workload)
    apart = stream(
        [own(i, int(tokens)) for i, tokens in enumerate(workload.prompt_tokens)], [20.0 * i for i in range(n)], [5] * n
    )
    free = split(rate=1e18)
    made, one = serve(apart, free, engine=engine), serve(apart, None, (2,), engine=engine)
    np.testing.assert_allclose(made.prefill_end_s, one.ttft_s, rtol=1e-12)
    expected_s = one.ttft_s + 0.0001 + engine.host_step_s
    waited_s = made.ttft_s - expected_s  # until the GPU, which has nothing to compute, looks
    assert (waited_s > -1e-9).all()
    assert (waited_s < engine.idle_poll_s + 1e-9).all()
    at_once = HearsAtOnce(**{one.name: getattr(engine, one.name) for one in fields(engine)})
    np.testing.assert_allclose(serve(apart, free, engine=at_once).ttft_s, expected_s, rtol=1e-9)


@settings(max_examples=examples(60, found=True), deadline=None)
@given(workloads(), CLUSTERS)
def test_a_link_that_costs_nothing_makes_all_sharing_the_same(workload: Workload, cluster: dict[str, Any]) -> None:
    free = cluster | {"rate": 1e30, "latency_s": 0.0}
    made = [run(workload, free | {"sharing": sharing}) for sharing in (INFINITE, FIFO, FAIR)]
    for name in OF_REQUESTS:
        for other in made[1:]:
            np.testing.assert_array_equal(getattr(made[0], name), getattr(other, name), err_msg=name)


@pytest.mark.slow
@settings(max_examples=examples(60, found=True), deadline=None)
@given(impatient(linked(workloads())), CLUSTERS, timelines(4), st.sampled_from([ALWAYS, NEVER, UNCACHED, PREDICTED]))
def test_no_request_is_lost_twice_or_vanishes(workload: Workload, cluster: Any, faults: Any, decider: int) -> None:
    """Whatever happens to whom: each ends once, no router has it in its book then, nobody holds KV for it."""
    last: list[Any] = []
    happen = tuple(one for one in faults.happen if one.gpu < sum(cluster["counts"]))
    faults = replace(faults, drain="finish", happen=happen)
    cluster = cluster | ({"roles": (PREFILL, DECODE, DECODE), "decider": decider} if decider != ALWAYS else {})
    made = run(workload, cluster | {"horizon": "drain"}, faults=faults, on_event=last.append)
    (world, n), waits = (last[-1], len(workload)), np.isin(made.state, (State.UNROUTED, State.NOT_DUE))
    stuck = waits | np.isin(made.state, (State.HELD, State.QUEUED, State.RUNNING, State.RESERVED))
    assert world.control.unfinished == stuck.sum()
    assert (made.state[made.losses == 0] != State.LOST).all()
    requests = world.seen.sent.requests.sum()
    assert requests <= 2 * (n + made.losses.sum())
    assert stuck.any() or not world.seen.sent.outstanding.any()
    finished = made.state == State.FINISHED
    assert (made.output_seen[finished] == np.minimum(workload.output_tokens, workload.max_new_tokens)[finished]).all()


# ---------------------------------------------------------------- what is not modelled
def test_what_does_not_go_with_pools_is_one_line() -> None:
    one = stream([own(0, 100)], [0.0], [1])
    with pytest.raises(InvalidInput, match="engine Continuous has no protocol pull, and GPUs have roles"):
        serve(one, split(), engine=Continuous())
    with pytest.raises(
        InvalidInput, match=r"engine\.scheduling_policy=priority is not valid; it must be fcfs where groups have roles"
    ):
        serve(one, split(), engine=replace(SYNCHRONOUS, scheduling_policy="priority"))
    with pytest.raises(InvalidInput, match="engine SGLang has no protocol pull, and GPUs have roles"):
        serve(one, split(), engine=SGLang())


def test_what_one_of_two_gpus_could_never_do_is_refused() -> None:
    """65 blocks hold 1,040 tokens: a prompt of 1,040 leaves no room for its token, one of 1,000 none for 50 more."""
    prompts = stream([own(0, 1040), own(1, 1000), own(2, 1000)], [0.0] * 3, [1, 50, 40])
    made = serve(prompts, split(), hardware=replace(MS, kv_tokens=16 * 66))
    assert made.state.tolist() == [State.REFUSED, State.REFUSED, State.FINISHED]
