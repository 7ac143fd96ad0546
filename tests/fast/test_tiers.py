"""Tiers of KV behind the GPUs' caches: examples to check on paper, and what holds of every run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from prebleexp.autoscalers.hpa import HPA
from prebleexp.engines.continuous import Continuous
from prebleexp.errors import InvalidInput
from prebleexp.faults.base import Event
from prebleexp.faults.timeline import Timeline
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim.records import NONE
from prebleexp.sim.tiering import Tier, Tiering
from prebleexp.sim.tiers import ALWAYS, CHEAPER, KEPT, OFTEN, SHARED, THRESHOLD, TIERS
from prebleexp.sim.types import OF_REQUESTS, Outcome, State, Workload
from tests.support.accounted import accounted
from tests.support.by_hand.streams import own, stream
from tests.support.by_hand.tiers import KV_BYTES, MS, STEP, VLLM_ALONE, host, serve, tier, tokens_ms
from tests.support.outcomes import assert_alike, assert_same
from tests.support.sampled import examples
from tests.support.sessions import in_order, linked
from tests.support.strategies.paths import workloads
from tests.support.strategies.tiers import CLUSTERS, faulty, impatient, tiering
from tests.support.strategies.vllms import COST

pytestmark = pytest.mark.uncompiled

# ---------------------------------------------------------------- by hand (spec: clusters.md, section 3)
XYXYZX = stream([own("XYZ".index(one), 1000) for one in "XYXYZX"], [0.3 * i for i in range(6)], [1] * 6)
"""prompts of 63 blocks, of which 62 can be found"""


@pytest.mark.parametrize(
    ("blocks", "loaded", "ms"),
    [
        (0, [0, 0, 0, 0, 0, 0], [100, 400, 700, 1000, 1300, 1600]),
        (500, [0, 0, 720, 720, 0, 992], [100, 400, 772, 1072, 1300, 1699.2]),
        (130, [0, 0, 720, 720, 0, 0], [100, 400, 772, 1072, 1300, 1600]),
        (63, [0, 0, 0, 0, 0, 0], [100, 400, 700, 1000, 1300, 1600]),
    ],
)
def test_three_prompts_take_turns_on_80_blocks(blocks: int, loaded: list[int], ms: list[float]) -> None:
    """The third finds 17 blocks of its own on the GPU, and 45 in the host, if there is one: 72 ms. The fifth pushes out
    of 130 what the first two left when the GPU still had it, so that the sixth finds nothing from its beginning on."""
    made = serve(XYXYZX, host(blocks) if blocks else None)
    assert made.hit_tokens.tolist() == [0, 0, 272, 272, 0, 0]
    assert made.host_tokens.tolist() == loaded
    assert tokens_ms(XYXYZX, made) == ms
    np.testing.assert_array_equal(made.hit_tokens + made.host_tokens + made.prefilled_tokens, 1000)
    assert made.gpu_host_tokens.tolist() == [sum(loaded)]


@pytest.mark.parametrize(("gb_s", "ms"), [(1.0, 299.2), (0.2, 696.0)])
def test_blocks_that_are_stored_are_held_until_then(gb_s: float, ms: float) -> None:
    """70 blocks: X is stored from 100 ms on, 99.2 ms or 496; Y, which comes at 110 ms, has no room until then."""
    two = stream([own(0, 1000), own(1, 1000)], [0.0, 0.11], [1, 1])
    made = serve(two, host(500, gb_s), hardware=replace(STEP, kv_tokens=16 * 71))
    assert tokens_ms(two, made) == [100, ms]


def test_loads_are_one_after_the_other() -> None:
    """912 and 896 tokens at 0.5 GB/s, asked for at 1500 and 1501 ms: they are there at 1682.4 and 1861.6, each request
    computes its last token in the next step."""
    prompts = [own(0, 913), own(1, 897), own(2, 1900), own(0, 913), own(1, 897)]
    five = stream(prompts, [0.0, 0.2, 1.1, 1.5, 1.501], [1] * 5)
    made = serve(five, host(500, 0.5, store_rate=1e12), hardware=replace(STEP, kv_tokens=16 * 121))
    assert made.host_tokens.tolist() == [0, 0, 0, 912, 896]
    assert tokens_ms(five, made)[3:] == [1782.4, 1961.6]


def test_others_go_on_while_one_loads() -> None:
    """As the third of `XYXYZX`, with Z behind it, which is computed meanwhile: 4 blocks are free."""
    four = stream([own(0, 1000), own(1, 1000), own(0, 1000), own(2, 60)], [0.0, 0.3, 0.6, 0.601], [1] * 4)
    made = serve(four, host(500))
    assert made.host_tokens.tolist() == [0, 0, 720, 0]
    assert tokens_ms(four, made) == [100, 400, 801, 701]  # its step begins when Z's is over


@pytest.mark.parametrize(("last", "loaded", "ms"), [(2, 0, 772), (0, 720, 844)])
def test_a_load_goes_on_when_its_request_has_given_up(last: int, loaded: int, ms: float) -> None:
    """As the third of `XYXYZX`, which gives up at 650 ms: until 672 its blocks are held, and Z has no room; X again
    waits for what is on its way, which nobody has then, and loads it from 672 to 744."""
    four = stream([own(i, 1000) for i in (0, 1, 0, last)], [0.0, 0.3, 0.6, 0.651], [1] * 4)
    made = serve(replace(four, patience_s=[np.nan, np.nan, 0.05, np.nan]), host(500))
    assert made.state.tolist() == [State.FINISHED, State.FINISHED, State.CANCELLED, State.FINISHED]
    assert made.host_tokens.tolist() == [0, 0, 720, loaded]
    assert tokens_ms(four, made)[3] == ms


def test_what_is_on_its_way_to_the_tier_is_waited_for() -> None:
    """70 blocks: X is stored from 100 to 199.2 ms, Y from 299.2 on, by the same link that X's copy is loaded from at
    300 ms; Y again, at 310, would find all of its blocks, of which none is there."""
    four = stream([own(0, 1000), own(1, 1000), own(1, 1000)], [0.0, 0.11, 0.31], [1] * 3)
    made = serve(four, host(500, store_rate=1e7), hardware=replace(STEP, kv_tokens=16 * 131))
    assert made.host_tokens.tolist() == [0, 0, 0]  # the GPU has them itself
    shared = Tiering(KV_BYTES, shared=tier(500, store_rate=1e9))
    two = stream([own(0, 1000), own(0, 1000)], [0.0, 0.15], [1] * 2)
    made = serve(two, shared, gpus=2, policy=RoundRobin())
    assert made.shared_tokens.tolist() == [0, 992]
    assert tokens_ms(two, made) == [100, 398.4]  # stored at 199.2, loaded at 298.4


def test_one_store_for_all_is_found_by_all() -> None:
    """X is computed by one GPU, and loaded by two others together at 1 s: each alone takes 99.2 ms, both over 1 GB/s
    for all of them twice as long; of its own host a GPU that never computed it finds nothing."""
    three = stream([own(0, 1000)] * 3, [0.0, 1.0, 1.0], [1] * 3)
    at = {"gpus": 3, "policy": RoundRobin()}
    for total, ms in ((np.inf, 1199.2), (1e9, 1298.4)):
        made = serve(three, Tiering(KV_BYTES, shared=tier(500, total_rate=total, sharing=2)), **at)
        assert made.shared_tokens.tolist() == [0, 992, 992]
        assert tokens_ms(three, made) == [100, ms, ms]
    in_order_of_request = serve(three, Tiering(KV_BYTES, shared=tier(500, total_rate=1e9)), **at)
    assert tokens_ms(three, in_order_of_request) == [100, 1199.2, 1298.4]
    assert serve(three, host(500), **at).host_tokens.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("in_host", "gb_s", "loaded", "from_disk", "ms"),
    [
        (0, 1.0, [0, 0, 0, 0, 0, 0], [0, 0, 720, 720, 0, 992], [100, 400, 772, 1072, 1300, 1699.2]),
        (500, 0.5, [0, 0, 720, 720, 0, 992], [0, 0, 0, 0, 0, 0], [100, 400, 772, 1072, 1300, 1699.2]),
        (130, 0.5, [0, 0, 720, 720, 0, 0], [0, 0, 0, 0, 0, 992], [100, 400, 772, 1072, 1300, 1798.4]),
        (63, 0.5, [0, 0, 0, 0, 0, 0], [0, 0, 720, 720, 0, 992], [100, 400, 844, 1185.6, 1383.2, 1880]),
    ],
)
def test_a_disk_has_what_the_host_has_dropped(
    in_host: int, gb_s: float, loaded: list[int], from_disk: list[int], ms: list[float]
) -> None:
    """A disk alone is as a host alone, and one behind a host of 500 blocks is not read. One behind 130 has what these
    have dropped: the sixth loads 992 tokens at .2 ms. Behind 63 the third waits 144 ms for 720 tokens; what it had is
    stored in the host anew, all but the one block that this still has, 97.6 ms until 941.6, and its blocks are held so
    long: the fourth begins to load then."""
    tiers = Tiering(KV_BYTES, host=tier(in_host) if in_host else None, disk=tier(500, gb_s))
    made = serve(XYXYZX, tiers)
    assert made.host_tokens.tolist() == loaded
    assert made.disk_tokens.tolist() == from_disk
    assert tokens_ms(XYXYZX, made) == ms


def test_what_neither_gpu_nor_host_has_comes_from_the_store() -> None:
    """17 blocks on the GPU; the host, of 20, has none of those behind; so the store's are loaded."""
    made = serve(XYXYZX, Tiering(KV_BYTES, host=tier(20), shared=tier(500)))
    assert made.host_tokens.tolist() == [0] * 6  # 62 blocks at once find no room in 20
    assert made.shared_tokens.tolist() == [0, 0, 720, 720, 0, 992]


@pytest.mark.parametrize(("least", "loaded"), [(720, 720), (721, 0)])
def test_a_threshold_is_of_tokens(least: int, loaded: int) -> None:
    made = serve(XYXYZX, host(500, choose=THRESHOLD, least_tokens=least))
    assert made.host_tokens.tolist() == [0, 0, loaded, loaded if least == 720 else 0, 0, 992]


@pytest.mark.parametrize(("gb_s", "loaded"), [(1.01, 992), (0.99, 0)])
def test_loads_are_cheaper_above_the_break_even_rate(gb_s: float, loaded: int) -> None:
    """KV bytes a token times tokens a second: 100,000 · 10,000 is 1 GB/s."""
    three = stream([own(0, 1000), own(1, 1000), own(0, 1000)], [0.0, 1.0, 2.0], [1] * 3)
    hardware = replace(MS, kv_tokens=16 * 64)
    assert serve(three, host(500, gb_s, choose=CHEAPER), hardware=hardware).host_tokens.tolist() == [0, 0, loaded]


def test_a_link_that_is_taken_is_waited_for_only_if_that_is_cheaper() -> None:
    """Two that were computed on either GPU come back at once, to one GPU: at 1.5 times the break-even rate the first
    loads, the second would wait too long."""
    five = stream([own(i, 1000) for i in (0, 1, 2, 0, 1)], [0.0, 0.2, 0.4, 1.0, 1.0], [1] * 5)
    hardware = replace(MS, kv_tokens=16 * 131)
    made = serve(five, host(500, 1.5, choose=CHEAPER), hardware=hardware, engine=replace(VLLM_ALONE, block_size=16))
    assert made.host_tokens[3] > 0
    assert made.host_tokens[4] == 0
    assert serve(five, host(500, 3.0, choose=CHEAPER), hardware=hardware).host_tokens[4] > 0


# ---------------------------------------------------------------- laws
class Counted:
    """Looks at the cluster after every event: every request is in one place, and blocks add up in every tier."""

    def __init__(self, tiers: Tiering) -> None:
        self.tiers, self.events = tiers, 0

    def __call__(self, world: Any) -> None:
        self.events += 1
        of, gpus, n = world.tiers, len(world.live), len(world.jobs)
        for seen in world.live:
            assert seen.kv_free >= 0
            assert seen.evictable >= 0
            assert seen.kv_free + seen.evictable <= seen.kv_tokens
        reserved = np.flatnonzero(world.jobs.state == State.RESERVED).tolist()
        loading = []
        for g in range(gpus):
            one = int(of.loading[g])
            while one != NONE:
                assert world.seen.requests[one].gpu == g
                loading.append(one)
                one = int(of.fetches[one].next)
        gave_up = world.jobs.state[loading] == State.CANCELLED
        assert sorted(np.array(loading, int)[~gave_up]) == reserved
        pins = dict[int, int]()
        for at in range(2 * gpus + 1) if self.events % 5 == 0 else ():  # it takes a while
            kind, place = min(at // gpus, SHARED), of.places[at]
            assert 0 <= place.pinned <= place.used <= of.tiers[kind].blocks
            copies = []
            for order in (KEPT, OFTEN):
                copy = int(of.orders[at, order].oldest)
                while copy != NONE:
                    copies += [copy] if of.copies[copy].number >= 0 else []  # else a request's begin there
                    copy = int(of.copies[copy].newer)
            assert len(copies) == place.used
            assert all(of.copies[one].place == at for one in copies)
            keys = {(int(of.copies[one].key), int(of.copies[one].number)) for one in copies}
            assert len(keys) == len(copies)
            assert sum(int(of.copies[one].pins) > 0 for one in copies) == place.pinned
            pins |= {one: int(of.copies[one].pins) - (of.copies[one].store != NONE) for one in copies}
        assert (of.tokens.sum(axis=0) + world.jobs.hit_tokens <= world.seen.requests.prompt_tokens).all()
        expected = sum(int(of.ends[-1, one] - of.fetches[one].low) for one in loading)
        assert sum(pins.values()) <= expected
        assert TIERS * n >= len(loading)


def run(workload: Workload, cluster: dict[str, Any], **given: Any) -> Outcome:
    hardware = replace(COST, kv_tokens=cluster["kv"], frontend_s=cluster["frontend"])
    names = ("engine", "policy", "gpus", "horizon", "overhead", "reports_ms", "faults")
    rest = {name: cluster[name] for name in names} | {"duration_s": 2.5, "hardware": hardware}
    return serve(
        workload,
        given.pop("tiers", tiering(cluster)),
        **rest | given,
    )


@pytest.mark.slow
@settings(max_examples=examples(20, found=True), deadline=None)
@given(st.one_of(workloads(), linked(workloads())), CLUSTERS | faulty())
def test_everything_adds_up_at_every_event(workload: Workload, cluster: dict[str, Any]) -> None:
    workload = impatient(workload, cluster)
    made = run(workload, cluster, on_event=Counted(tiering(cluster)))
    again = run(workload, cluster)
    assert_same(made, again)  # watching changes nothing
    if cluster["faults"] is None:
        in_order(workload, made)
    else:
        accounted(workload, made, cluster["faults"].requeues)
    finished = made.state == State.FINISHED
    if cluster["horizon"] == "drain" and cluster["faults"] is None:
        assert np.isin(made.state, (State.FINISHED, State.REFUSED, State.CANCELLED, State.NOT_DUE)).all()
    found = made.hit_tokens + made.host_tokens + made.disk_tokens + made.shared_tokens
    found = found + made.peer_tokens + made.prefilled_tokens
    np.testing.assert_array_equal(found[finished], workload.prompt_tokens[finished])
    if made.gpu_retracted.sum() + made.losses.sum() == 0 and finished.all():  # each prompt is admitted once
        totals = made.gpu_hit_tokens + made.gpu_prefilled_tokens
        totals = totals + made.gpu_host_tokens + made.gpu_disk_tokens + made.gpu_shared_tokens + made.gpu_peer_tokens
        of_gpus = np.zeros(cluster["gpus"], np.int64)
        np.add.at(of_gpus, made.gpu, workload.prompt_tokens)
        np.testing.assert_array_equal(totals, of_gpus)


@pytest.mark.slow
@settings(max_examples=examples(60, found=True), deadline=None)
@given(st.one_of(workloads(), linked(workloads())), CLUSTERS)
def test_a_tier_of_no_blocks_is_none(workload: Workload, cluster: dict[str, Any]) -> None:
    """By another path: steps are scheduled request by request, and tiers are asked. With a connector an asynchronous
    engine preempts nobody whose step is under way, as vLLM's does: there they are alike where nobody is preempted."""
    empty = Tier(bytes=0.0, load_rate=1.0, store_rate=1.0, latency_s=1.0)
    none = run(workload, cluster, tiers=None)
    assume(not (cluster["engine"].async_scheduling and none.gpu_retracted.any()))
    assert_alike(run(workload, cluster, tiers=Tiering(1000.0, empty, empty)), none)


@pytest.mark.thorough
@pytest.mark.uncompiled(False)
@settings(max_examples=examples(60, found=True), deadline=None)
@given(workloads(), st.sampled_from([240, 400, 100_000]), st.sampled_from([ALWAYS, CHEAPER]))
def test_a_tier_that_costs_nothing_makes_no_request_later_that_is_alone(
    workload: Workload, kv: int, choose: int
) -> None:
    """Where others are, one that loads lets those behind it go first."""
    apart = replace(workload, arrival_s=[20.0 * i for i in range(len(workload))])
    hardware, free = replace(MS, kv_tokens=kv), tier(10**6, 1e30, choose=choose)
    made, none = (serve(apart, tiers, hardware=hardware) for tiers in (Tiering(KV_BYTES, free, free), None))
    assert (made.state == none.state).all()
    served = made.state == State.FINISHED
    assert (made.ttft_s[served] <= none.ttft_s[served] + 1e-9).all()
    assert (made.prefilled_tokens <= none.prefilled_tokens).all()


@pytest.mark.thorough
@pytest.mark.uncompiled(False)
@pytest.mark.parametrize("blocks", [40, 100])
def test_gpu_and_host_together_find_what_the_larger_would_find_alone(blocks: int) -> None:
    """Independent references to 300 prompts of one full block, by Zipf's law: least recently used of 80 blocks on the
    GPU, and of those of the host, which has copies. Che's approximation for the larger."""
    rng, n, prompts = np.random.default_rng(4), 20_000, 300
    weights = 1 / np.arange(1, prompts + 1)
    asked = rng.choice(prompts, n, p=weights / weights.sum())
    workload = stream([own(int(one), 17) for one in asked], [0.01 * i for i in range(n)], [1] * n)
    hardware = replace(MS, kv_tokens=16 * 82, step_s=0.001)
    made = serve(workload, host(blocks, 1e6), hardware=hardware, duration_s=1e3)
    found = ((made.hit_tokens + made.host_tokens) > 0)[n // 4 :].mean()
    assert found == pytest.approx(_che(weights / weights.sum(), max(80, blocks)), abs=0.02)


def _che(popularity: Any, size: int) -> float:
    """The hit ratio of least recently used: what is asked for again within the time in which so many others are."""
    low, high = 0.0, 1e9
    for _ in range(200):
        time = (low + high) / 2
        low, high = (time, high) if (1 - np.exp(-popularity * time)).sum() < size else (low, time)
    return float((popularity * (1 - np.exp(-popularity * low))).sum())


@pytest.mark.thorough
@pytest.mark.uncompiled(False)
def test_every_column_of_requests_is_the_same_on_groups_of_one_kind() -> None:
    both = Tiering(KV_BYTES, tier(100), tier(500))
    rng = np.random.default_rng(1)
    many = stream([own(int(i), 500) for i in rng.integers(0, 6, 60)], np.arange(60) * 0.15, [3] * 60)
    made = serve(many, both, gpus=3)
    grouped = serve(many, both, gpus=3, kinds=[(1, STEP), (2, STEP)])
    assert made.host_tokens.sum() > 0
    assert made.shared_tokens.sum() > 0
    for name in OF_REQUESTS:
        np.testing.assert_array_equal(getattr(made, name), getattr(grouped, name), err_msg=name)


# ---------------------------------------------------------------- GPUs that are lost
@pytest.mark.parametrize(("prompts_only", "found", "later"), [(True, 62, 68), (False, 64, 68)])
def test_an_answer_is_stored_with_the_next_prompt(prompts_only: bool, found: int, later: int) -> None:
    """A prompt of 1,000 tokens has 62 full blocks, with 39 computed tokens of its answer 64. Another takes all of the
    GPU's 79 blocks before the next turn. That is stored as a prompt of 1,100 tokens, 68 blocks, of either kind."""
    turn = [(0, 1000), (1, 40), (2, 60)]
    turns = stream([[(0, 1000)], own(5, 1260), turn, own(6, 1260), turn], [0.0, 1.0, 2.0, 3.0, 4.0], [40, 1, 1, 1, 1])
    turns, hardware = replace(turns, answer_segment=[1, -1, -1, -1, -1]), replace(MS, kv_tokens=16 * 80)
    made = serve(turns, replace(host(500, 100.0), prompts_only=prompts_only), hardware=hardware)
    assert (made.hit_tokens + made.host_tokens).tolist() == [0, 0, found * 16, 0, later * 16]


X = stream([own(0, 1000)] * 2, [0.0, 0.6], [1] * 2)


def lost(down_s: float, up_s: float, event: str = "down") -> Timeline:
    return Timeline(detect_ms=0.0, happen=(Event(down_s, 0, event, 1.0), Event(up_s, 0, "up", 1.0)))


@pytest.mark.parametrize("event", ["down", "drain"])
@pytest.mark.parametrize(("kind", "loaded", "ms"), [("host", 0, 700), ("disk", 992, 799.2), ("shared", 992, 799.2)])
def test_what_its_disk_and_the_store_for_all_have_survives_a_gpu(event: str, kind: str, loaded: int, ms: float) -> None:
    """Its host's memory does not; one that comes back from being drained begins anew, too."""
    made = serve(X, Tiering(KV_BYTES, **{kind: tier(500)}), faults=lost(0.4, 0.5, event))
    assert (made.host_tokens + made.disk_tokens + made.shared_tokens).tolist() == [0, loaded]
    assert made.hit_tokens.tolist() == [0, 0]
    assert tokens_ms(X, made) == [100, ms]


@pytest.mark.parametrize(("down_s", "loaded", "ms"), [(0.15, 0, 700), (0.25, 992, 799.2)])
def test_what_was_not_stored_yet_is_not_there(down_s: float, loaded: int, ms: float) -> None:
    """From 100 to 199.2 ms it is."""
    made = serve(X, Tiering(KV_BYTES, shared=tier(500)), faults=lost(down_s, 0.3))
    assert made.shared_tokens.tolist() == [0, loaded]
    assert tokens_ms(X, made) == [100, ms]


def test_a_load_ends_with_its_gpu_and_is_asked_for_anew() -> None:
    """The third of `XYXYZX` is loaded from 600 ms on, until 650, and all of it from 660 to 759.2: the link is free. If
    it gave up at 640, Z behind it has room as soon as the GPU is back."""
    four = stream([own(i, 1000) for i in (0, 1, 0, 2)], [0.0, 0.3, 0.6, 0.601], [1] * 4)
    store, gone = Tiering(KV_BYTES, shared=tier(500)), lost(0.65, 0.66)
    made = serve(four, store, faults=gone)
    assert made.losses.tolist() == [0, 0, 1, 1]
    assert made.shared_tokens.tolist() == [0, 0, 992, 0]
    assert made.gpu_shared_tokens.tolist() == [720 + 992]
    assert tokens_ms(four, made)[:3] == [100, 400, 859.2]
    made = serve(replace(four, patience_s=[np.nan, np.nan, 0.04, np.nan]), store, faults=gone)
    assert made.losses.tolist() == [0, 0, 0, 1]
    assert tokens_ms(four, made)[3] == 760


# ---------------------------------------------------------------- as many GPUs as an autoscaler wants
def test_a_gpu_that_is_started_finds_what_one_that_was_switched_off_has_stored() -> None:
    """X and Y come at 0, to a GPU each. One request in flight a GPU is wanted, and looked at every 250 ms: none is at
    250, so GPU 1 is drained, and off at 500, with its host. X and Z come at 700, so that it is started at 750; Y, at
    760, goes there, and is in the store for all: it is loaded until 859.2 ms."""
    five = stream([own(i, 1000) for i in (0, 1, 0, 2, 1)], [0.0, 0.0, 0.7, 0.7, 0.76], [1, 1, 3, 3, 1])
    rule = HPA(interval_s=0.25, load="in_flight", target=1.0, least=1, initial=2, window_s=0.0)
    more = {"gpus": 2, "policy": LeastOutstanding(), "autoscaler": rule, "hardware": replace(STEP, kv_tokens=4800)}
    for tiers, found in ((Tiering(KV_BYTES, shared=tier(500)), 992), (host(500), 0)):
        made = serve(five, tiers, **more)
        assert made.gpu.tolist() == [0, 1, 0, 0, 1]
        assert (made.shared_tokens + made.host_tokens).tolist() == [0, 0, 0, 0, found]
        assert tokens_ms(five, made)[4] == pytest.approx(860 + found / 10)
        of_one = [(one.at_s, one.state.name) for one in made.history.gpu_states if one.gpu == 1]
        assert of_one[:4] == [(0.0, "READY"), (0.25, "OFF"), (0.75, "READY")]


# ---------------------------------------------------------------- what is not modelled
def test_what_does_not_go_with_tiers_is_one_line() -> None:
    one = stream([own(0, 100)], [0.0], [1])
    with pytest.raises(InvalidInput, match="engine Continuous has no fetch, offload and landed, and there are tiers"):
        serve(one, host(10), engine=Continuous())
    with pytest.raises(InvalidInput, match=r"engine\.scheduling_policy=priority is not valid; it must be fcfs where"):
        serve(one, host(10), engine=replace(VLLM_ALONE, scheduling_policy="priority"))
    with pytest.raises(InvalidInput, match=r"engine\.enable_prefix_caching=False is not valid; it must be true where"):
        serve(one, host(10), engine=replace(VLLM_ALONE, enable_prefix_caching=False))
