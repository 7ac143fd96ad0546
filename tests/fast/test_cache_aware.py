"""The cache-aware routers of SGLang and vLLM: what their recordings tell apart, and the rest against a plain model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.errors import InvalidInput
from prebleexp.policies.cache_aware import CacheAware, balance, follows
from prebleexp.policies.candidates import is_candidate
from prebleexp.policies.prefix_tree import node_of
from prebleexp.policies.sglang.cache_aware import SGLangCacheAware
from prebleexp.policies.stamped_tree import add, evict_each, take_up
from prebleexp.policies.vllm.cache_aware import VLLMCacheAware
from prebleexp.sim.records import NONE, View
from prebleexp.sim.types import Workload
from prebleexp.testing import check_policy
from tests.support.recordings.router_models import settings_of
from tests.support.recordings.routers import Driven, load, recordings, replay
from tests.support.recordings.routers import workload_of as paths_of
from tests.support.sampled import examples
from tests.support.strategies.paths import workload_of

pytestmark = pytest.mark.uncompiled


# ---------------------------------------------------------------- what recordings tell apart
@dataclass(frozen=True)
class LastHome(SGLangCacheAware):
    """Wrong: a node's home is the last GPU that got it."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        evict_each(mine.tree, self.eviction_interval_secs, now, self.max_tree_size / self.characters_per_token)
        gpu, imbalanced = balance(view, self.balance_abs_threshold, self.balance_rel_threshold)
        leaf, cut, shared, tokens = take_up(mine.tree, view, request)
        enough = follows(tokens, view.requests[request].prompt_tokens, self.cache_threshold)
        if not imbalanced and enough and is_candidate(view.candidates, mine.tree.rows[shared].home):
            gpu = mine.tree.rows[shared].home
        add(mine.tree, leaf, cut, gpu)
        node = leaf
        while node != 0:
            mine.tree.rows[node].home = gpu
            node = mine.tree.rows[node].parent
        return gpu


@dataclass(frozen=True)
class SmallestTree(SGLangCacheAware):
    """Wrong since December 2025: what matches too little goes to the GPU with the fewest tokens in the tree."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        evict_each(mine.tree, self.eviction_interval_secs, now, self.max_tree_size / self.characters_per_token)
        gpu, imbalanced = balance(view, self.balance_abs_threshold, self.balance_rel_threshold)
        leaf, cut, shared, tokens = take_up(mine.tree, view, request)
        if not imbalanced:
            if follows(tokens, view.requests[request].prompt_tokens, self.cache_threshold):
                gpu = mine.tree.rows[shared].home
            else:
                gpu = view.candidates[0]
                for other in view.candidates:
                    if mine.tree.held[other] < mine.tree.held[gpu]:
                        gpu = other
        if not is_candidate(view.candidates, gpu):
            gpu = view.candidates[0]
        add(mine.tree, leaf, cut, gpu)
        return gpu


def sglang(given: dict[str, Any], kind: type[SGLangCacheAware] = SGLangCacheAware, **changed: Any) -> CacheAware:
    return kind(**(given | {"characters_per_token": 1} | changed))


def by_vllms_rule(given: dict[str, Any]) -> CacheAware:
    size = {name: 8 * given[name] + 6 for name in ("max_tree_size",) if name in given}
    return VLLMCacheAware(**(given | size))


NEVER = 1 << 40
WRONG: dict[str, tuple[str, Callable[[dict[str, Any]], CacheAware], float]] = {
    # (recordings, wrong rule, share of all decisions that it gets wrong at least)
    "least loaded of all that have the node": ("sglang_cache_aware", by_vllms_rule, 0.04),
    "the last GPU that got the node": ("sglang_cache_aware", lambda given: sglang(given, LastHome), 0.03),
    "low match to the smallest tree": ("sglang_cache_aware", lambda given: sglang(given, SmallestTree), 0.04),
    "no load balancing": ("sglang_cache_aware", lambda given: sglang(given, balance_abs_threshold=NEVER), 0.04),
    "no eviction": ("sglang_cache_aware_evict", lambda given: sglang(given, max_tree_size=NEVER), 0.04),
    "vLLM by SGLang's rule": ("vllm_cache_aware", lambda given: sglang(given, characters_per_token=8), 0.04),
    "vLLM, no eviction": (
        "vllm_cache_aware_evict",
        lambda given: VLLMCacheAware(**given | {"max_tree_size": NEVER}),
        0.04,
    ),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.slow
def test_recordings_tell_another_rule(name: str) -> None:
    which, made, share = WRONG[name]
    loaded = [load(path) for path in recordings("routers") if path.stem.startswith(which)]
    decisions, wrong = sum(len(one["decisions"]) for one in loaded), 0
    for one in loaded:
        replayed = replay(one, made(settings_of(one)))
        wrong += replayed.decisions - replayed.agree
        if wrong > share * decisions:  # no more can make it right
            break
    print(f"{name}: at least {wrong} of {decisions} wrong")
    assert wrong > share * decisions


# ---------------------------------------------------------------- a plain model
@dataclass
class Node:
    edge: tuple[int, ...]
    """segment ids"""
    above: Node | None
    home: int
    stamps: dict[int, int] = field(default_factory=dict)


class Model:
    """The rule in plain Python: a list of nodes, searched from one end to the other."""

    def __init__(self, policy: CacheAware, workload: Workload, gpus: int) -> None:
        self.policy, self.nodes, self.clock, self.passes = policy, list[Node](), 0, 0
        offsets, self.gpus = workload.segment_offsets, range(gpus)
        self.paths = [tuple(workload.segment_ids[a:b].tolist()) for a, b in pairwise(offsets)]
        self.sizes = dict(zip(workload.segment_ids.tolist(), workload.segment_tokens.tolist(), strict=True))

    def tokens(self, ids: tuple[int, ...]) -> int:
        return sum(self.sizes[one] for one in ids)

    def held(self, gpu: int) -> int:
        return sum(self.tokens(node.edge) for node in self.nodes if gpu in node.stamps)

    def tick(self) -> int:
        self.clock += 1
        return self.clock - 1

    def node_with(self, segment: int) -> Node | None:
        return next((node for node in self.nodes if segment in node.edge), None)

    def route(self, request: int, loads: list[int], candidates: set[int], home: Callable[[int], int]) -> int:
        """`home` says who took the place of a home that is gone, of the node that ends with a segment."""
        policy, path = self.policy, self.paths[request]
        known = [one for one in path if self.node_with(one)]
        last = self.node_with(known[-1]) if known else None
        share = np.float32(self.tokens(tuple(known)) / self.tokens(path))
        enough, least = share > np.float32(policy.cache_threshold), self.least(loads, candidates)
        among = [loads[gpu] for gpu in candidates]
        apart = max(among) - min(among) > policy.balance_abs_threshold
        if apart and max(among) > min(among) * policy.balance_rel_threshold:
            return least
        if isinstance(policy, VLLMCacheAware):
            holders = candidates & set(last.stamps) if last is not None and enough else set()
            return self.least(loads, holders or candidates)
        epoch = self.tick()
        if last is None:
            return least
        if last.home not in last.stamps and (enough or len(last.stamps) == 1):
            last.home = home(known[-1])
            assert last.home in last.stamps
        elif last.home not in last.stamps:
            last.home = NONE
        if epoch % 8 == 0 and last.home in last.stamps:
            last.stamps[last.home] = epoch
        return last.home if enough and last.home in candidates else least

    @staticmethod
    def least(loads: list[int], among: set[int]) -> int:
        return min(among, key=lambda gpu: (loads[gpu], gpu))

    def add(self, request: int, gpu: int) -> None:
        path, above = self.paths[request], None
        while path:
            node = self.node_with(path[0])
            if node is None:
                self.nodes.append(node := Node(path, above, gpu, {gpu: 0}))
            shared = sum(one in path for one in node.edge)
            if shared < len(node.edge):
                upper = Node(node.edge[:shared], above, node.home, dict(node.stamps))
                self.nodes.append(upper)
                node.edge, node.above, node = node.edge[shared:], upper, upper
            node.stamps.setdefault(gpu, 0)
            path, above = path[shared:], node
        assert above is not None
        above.stamps[gpu] = self.tick()

    def evict(self, now: float, most: float) -> None:
        passes, self.passes = self.passes, int(now // self.policy.eviction_interval_secs)  # type: ignore[attr-defined]
        for gpu in self.gpus if self.passes > passes else ():
            while self.held(gpu) > max(most, 0):
                inner = [node.above for node in self.nodes if gpu in node.stamps]
                leaves = [node for node in self.nodes if gpu in node.stamps and not any(node is one for one in inner)]
                stalest = sorted(node.stamps[gpu] for node in leaves)
                assert len(stalest) < 2 or stalest[0] < stalest[1], "a tie"
                del next(node for node in leaves if node.stamps[gpu] == stalest[0]).stamps[gpu]
        self.nodes = [node for node in self.nodes if node.stamps]

    def forget(self, gpu: int) -> None:
        """It is lost."""
        for node in self.nodes:
            node.stamps.pop(gpu, None)
        self.nodes = [node for node in self.nodes if node.stamps]

    def stamps(self, gpu: int) -> dict[int, int]:
        """By the last segment of a node."""
        return {node.edge[-1]: node.stamps[gpu] for node in self.nodes if gpu in node.stamps}


def links(tree: Any) -> set[tuple[int, int]]:
    """The last segment of a node, and a GPU that has it."""
    found = set()
    for node in set(tree.begins.tolist()) - {0}:
        link = node
        while link != NONE:
            if tree.rows[link].gpu != NONE:
                found.add((int(tree.rows[node].last), int(tree.rows[link].gpu)))
            link = int(tree.rows[link].next)
    return found


def listed(tree: Any, gpu: int) -> list[int]:
    """The last segments of the nodes in a GPU's list, the stalest first."""
    found, link = [], int(tree.stalest[gpu])
    while link != NONE:
        found.append(int(tree.rows[node_of(tree, link)].last))
        link = int(tree.rows[link].behind)
    return found


def home_of(tree: Any, segment: int) -> int:
    """Of the node that goes through the segment's end."""
    nodes = set(tree.begins.tolist()) - {0}
    return next(int(tree.rows[node].home) for node in nodes if tree.rows[node].last == segment)


@st.composite
def stories(draw: st.DrawFn) -> tuple[Workload, int, dict[str, Any], list[tuple[float, list[int], list[int], int]]]:
    """Prompts that branch a lot, in a tree that has room for few; what is outstanding, who may be asked, and
    who was lost before."""
    n, gpus = draw(st.integers(1, 40)), draw(st.sampled_from([1, 2, 5]))
    prompts = draw(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=n, max_size=n))
    given = {
        "cache_threshold": draw(st.sampled_from([0.0, 0.3, 0.7, 1.0])),
        "balance_abs_threshold": draw(st.integers(0, 3)),
        "balance_rel_threshold": draw(st.sampled_from([1.0, 1.5])),
        "eviction_interval_secs": draw(st.integers(1, 3)),
        "max_tree_size": draw(st.integers(1, 400)),
    }
    loads = st.lists(st.integers(0, 4), min_size=gpus, max_size=gpus)
    every = st.just(list(range(gpus)))
    some = st.sets(st.integers(0, gpus - 1), min_size=1).map(sorted)
    lost = st.sampled_from([NONE] * 4 * gpus + list(range(gpus)))
    steps = st.tuples(st.sampled_from([0.0, 0.1, 1.0, 7.0]), loads, every | some, lost)
    return workload_of(prompts, [0.0] * n, [1] * n, 1), gpus, given, draw(st.lists(steps, min_size=n, max_size=n))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SGLangCacheAware, VLLMCacheAware])
@settings(max_examples=examples(120), deadline=None)
@given(stories())
def test_it_decides_and_evicts_as_the_plain_model(kind: type[CacheAware], story: Any) -> None:
    workload, gpus, given_, steps = story
    policy = kind(**given_)
    driven, model, now = Driven(policy, workload, gpus), Model(policy, workload, gpus), 0.0
    most = (policy.max_tree_size - 6) / 8 if kind is VLLMCacheAware else policy.max_tree_size / 4  # type: ignore[attr-defined]
    for request, (passed, loads, candidates, lost) in enumerate(steps):
        now += passed
        if lost != NONE:
            driven.changed(lost, now)
            model.forget(lost)
        driven.sent.outstanding = loads
        driven.offers(candidates)
        made = driven.decide(request, now)
        model.evict(now, most)
        tree = getattr(driven.mine, "tree", driven.mine)
        assert made == model.route(request, loads, set(candidates), partial(home_of, tree))
        model.add(request, made)
        assert links(tree) == {(last, gpu) for gpu in range(gpus) for last in model.stamps(gpu)}
        for gpu in range(gpus):
            assert listed(tree, gpu) == sorted(listed(tree, gpu), key=model.stamps(gpu).__getitem__)
        assert tree.held.tolist() == [model.held(gpu) for gpu in range(gpus)]


# ---------------------------------------------------------------- by hand
def unshared(requests: int, tokens: int) -> Workload:
    return paths_of([[(one, tokens)] for one in range(requests)])


@pytest.mark.slow
def test_rows_of_dropped_nodes_come_back() -> None:
    """20 prompts a second on two GPUs, each of which may have 10 of them when the second is over."""
    policy = SGLangCacheAware(eviction_interval_secs=1, max_tree_size=4000)
    driven = Driven(policy, unshared(1000, 100), 2)
    for request in range(1000):
        gpu = driven.decide(request, request / 20)
        driven.sends(request, gpu)
        driven.finished(request, request / 20)
        assert driven.mine.tree.held[gpu] <= 100 * (10 + 20)
    assert driven.mine.tree.control.rows <= 1 + 2 * 10 + 20


def test_a_match_at_each_eighth_tick_keeps_what_it_has_found() -> None:
    """Request 4 leaves the first prompt within its node at tick 8. No recording shows it."""
    prompts = [[(0, 50), (1, 50)], [(2, 100)], [(3, 100)], [(4, 100)], [(0, 50), (5, 10)], [(6, 10)]]
    driven = Driven(SGLangCacheAware(eviction_interval_secs=10, max_tree_size=4 * 350), paths_of(prompts), 1)
    for request in range(6):
        driven.decide(request, 2.0 * request)
    assert listed(driven.mine.tree, 0) == [3, 4, 1, 5, 6]


def test_any_of_those_that_have_a_prefix_takes_the_place_of_its_first() -> None:
    """GPU 0 gets a prefix first, 1 and 2 while it has too much to do. A prompt of its own then makes 0 lose it, and one
    that matches too little of it brings it back there, which settles nothing."""
    prefix = (0, 60)
    prompts = [[prefix, (one, 20)] for one in (1, 2, 3)] + [[(4, 200)], [prefix, (5, 500)], [prefix, (6, 20)]]
    policy = SGLangCacheAware(eviction_interval_secs=10, max_tree_size=4 * 200, balance_abs_threshold=1)
    driven = Driven(policy, paths_of([*prompts, [prefix, (7, 20)]]), 3)
    for request, loads in enumerate([(0, 0, 0), (9, 0, 1), (9, 1, 0), (0, 1, 1)]):
        driven.sent.outstanding = loads
        assert driven.decide(request, 0.0) == (0, 1, 2, 0)[request]
    driven.sent.outstanding = 0
    assert driven.decide(4, 10.0) == 0
    counts = np.bincount(driven.answers(5, 10.0, 1000), minlength=3)
    assert counts.min() > 280
    assert driven.decide(5, 10.0) == driven.decide(6, 10.0)


def test_each_evictions_time_counts_from_the_start_and_once() -> None:
    policy = VLLMCacheAware(eviction_interval_secs=10, max_tree_size=8 * 100 + 6)
    driven = Driven(policy, unshared(6, 100), 1)
    held = []
    for request, now in enumerate((0.0, 9.9, 10.0, 11.0, 45.0, 49.9)):
        driven.decide(request, now)
        held.append(driven.mine.held[0])
    assert held == [100, 200, 200, 300, 200, 300]


def test_one_beyond_the_size_is_dropped() -> None:
    for size, left in ((8 * 200 + 6, 200), (8 * 200 + 5, 100)):
        driven = Driven(VLLMCacheAware(eviction_interval_secs=10, max_tree_size=size), unshared(3, 100), 1)
        for request, now in enumerate((0.0, 1.0, 10.0)):
            driven.decide(request, now)
        assert driven.mine.held[0] == left + 100


@pytest.mark.parametrize(
    ("loads", "relative", "imbalanced"),
    [
        ((0, 64), 1.5, False),
        ((0, 65), 1.5, True),
        ((130, 195), 1.5, False),
        ((130, 196), 1.5, True),
        ((0, 65), 9.0, True),
    ],
)
def test_loads_are_too_far_apart_beyond_both_thresholds(
    loads: tuple[int, int], relative: float, imbalanced: bool
) -> None:
    driven = Driven(SGLangCacheAware(balance_rel_threshold=relative), unshared(2, 100), 2)
    driven.decide(0, 0.0)
    driven.sent.outstanding = loads
    assert balance(cast("View", driven.view), 64, relative) == (0, imbalanced)


@pytest.mark.parametrize(
    ("kind", "changed", "name"),
    [
        (SGLangCacheAware, {"cache_threshold": 1.1}, "cache_threshold"),
        (SGLangCacheAware, {"balance_abs_threshold": -1}, "balance_abs_threshold"),
        (SGLangCacheAware, {"balance_abs_threshold": 0.5}, "balance_abs_threshold"),
        (SGLangCacheAware, {"balance_rel_threshold": 0.9}, "balance_rel_threshold"),
        (SGLangCacheAware, {"characters_per_token": 0}, "characters_per_token"),
        (VLLMCacheAware, {"eviction_interval_secs": 0}, "eviction_interval_secs"),
        (VLLMCacheAware, {"max_tree_size": 0}, "max_tree_size"),
    ],
)
def test_what_is_not_valid_is_named(kind: type[CacheAware], changed: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidInput, match=rf"policy\.{name}={changed[name]} is not valid"):
        kind(**changed)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [SGLangCacheAware(), VLLMCacheAware()], ids=lambda policy: type(policy).__name__)
def test_a_contract_of_all_policies(policy: CacheAware) -> None:
    check_policy(policy)
