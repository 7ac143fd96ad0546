"""Routers by hashes, sessions and counts: what recordings do not cover, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import prebleexp
from prebleexp.errors import InvalidInput
from prebleexp.policies import keys
from prebleexp.policies.aibrix.least_request import AIBrixLeastRequest
from prebleexp.policies.base import Policy
from prebleexp.policies.hashes import Hashes, of_prefixes, xxh64
from prebleexp.policies.kubeai.chwbl import KubeAICHWBL
from prebleexp.policies.kubeai.least_load import KubeAILeastLoad, slots
from prebleexp.policies.production_stack.session import ProductionStackSession
from prebleexp.policies.ring import OnRing, clockwise, places, ring
from prebleexp.policies.sglang.consistent_hashing import SGLangConsistentHashing
from prebleexp.policies.sglang.manual import SGLangManual
from prebleexp.policies.sglang.power_of_two import SGLangPowerOfTwo
from prebleexp.policies.sglang.prefix_hash import SGLangPrefixHash
from prebleexp.policies.vllm.consistent_hash import VLLMConsistentHash
from prebleexp.policies.vllm.dplb import VLLMDataParallel
from prebleexp.policies.vllm.furc import furc, number_of, texts
from prebleexp.policies.vllm.highest import highest, read_numbers, tails
from prebleexp.policies.vllm.power_of_two import VLLMPowerOfTwo
from prebleexp.policies.vllm.sticky_least_loaded import VLLMStickyLeastLoaded
from prebleexp.sim.records import NONE, View
from prebleexp.sim.types import Setup, Workload
from prebleexp.testing import check_policy
from tests.support.recordings.routers import Driven, workload_of
from tests.support.sampled import sampled

pytestmark = pytest.mark.uncompiled

BY_SESSION = (
    "sglang_consistent_hashing",
    "sglang_manual",
    "vllm_consistent_hash",
    "vllm_sticky_least_loaded",
    "production_stack_session",
)
ALL: tuple[Policy, ...] = (
    AIBrixLeastRequest(),
    KubeAICHWBL(),
    KubeAILeastLoad(),
    ProductionStackSession(),
    SGLangConsistentHashing(),
    SGLangConsistentHashing(ring=True),
    SGLangManual(),
    SGLangManual("min_load"),
    SGLangManual("min_group"),
    SGLangPowerOfTwo(),
    SGLangPrefixHash(),
    VLLMConsistentHash(),
    VLLMDataParallel(),
    VLLMDataParallel("old", client_count=3, client_index=1),
    VLLMPowerOfTwo(),
    VLLMStickyLeastLoaded(),
)


@pytest.mark.thorough
@pytest.mark.uncompiled(False)
@pytest.mark.parametrize("policy", sampled(ALL, len(ALL)), ids=repr)
def test_it_passes_the_contract(policy: Policy) -> None:
    check_policy(policy)


@pytest.mark.parametrize("policy", BY_SESSION)
def test_what_routes_by_session_says_that_there_is_none(policy: str) -> None:
    with pytest.raises(InvalidInput, match=r"^policy \w+ routes by session, and no request .* is of one$"):
        prebleexp.run(policy=policy, workload="react", rps=4, duration_s=2, cache_dir=None)


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        (SGLangConsistentHashing, {"ring": 1}, "policy.ring=1 is not valid; it must be true or false"),
        (SGLangManual, {"assignment_mode": "any"}, "one of random, min_load, min_group"),
        (SGLangManual, {"max_idle_secs": 0}, "policy.max_idle_secs=0 .* a number > 0"),
        (SGLangManual, {"eviction_interval_secs": True}, "policy.eviction_interval_secs=True"),
        (SGLangPrefixHash, {"prefix_token_count": 0}, "policy.prefix_token_count=0 .* an integer >= 1"),
        (SGLangPrefixHash, {"load_factor": 0}, "policy.load_factor=0 .* a number > 0"),
        (VLLMDataParallel, {"score": "newer"}, "policy.score=newer .* one of old, new"),
        (VLLMDataParallel, {"client_count": 0}, "policy.client_count=0 .* an integer >= 1"),
        (VLLMDataParallel, {"client_count": 2, "client_index": 2}, "policy.client_index=2 .* from 0 to 1"),
        (ProductionStackSession, {"request_stats_window": -1}, "request_stats_window=-1 .* a number of seconds > 0"),
        (KubeAICHWBL, {"mean_load_percentage": 99}, "policy.mean_load_percentage=99 .* an integer >= 100"),
        (KubeAICHWBL, {"replication": 0}, "policy.replication=0"),
        (KubeAICHWBL, {"prefix_char_length": 0.5}, "policy.prefix_char_length=0.5"),
        (KubeAICHWBL, {"characters_per_token": 0}, "policy.characters_per_token=0 .* a number > 0"),
    ],
)
def test_settings_are_checked(kind: Any, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        kind(**settings)


# ---------------------------------------------------------------- driving them
def driven(policy: Policy, sessions: Sequence[int], gpus: int) -> Driven:
    """Each request's prompt is its own."""
    prompts = [[(request, 10)] for request in range(len(sessions))]
    return Driven(policy, workload_of(prompts, sessions=sessions), gpus)


def send(router: Driven, request: int, now: float = 0.0) -> int:
    gpu = router.decide(request, now)
    router.sends(request, gpu)
    return gpu


def setup_of(workload: Workload, gpus: int = 4) -> Setup:
    return Setup(gpus, 0, len(workload), 1000, 1000, workload)


# ---------------------------------------------------------------- the ring
def by_number(names: Sequence[str]) -> Hashes:
    """`worker-g/p`: 100 p, but for worker 2, whose points are worker 1's; other names are numbers."""
    workers = [name.removeprefix("worker-").split("/") for name in names]
    found = [100 * int(one[1]) + 10 * min(1, int(one[0])) if len(one) == 2 else int(one[0]) for one in workers]
    return np.array(found, np.uint64)


def test_a_ring_goes_clockwise_and_of_equal_points_the_last_remains() -> None:
    """Points of GPU 0 at 0 and 100, of GPU 2 at 10 and 110, where GPU 1 had them first."""
    made = ring(setup_of(workload_of([[(0, 1)]]), 3), by_number, "{}/{}", 2)
    assert made.points.tolist() == [0, 10, 100, 110]
    assert made.workers.tolist() == [0, 2, 0, 2]
    assert places(made, np.array([0, 1, 10, 11, 101, 111, 2**64 - 1], np.uint64)).tolist() == [0, 1, 1, 2, 3, 0, 0]


@dataclass(frozen=True)
class AtMost(Policy):
    """The first clockwise with so many requests, from where the request's number says."""

    most: float = 2.0

    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> OnRing:
        made = ring(setup, by_number_of_three, "{}/{}", 1)
        return OnRing(made, places(made, np.arange(setup.requests, dtype=np.uint64)))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return clockwise(mine.ring, mine.places[request], view, self.most)


def by_number_of_three(names: Sequence[str]) -> Hashes:
    return np.array([int(name.removeprefix("worker-").split("/")[0]) for name in names], np.uint64)


def test_who_has_too_many_is_passed_over_and_so_is_who_is_no_candidate() -> None:
    router = driven(AtMost(), [-1, -1, -1], 3)
    router.sent.outstanding[:] = [3, 3, 2]
    assert [router.decide(request, 0.0) for request in range(3)] == [2, 2, 2]
    router.sent.outstanding[:] = [0, 3, 3]
    assert [router.decide(request, 0.0) for request in range(3)] == [0, 0, 0]
    router.sent.outstanding[:] = 3
    assert [router.decide(request, 0.0) for request in range(3)] == [0, 1, 2]
    some = AtMost().start(setup_of(workload_of([[(0, 1)]] * 3), 3))
    view = router.view.value._replace(candidates=np.array([0, 2]))
    assert [clockwise(some.ring, place, view, 9.0) for place in range(3)] == [0, 2, 2]
    assert [clockwise(some.ring, place, view, 2.0) for place in range(3)] == [0, 2, 2]


# ---------------------------------------------------------------- what is hashed
def test_prompts_that_begin_alike_have_one_name() -> None:
    """Of 8 tokens: A, and what goes on from it, agree; B ends before; C is cut in its second segment."""
    a, b, c = [(1, 8)], [(2, 5)], [(2, 5), (3, 9)]
    prompts = [a, [*a, (4, 1)], b, c, [(2, 5), (5, 3)], [(6, 20)]]
    names: list[str] = []

    def heard(given: Sequence[str]) -> Hashes:
        names.extend(given)
        return np.arange(len(given), dtype=np.uint64)

    made = of_prefixes(setup_of(workload_of(prompts)), 8, heard).tolist()
    assert made[0] == made[1]
    assert len(set(made)) == 5
    assert sorted(names) == [f"prefix-{id}-{tokens}" for id, tokens in ((0, 8), (2, 5), (3, 8), (4, 8), (5, 8))]


def test_furc_takes_as_many_bits_as_there_are_below_the_first_one() -> None:
    """Bit s of the low 24 is the highest that is set: the number has s bits, a one and those at s + 23, s + 46 …"""
    assert [number_of(np.uint64(first)) for first in (0, 1 << 24, 1, 2, 3)] == [0, 0, 1, 1, 1]
    assert [number_of(np.uint64(first)) for first in (4, 4 | 1 << 25, 4 | 1 << 48)] == [2, 3, 2]
    many = (8, 8 | 1 << 26, 8 | 1 << 49, 8 | 1 << 26 | 1 << 49)
    assert [number_of(np.uint64(first)) for first in many] == [4, 6, 5, 7]
    assert len(set(furc([f"{one}" for one in range(1000)]).tolist())) > 990
    assert furc([""]).dtype == np.uint64


def test_the_highest_hash_behind_a_name_is_that_of_both() -> None:
    """Names of all lengths, so that the first ends anywhere within a word; the first of two that are alike."""
    rng = np.random.default_rng(0)
    heads = ["".join(map(chr, rng.integers(48, 123, length))) for length in range(40)]
    ends = [*("", ":a", ":a", ":worker-7", ":worker-10", ":worker-11", "-a name of many letters"), *map(str, range(20))]
    known, asked = tails(ends), texts(heads)
    for number, head in enumerate(heads):
        some = np.sort(rng.choice(len(ends), rng.integers(1, len(ends)), replace=False))
        known.some[: len(some)] = some
        hashes = furc([head + ends[one] for one in some])
        assert highest(known, len(some), asked, number) == some[np.argmax(hashes)]


def test_numbers_are_read_side_by_side_as_one_by_one() -> None:
    """No bit is set where a one is sought, the lowest is, some are."""
    firsts = [0, 1 << 24, 1, 2, 3, 4 | 1 << 25, 8 | 1 << 26 | 1 << 49, (1 << 64) - 1]
    known = tails([""] * len(firsts))
    known.hashes[:] = firsts
    with np.errstate(over="ignore"):
        read_numbers(known, len(firsts))
        assert known.numbers.tolist() == [number_of(np.uint64(first)) for first in firsts]


# ---------------------------------------------------------------- SGLang
def test_a_session_stays_until_a_pass_finds_it_idle() -> None:
    """Passes each 60 s. Session 0 was used at 10: at 120 it was idle for 110 s, at 60 not yet for 100."""
    policy = SGLangManual("min_load", max_idle_secs=100)
    for now, expected in ((119.0, 0), (120.0, 1)):
        router = driven(policy, [0, 0], 2)
        router.sent.outstanding[1] = 1
        assert send(router, 0, 10.0) == 0
        router.sent.outstanding[:] = [5, 0]
        assert send(router, 1, now) == expected


def test_sessions_with_unfinished_requests_count_once() -> None:
    """Session 0 has two requests, session 1 one, each on a GPU of its own; a third GPU has none."""
    router = driven(SGLangManual("min_group"), [0, 0, 1, 2, 3, -1], 3)
    first = send(router, 0)
    assert send(router, 1) == first
    second = send(router, 2)
    assert router.mine.groups.tolist() == [int(gpu in (first, second)) for gpu in range(3)]
    third = send(router, 3)
    assert {first, second, third} == {0, 1, 2}
    router.finished(0, 0.0)
    assert router.mine.groups.tolist() == [1, 1, 1]
    router.finished(1, 0.0)
    assert router.mine.groups[first] == 0
    assert send(router, 4) == first
    router.sends(5, 0)
    router.finished(5, 0.0)
    assert router.mine.groups.tolist() == [1, 1, 1]


RUNS = {
    ("min_load", ""): "30212013203132101023230103210123",
    ("min_group", ""): "00333023213300000101200123300230",
    ("min_load", "AAAAABCDEFGH"): "333330212100",
    ("min_group", "AAAAABCDEFGH"): "333331023201",
}
"""of the wheel with 4 workers that never answer: by mode and sessions, where each request went; without a letter it is
of no session"""


@pytest.mark.parametrize(("mode", "letters"), RUNS)
def test_it_assigns_as_the_wheel_was_seen_to(mode: str, letters: str) -> None:
    """The other mode does not, but for requests without a session: of those no session has any."""
    for other in ("min_load", "min_group"):
        decisions = [int(one) for one in RUNS[mode, letters]]
        sessions = [ord(one) - ord("A") for one in letters] or [-1] * len(decisions)
        router = driven(SGLangManual(other), sessions, 4) if letters else driven(SGLangManual(other), [*sessions, 0], 4)
        agree = []
        for request, gpu in enumerate(decisions):
            agree.append(router.may_decide(request, 0.0, gpu))
            router.sends(request, gpu)
        assert all(agree) == (other == mode or (mode, letters) == ("min_load", ""))


def test_a_session_that_moves_counts_where_it_was_until_its_request_ends() -> None:
    """It has an unfinished request on GPU 0 when it is forgotten and goes to GPU 1."""
    router = driven(SGLangManual("min_load", max_idle_secs=1, eviction_interval_secs=1), [0, 0], 2)
    router.sent.outstanding[1] = 1
    assert send(router, 0, 0.0) == 0
    router.sent.outstanding[:] = [5, 0]
    assert send(router, 1, 7.0) == 1
    assert router.mine.groups.tolist() == [1, 1]
    router.finished(0, 8.0)
    assert router.mine.groups.tolist() == [0, 1]
    router.finished(1, 9.0)
    assert router.mine.groups.tolist() == [0, 0]


def test_a_session_goes_back_to_its_first_gpu_and_remembers_two() -> None:
    router = driven(SGLangManual("min_load"), [0] * 5, 3)
    offered = [[0], [1], [0, 1, 2], [2], [0, 1, 2]]
    for request, candidates in enumerate(offered):
        router.offers(candidates)
        send(router, request, float(request))
        router.finished(request, float(request))
    assert router.requests.gpu.tolist() == [0, 1, 0, 2, 1]


def test_power_of_two_goes_by_tokens_in_use_and_waiting() -> None:
    router = driven(SGLangPowerOfTwo(), [-1], 2)
    router.gpus.kv_tokens, router.gpus.kv_free = 100, 100
    assert set(router.answers(0, 0.0, 40)) == {0, 1}
    router.sent.outstanding[0] = 50
    assert set(router.answers(0, 0.0, 40)) == {0, 1}, "what it has sent does not count"
    router.gpus.waiting_tokens[0] = 1
    assert set(router.answers(0, 0.0, 40)) == {1}
    router.gpus.kv_free[1], router.gpus.evictable[1] = 10, 89
    assert set(router.answers(0, 0.0, 40)) == {0, 1}, "what only the cache holds does not count"
    router.gpus.evictable[1] = 88
    assert set(router.answers(0, 0.0, 40)) == {0}


def test_hashed_by_prefix_what_is_over_the_bound_goes_to_the_least_loaded() -> None:
    """3 GPUs, bound (total + 1) / 3 · 1.25."""
    policy = SGLangPrefixHash()
    home = send(driven(policy, [-1], 3), 0)
    others = [gpu for gpu in range(3) if gpu != home]
    for loads, expected in (([0, 0, 0], home), ([4, 3, 2], home), ([5, 3, 2], others[1]), ([5, 2, 2], others[0])):
        router = driven(policy, [-1], 3)
        for gpu, load in zip((home, *others), loads, strict=True):
            router.sent.outstanding[gpu] = load
        assert send(router, 0) == expected
    nobody = driven(SGLangPrefixHash(load_factor=0.1), [-1], 3)
    nobody.sent.outstanding[:] = [3, 3, 3]
    assert send(nobody, 0) == home


@pytest.mark.parametrize("policy", [SGLangConsistentHashing(), SGLangConsistentHashing(ring=True)])
def test_requests_without_a_session_are_drawn(policy: Policy) -> None:
    router = driven(policy, [0, -1], 4)
    assert len(set(router.answers(0, 0.0, 20))) == 1
    assert set(router.answers(1, 0.0, 80)) == {0, 1, 2, 3}


def test_on_a_ring_few_sessions_move_when_a_gpu_is_added() -> None:
    """A twelfth or so of them; by the remainder nearly all."""
    moved = {}
    for with_ring in (False, True):
        policy = SGLangConsistentHashing(ring=with_ring)
        small, large = (driven(policy, range(600), gpus) for gpus in (11, 12))
        moved[with_ring] = np.mean([small.decide(one, 0.0) != large.decide(one, 0.0) for one in range(600)])
    assert moved[True] < 0.15
    assert moved[False] > 0.8


# ---------------------------------------------------------------- vLLM
def test_without_a_session_the_prompt_is_hashed() -> None:
    """Requests 0 and 1 have one prompt, and no session; those behind have prompts of their own."""
    prompts = [[(0, 10)], [(0, 10)]] + [[(request, 10)] for request in range(1, 40)]
    router = Driven(VLLMConsistentHash(), workload_of(prompts, sessions=[-1] * 40 + [0]), 4)
    made = [send(router, request) for request in range(40)]
    assert made[0] == made[1]
    assert set(made) == {0, 1, 2, 3}


def test_sticky_sessions_are_forgotten_two_hours_after_their_last_use() -> None:
    """Sessions 0, 1, 2 on 3 GPUs. 0 is used again at an hour; at two hours and a bit 1 and 2 have left, so that new
    ones go there and not to 0's."""
    router = driven(VLLMStickyLeastLoaded(), [0, 1, 2, 0, 3, 4, -1, 0], 3)
    first = [send(router, request, float(request)) for request in range(3)]
    assert sorted(first) == [0, 1, 2]
    assert send(router, 3, 3600.0) == first[0]
    assert send(router, 4, 7202.5) in first[1:]
    assert router.mine.counts.sum() == 2
    assert send(router, 5, 7202.5) in first[1:]
    assert router.mine.counts.tolist() == [1, 1, 1]
    assert send(router, 6, 7300.0) == 0, "without a session: the first of those with the fewest"
    assert router.mine.counts.tolist() == [1, 1, 1]
    assert send(router, 7, 3600.0 + 7200.0) == first[0]


def test_a_sticky_session_that_is_used_is_last_to_go() -> None:
    router = driven(VLLMStickyLeastLoaded(), [0, 1, 2, 1, 0, 2], 4)
    for request, now in enumerate((0.0, 1.0, 2.0, 3.0, 4.0, 5.0)):
        send(router, request, now)
    order, session = [], int(router.mine.ends[0])
    while session != NONE:
        order.append(session)
        session = int(router.mine.sessions[session].behind)
    assert order == [1, 0, 2]
    assert int(router.mine.ends[1]) == 2


def test_a_publication_replaces_what_was_added() -> None:
    """Old: from GPU 0 on. Three requests are spread; then it is published that 0 and 1 run one each."""
    router = driven(VLLMDataParallel("old"), [-1] * 6, 3)
    assert [send(router, request) for request in range(4)] == [0, 1, 2, 0]
    router.gpus.running[:] = [1, 1, 0]
    assert send(router, 4) == 2
    router.gpus.running[:] = 0
    router.gpus.window_prompt_tokens[:] = 20
    assert send(router, 5) == 0, "all has come and gone since: that is news too"


def test_no_news_is_no_publication() -> None:
    router = driven(VLLMDataParallel("new"), [-1] * 5, 2)
    router.gpus.running[:] = [2, 0]
    made = [send(router, request) for request in range(5)]
    assert made == [1, 1, 0, 1, 0]
    assert router.mine.waiting.tolist() == [2, 3]


def test_the_new_score_shuns_queues_where_memory_is_full() -> None:
    """One waits on each; GPU 0 runs nothing but has no memory left: 1 + 6 · 0.5 against 1 + 2."""
    router = driven(VLLMDataParallel("new"), [-1], 2)
    router.gpus.queued[:], router.gpus.running[:] = 1, [0, 2]
    router.gpus.kv_tokens, router.gpus.kv_free = 100, 100
    router.gpus.kv_free[0] = 0
    assert send(router, 0) == 1
    cached = driven(VLLMDataParallel("new"), [-1], 2)
    cached.gpus.queued[:], cached.gpus.running[:] = 1, [0, 2]
    cached.gpus.kv_tokens, cached.gpus.kv_free = 100, 100
    cached.gpus.kv_free[0], cached.gpus.evictable[0] = 0, 100
    assert send(cached, 0) == 0, "what only the cache holds is free"


# ---------------------------------------------------------------- KubeAI
def test_characters_become_tokens() -> None:
    """100 characters are 25 tokens: prompts that agree in these have one place, whatever follows."""
    shared = [[(0, 25), (1, 5)], [(0, 25), (2, 5)]]
    other = [[(3, 24), (4, 6)], [(3, 24), (5, 6)]]
    workload = workload_of([*shared, *other])
    made = KubeAICHWBL().start(setup_of(workload)).places
    assert made[0] == made[1]
    assert made[2] != made[3]
    assert len(KubeAICHWBL(characters_per_token=1e9).start(setup_of(workload)).places) == 4


def test_go_maps_fill_groups_from_the_first_slot_on() -> None:
    rng = np.random.default_rng(0)
    assert slots(5, rng).tolist() == [0, 1, 2, 3, 4, -1, -1, -1]
    for gpus, size in ((8, 8), (9, 16), (14, 16), (15, 32), (256, 512)):
        made = slots(gpus, rng)
        assert len(made) == size
        assert sorted(made[made != NONE].tolist()) == list(range(gpus))
        held = (made.reshape(-1, 8) != NONE).astype(int)
        assert (np.diff(held, axis=1) <= 0).all()


def test_of_equals_the_first_in_the_map_is_met_most() -> None:
    """Slots 4 to 7 of 8 are empty, so that a look from there meets slot 0: five times of eight."""
    router = driven(KubeAILeastLoad(), [-1], 4)
    share = np.bincount(router.answers(0, 0.0, 4000), minlength=4) / 4000
    assert share == pytest.approx([5 / 8, 1 / 8, 1 / 8, 1 / 8], abs=0.03)
    router.sent.outstanding[:] = [1, 0, 0, 3]
    share = np.bincount(router.answers(0, 0.0, 4000), minlength=4) / 4000
    assert share == pytest.approx([0, 7 / 8, 1 / 8, 0], abs=0.03)


def test_names_are_fixed() -> None:
    assert (keys.worker(3), keys.session(4), keys.prefix(5, 6)) == ("worker-3", "session-4", "prefix-5-6")
    assert xxh64(["worker-30"]).tolist() == xxh64([keys.worker(30)]).tolist()
