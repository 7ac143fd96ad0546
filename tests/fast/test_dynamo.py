"""Dynamo's KV router where recordings do not reach: the queue, what counts as cached and for how long, output blocks;
and the sets of prompts that it counts blocks with, against sets of blocks."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.engines.base import Engine
from prebleexp.engines.continuous import Continuous
from prebleexp.engines.sglang.engine import SGLang
from prebleexp.engines.vllm.engine import VLLM
from prebleexp.errors import InvalidInput
from prebleexp.lengths.known import Oracle
from prebleexp.policies.base import HOLD
from prebleexp.policies.dynamo import output_blocks
from prebleexp.policies.dynamo.kv import DynamoKV, Memory, book, look
from prebleexp.policies.dynamo.prompt_sets import BLOCK, add, find, prompt_sets, remove, shared, weigh
from prebleexp.sim import addresses
from prebleexp.sim import records as of
from prebleexp.sim.handles import Block
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup, State, Workload, records
from prebleexp.sim.world import made_cache, made_view
from prebleexp.testing import check_policy, serve
from tests.support.batching import BATCHING
from tests.support.recordings.routers import Driven, workload_of
from tests.support.routers import Router, cost_of_a_token
from tests.support.sampled import examples
from tests.support.strategies import paths

pytestmark = pytest.mark.uncompiled

EVERYTHING = DynamoKV(
    router_predicted_ttl_secs=2.0,
    overlap_score_credit_decay=0.5,
    decode_active_request_weight=1.0,
    router_temperature=0.2,
    router_queue_threshold=0.05,
    router_track_output_blocks=True,
)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [DynamoKV(), DynamoKV(use_kv_events=False, router_ttl_secs=1.0), EVERYTHING])
def test_it_is_sound(policy: DynamoKV) -> None:
    check_policy(policy)


@pytest.mark.parametrize(
    ("name", "value", "valid"),
    [
        ("router_ttl_secs", 0, "a number > 0"),
        ("router_ttl_secs", None, "a number > 0"),
        ("router_predicted_ttl_secs", -1, "a number > 0, or null"),
        ("router_queue_threshold", "4", "a number > 0, or null"),
        ("block_size", 0, "an integer from 1 to 65536"),
        ("max_num_batched_tokens", 2.5, "an integer from 1 to 1073741824"),
        ("overlap_score_credit", -0.1, "a number >= 0"),
        ("router_temperature", math.nan, "a number >= 0"),
        ("use_kv_events", 1, "true or false"),
        ("router_track_output_blocks", "yes", "true or false"),
    ],
)
def test_what_is_not_valid_is_said_in_one_line(name: str, value: Any, valid: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        DynamoKV(**{name: value})
    assert str(caught.value) == f"policy.{name}={value} is not valid; it must be {valid}"


def test_lengths_matter_to_it_only_if_output_counts() -> None:
    assert not DynamoKV().reads_lengths
    assert EVERYTHING.reads_lengths


# ---------------------------------------------------------------- by hand
def sent(policy: DynamoKV, prompts: list[list[tuple[int, int]]], gpus: int, where: dict[int, int]) -> Driven:
    """The first requests are sent to these GPUs at 0 s."""
    driven = Driven(policy, workload_of(prompts), gpus)
    for request, gpu in where.items():
        send(driven, request, gpu, 0.0)
    return driven


def send(driven: Driven, request: int, gpu: int, now: float) -> None:
    every = driven.view.candidates
    driven.offers([gpu])
    assert driven.decide(request, now) == gpu
    driven.offers(every)
    driven.sends(request, gpu)


def seen(driven: Driven, request: int, now: float) -> tuple[list[int], list[int], list[float]]:
    """Cached blocks, D' and costs of all GPUs."""
    driven.keep()
    driven.decide(request, now)
    found = driven.mine.overlap.tolist(), driven.mine.decode.tolist(), driven.mine.costs.tolist()
    driven.restore()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("tokens", "waits"), [(499, False), (500, False), (501, True)])
def test_a_request_waits_while_every_gpu_has_more_than_the_threshold(tokens: int, waits: bool) -> None:
    """Half of 1,000 tokens; the other GPU has 900."""
    policy = DynamoKV(router_queue_threshold=0.5, max_num_batched_tokens=1000, block_size=100)
    driven = sent(policy, [[(0, 900)], [(1, tokens)], [(2, 10)]], 2, {0: 0, 1: 1})
    assert driven.decide(2, 0.0) == (HOLD if waits else 1)
    driven.finished(0, 1.0)
    assert driven.decide(2, 1.0) == 0


@pytest.mark.slow
def test_who_waits_goes_on_at_the_first_token() -> None:
    """One GPU, a threshold of 100 tokens, and prompts of 150 at once: each is sent when the one before it has its first
    token, though that runs for long."""
    policy = DynamoKV(router_queue_threshold=0.1, max_num_batched_tokens=1000)
    n = 4
    workload = dataclasses.replace(workload_of([[(row, 150)] for row in range(n)]), output_tokens=np.full(n, 90))
    workload = dataclasses.replace(workload, max_new_tokens=np.full(n, 90))
    made = serve(policy, Continuous(), 1, workload, lengths=Oracle())
    assert (made.state == State.FINISHED).all()
    assert (np.diff(made.ttft_s) > 0).all()
    assert made.ttft_s[-1] < made.finish_s[0]
    free = serve(DynamoKV(), Continuous(), 1, workload, lengths=Oracle())
    assert (free.ttft_s == free.ttft_s[0]).all()


def test_what_was_routed_counts_as_cached_until_its_time_is_over_and_anew_if_it_is_routed_again() -> None:
    """10 s. The first prompt has 5 blocks of 16, the second 3 of these and 2 of its own; the third has the 3."""
    prompts = [[(0, 50), (1, 38)], [(0, 50), (2, 30)], [(0, 50)], [(3, 20)]]
    policy = DynamoKV(use_kv_events=False, router_ttl_secs=10.0)
    driven = sent(policy, [*prompts, *prompts], 2, {0: 0})
    send(driven, 1, 0, 4.0)
    send(driven, 2, 1, 6.0)
    last = len(prompts)
    assert [seen(driven, last + row, 9.5)[0] for row in range(4)] == [[5, 3], [5, 3], [3, 3], [0, 0]]
    assert [seen(driven, last + row, 10.0)[0] for row in range(4)] == [[3, 3], [5, 3], [3, 3], [0, 0]]
    assert [seen(driven, last + row, 14.0)[0] for row in range(4)] == [[0, 3], [0, 3], [0, 3], [0, 0]]
    send(driven, last, 1, 15.0)
    assert [seen(driven, row, 16.0)[0] for row in (5, 6, 7)] == [[0, 3], [0, 3], [0, 0]]
    driven.stored(3, 0, 20, 16.0)  # it does not listen
    assert seen(driven, 7, 16.0)[0] == [0, 0]


def test_what_has_expired_comes_back() -> None:
    """200 prompts of two segments, one a second for 3 s each: at no time are there more than 4 of them."""
    prompts = [[(row % 7, 40), (7 + row, 40)] for row in range(200)]
    driven = Driven(DynamoKV(use_kv_events=False, router_ttl_secs=3.0), workload_of(prompts), 3)
    for row in range(200):
        send(driven, row, row % 3, float(row))
        driven.finished(row, row + 0.5)
    nodes, _, links, _ = driven.mine.routed.sets.room
    assert nodes <= 1 + 2 * 4
    assert links <= 1 + 2 * 4
    assert driven.mine.routed.sets.weights.sum() == 3 * 5 * BLOCK
    assert driven.mine.active.weights.sum() == 0
    assert driven.mine.prefill.sum() == 0


@pytest.mark.slow
def test_with_events_what_was_routed_may_bridge_the_time_until_it_is_stored() -> None:
    """The larger of both counts."""
    prompts = [[(0, 64), (1, 64)]] * 3
    for ttl_s, before, behind in ((None, 0, 2), (5.0, 8, 8)):
        driven = sent(DynamoKV(router_predicted_ttl_secs=ttl_s), prompts, 2, {0: 0})
        assert seen(driven, 1, 1.0)[0] == [before, 0]
        driven.stored(0, 0, 40, 1.0)
        driven.stored(0, 1, 63, 1.0)
        assert seen(driven, 1, 1.0)[0] == [behind, 3]
        assert seen(driven, 1, 5.0)[0] == [2, 3]
        driven.evicted(0, 0, 30, 6.0)
        assert seen(driven, 1, 6.0)[0] == [1, 3]


def test_a_block_that_straddles_two_segments_is_of_those_who_share_both() -> None:
    """20 tokens are shared: one block of 16. The second block begins in them, and each prompt has its own."""
    prompts = [[(0, 20), (1, 12)], [(0, 20), (2, 12)], [(0, 20), (1, 12), (3, 9)], [(4, 15)]]
    driven = sent(DynamoKV(), [*prompts, *prompts], 2, {0: 0, 1: 0})
    assert driven.mine.active.weights.tolist() == [3 * BLOCK, 0]
    assert [seen(driven, 4 + row, 0.0)[1] for row in range(4)] == [[3, 2], [3, 2], [3, 2], [3, 0]]
    driven.finished(0, 1.0)
    assert [seen(driven, 4 + row, 1.0)[1] for row in range(4)] == [[3, 2], [2, 2], [3, 2], [2, 0]]


def test_costs_by_hand() -> None:
    """P and D are 160 and 10, 32 and 2. A prompt of 40 tokens, which is 2 blocks, needs 3; GPU 0 holds it."""
    policy = DynamoKV(
        overlap_score_credit=1.5,
        overlap_score_credit_decay=0.25,
        prefill_load_scale=2.0,
        decode_active_request_weight=3.0,
    )
    driven = sent(policy, [[(0, 160)], [(1, 32)], [(2, 40)]], 2, {0: 0, 1: 1})
    driven.stored(2, 0, 40, 0.0)
    credit = 1.5 / (1 + 0.25 * (128 / 16 / 3))
    assert seen(driven, 2, 0.0)[2] == pytest.approx(
        [2 * (200 / 16 - 2 * credit) + 12 + 3, 2 * 72 / 16 + 4 + 3], abs=1e-12
    )


# ---------------------------------------------------------------- sets of prompts
class Model:
    """For each GPU, the blocks of its prompts: who has each, and what it weighs."""

    def __init__(self, workload: Workload, gpus: int, size: int) -> None:
        self.blocks = []
        for a, b in itertools.pairwise(workload.segment_offsets):
            ends = np.cumsum(workload.segment_tokens[a:b])
            last = range(size, int(ends[-1]) + 1, size)
            self.blocks.append([(int(workload.segment_ids[a + np.searchsorted(ends, end)]), end) for end in last])
        self.owners: list[dict[Any, set[int]]] = [{} for _ in range(gpus)]
        self.weight: list[dict[Any, int]] = [{} for _ in range(gpus)]

    def add(self, request: int, gpu: int) -> None:
        for block in self.blocks[request]:
            self.owners[gpu].setdefault(block, set()).add(request)
            self.weight[gpu].setdefault(block, BLOCK)

    def remove(self, request: int, gpu: int) -> None:
        for block in self.blocks[request]:
            self.owners[gpu][block].remove(request)
            if not self.owners[gpu][block]:
                del self.owners[gpu][block], self.weight[gpu][block]

    def weigh(self, request: int, gpu: int, weight: int) -> None:
        for block in self.blocks[request]:
            if self.owners[gpu][block] == {request}:
                self.weight[gpu][block] = weight

    def shared(self, request: int, gpu: int) -> int:
        return sum(1 for _ in itertools.takewhile(self.owners[gpu].__contains__, self.blocks[request]))


@st.composite
def stories(draw: st.DrawFn) -> tuple[Workload, int, int, list[tuple[int, int, int]]]:
    n = draw(st.integers(1, 14))
    prompts = draw(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=n, max_size=n))
    workload = paths.workload_of(prompts, [0.0] * n, [1] * n, 1)
    gpus = draw(st.sampled_from([1, 3, 70]))
    steps = st.tuples(st.integers(0, n - 1), st.integers(0, gpus - 1), st.integers(0, BLOCK))
    return workload, gpus, draw(st.sampled_from([1, 4, 16, 64])), draw(st.lists(steps, max_size=60))


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(stories())
def test_sets_of_prompts_are_sets_of_blocks(story: tuple[Workload, int, int, list[tuple[int, int, int]]]) -> None:
    """A prompt joins the set of a GPU if it is in none; else its blocks are weighed, or it leaves."""
    workload, gpus, size, steps = story
    cache = made_cache(Setup(gpus, 0, len(workload), 1000, 1000, workload), 8)
    made = made_view(cache.requests, cache.prompts, records(gpus, of.REPORT), records(gpus, addresses.COST))
    view, sets = Block(made).handle, Block(prompt_sets(Setup(gpus, 0, len(workload), 1, 1, workload), size))
    model, where, into = Model(workload, gpus, size), dict[int, int](), np.zeros(gpus, np.int64)
    for request, gpu, weight in steps:
        if request not in where:
            where[request] = gpu
            find(sets.handle, view, request)
            shared(sets.handle, request, into)
            assert into.tolist() == [model.shared(request, g) for g in range(gpus)]
            add(sets.handle, request, gpu)
            model.add(request, gpu)
        elif weight % 2:
            weigh(sets.handle, request, where[request], weight)
            model.weigh(request, where[request], weight)
        else:
            remove(sets.handle, request, where[request])
            model.remove(request, where.pop(request))
        assert sets.weights.tolist() == [sum(one.values()) for one in model.weight]
    for request, gpu in where.items():
        remove(sets.handle, request, gpu)
    nodes, free_node, links, free_link = sets.room
    assert free_rows(sets.rows.parent, free_node) == nodes - 1
    assert free_rows(sets.links.next, free_link) == links - 1
    assert not sets.begins.any()
    assert not sets.holders.any()
    assert not sets.weights.any()


def free_rows(behind: Any, first: int) -> int:
    count, row = 0, int(first)
    while row != 0:
        count, row = count + 1, int(behind[row])
    return count


def test_a_gpu_that_may_not_be_taken_can_have_less_to_prefill_than_all_that_may() -> None:
    """One block less, for a prompt of one block: with a decay of 1, its credit would be 1 of nothing."""
    driven = sent(DynamoKV(overlap_score_credit_decay=1.0), [[(0, 16)], [(1, 16)]], 2, {0: 0})
    driven.offers([0])
    assert driven.decide(1, 0.0) == 0
    assert driven.mine.costs[0] == 2 + 2


# ---------------------------------------------------------------- output blocks
def test_output_that_nears_its_end_weighs_less_and_with_it_the_prompt() -> None:
    """Two prompts of 4 blocks, 2 of them shared. The second's output is to have 4 blocks: with its third one quarter is
    to come, and its own blocks of prompt weigh as much; not those it shares, until the other has gone."""
    prompts = [[(0, 32), (1, 32)], [(0, 32), (2, 32)], [(9, 5)]]
    driven = sent(DynamoKV(router_track_output_blocks=True), prompts, 1, {0: 0, 1: 0})

    def decode() -> int:
        return seen(driven, 2, 0.0)[1][0]

    def another(request: int, share: float) -> None:
        output_blocks.one_more(part(driven.mine.outputs), part(driven.mine.active), request, 0, share)

    assert decode() == 6
    another(0, -1.0)
    assert decode() == 7
    another(1, 0.75)
    assert driven.mine.active.weights[0] == (4 + 1 + 3 * 0.75) * BLOCK
    another(1, 0.5)
    another(1, 0.25)
    assert driven.mine.active.weights[0] == (4 + 1 + 5 * 0.25) * BLOCK
    assert decode() == 6  # 6.25
    driven.finished(0, 1.0)
    assert driven.mine.active.weights[0] == (2 + 5 * 0.25) * BLOCK
    another(1, 0.125)
    assert driven.mine.active.weights[0] == (4 + 4) * 0.125 * BLOCK
    driven.finished(1, 2.0)
    assert driven.mine.active.weights[0] == 0


def test_half_a_block_counts_as_one_though_shares_are_cut_to_whole_numbers() -> None:
    """5 blocks of which each weighs 0.7, a little less in units of `BLOCK`: 3.5."""
    driven = sent(DynamoKV(router_track_output_blocks=True), [[(0, 32)], [(9, 5)]], 1, {0: 0})
    for _ in range(3):
        output_blocks.one_more(part(driven.mine.outputs), part(driven.mine.active), 0, 0, 0.7)
    assert driven.mine.active.weights[0] < 3.5 * BLOCK
    assert seen(driven, 1, 0.0)[1][0] == 4


def part(value: Any) -> Any:
    return getattr(value, "handle", value)


@dataclasses.dataclass(frozen=True)
class Watched(DynamoKV):
    """The first request is held for ever, so that this is asked whenever a step ends. Every so many times it looks at
    what it takes the others to have generated."""

    compiled: ClassVar[bool] = False
    every: int = 1

    def route(self, mine: Memory, view: View, request: int, now: float) -> int:
        if request == 0:
            times.append(now)
            if len(times) % self.every == 0:
                output_blocks.catch_up(mine.outputs, mine.active, view, now)
                self.compare(mine, view, now)
            ended.clear()
            return HOLD
        look(mine, view, request, now)
        gpu = request % len(view.candidates)
        book(mine, view, request, gpu, now)
        return gpu

    def finished(self, mine: Memory, view: View, request: int, now: float) -> None:
        ended.append((request, int(mine.outputs.requests[request].began)))
        super().finished(mine, view, request, now)

    def compare(self, mine: Memory, view: View, now: float) -> None:
        outputs, requests = mine.outputs, view.requests
        for request, began in ended if self.every == 1 else []:
            gpu, output = requests[request].gpu, requests[request].output_seen
            there, clock = (outputs.requests.there == 1) & (requests.gpu == gpu), outputs.gpus[gpu].clock
            if output > 1 and (outputs.requests.began[there] < clock).any():  # others, by which the clock goes
                assert clock - began + 1 == output
                counted.append(request)
        for gpu in range(len(view.candidates)):
            there = np.flatnonzero((outputs.requests.there == 1) & (requests.gpu == gpu))
            generated = outputs.gpus[gpu].clock - outputs.requests.began[there] + 1
            assert generated.sum() == view.gpus[gpu].generated
            prompt = requests.prompt_tokens[there]
            blocks = -(-(prompt + generated) // self.block_size) + prompt // -self.block_size
            assert outputs.requests.blocks[there].tolist() == blocks.tolist()
            told = dict(zip(there.tolist(), generated.tolist(), strict=True))
            assert known.setdefault((now, gpu), told) == told


times: list[float] = []
counted: list[int] = []
ended: list[tuple[int, int]] = []
known: dict[tuple[float, int], dict[int, int]] = {}
"""by time and GPU, tokens of each request"""


@pytest.mark.slow
@pytest.mark.parametrize("engine", [Continuous(), BATCHING[-1], VLLM(), SGLang()], ids=str)
def test_output_blocks_are_those_of_the_tokens_that_were_generated(engine: Engine) -> None:
    """Where all of a batch decode in every step it knows to the token what each request has generated: asked at the end
    of every step, and asked now and then."""
    rng = np.random.default_rng(0)
    prompts = [[int(one) for one in rng.integers(0, 3, size=5)] for _ in range(80)]
    outputs = [int(one) for one in rng.integers(1, 60, 80)]
    workload = paths.workload_of(prompts, [0.0, *rng.uniform(0, 0.5, 79)], outputs, 60)
    known.clear()
    counted.clear()
    for every in (1, 5):
        times.clear()
        ended.clear()
        policy = Watched(router_track_output_blocks=True, every=every)
        made = serve(policy, engine, 2, workload, lengths=Oracle())
        assert (made.state[1:] == State.FINISHED).all()
        assert made.gpu_retracted.sum() == 0
    assert len(known) > 50
    assert len(counted) > 40


# ---------------------------------------------------------------- tiers
@pytest.mark.slow
def test_blocks_in_tiers_are_worth_less() -> None:
    """A prompt of 160 tokens is 10 blocks, which count as prefill less credits, and as 10 of memory. GPU 0 has nothing
    but what its host has, .75 each: 2.5. GPU 1 has 4 in its cache, its host 8 and its disk all: 10 - 4 - 3 - .5 = 2.5.
    GPU 2 has what the store for all has, at half a block each: 10 - 5 = 5, as the others have where nobody has it. Then
    the host of GPU 0 drops what is behind 96 tokens: 10 - 4.5 = 5.5, less the store's 4 · .5, is 3.5."""
    workload = workload_of([[(0, 160)], [(0, 160)], [(0, 160)]])
    policy = DynamoKV(shared_cache_multiplier=0.5)
    one = Router(policy, workload, 3, cost_of_a_token(), tiers=True)
    policy.stored(*one.handles, 0, 1, 64, 0.0)
    for place, tokens in ((0, 160), (1, 128), (3 + 1, 160), (6, 160)):
        policy.copied(*one.handles, 0, place, tokens, 0.0)
    one.route(0.0)
    assert one.memory.costs.tolist() == [12.5, 12.5, 15.0]
    one.finish(0, 1.0)
    policy.dropped(*one.handles, 0, 0, 96, 1.0)
    one.route(2.0)
    assert one.memory.costs.tolist() == [13.5, 12.5, 15.0]


@pytest.mark.slow
def test_without_tiers_or_events_it_hears_nothing_of_them() -> None:
    workload = workload_of([[(0, 160)], [(0, 160)]])
    for policy, tiers in ((DynamoKV(), False), (DynamoKV(use_kv_events=False), True)):
        one = Router(policy, workload, 2, cost_of_a_token(), tiers=tiers)
        policy.copied(*one.handles, 0, 0, 160, 0.0)
        one.route(0.0)
        assert one.memory.costs.tolist() == [20.0, 20.0]
