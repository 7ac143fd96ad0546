"""What holds of policies with a tree, on random small streams: sums kept up to date are those made anew, nothing in use
is forgotten, GPUs' numbers mean nothing."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.launch import configure
from prebleexp.lengths.base import Lengths
from prebleexp.lengths.mean import Mean
from prebleexp.lengths.noisy import Noisy
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import Policy
from prebleexp.policies.e2 import DECODES, E2
from prebleexp.policies.e2_as_described.layout import (
    COLUMNS,
    LOAD_S,
    NEWEST,
    OLDEST,
    OUTPUT,
    REQUESTS,
    SHARE_NS,
    SHARE_OUTPUT,
    SWITCHES,
    THRESHOLDS,
    UNFINISHED,
    WORK_NS,
    column,
    scratch,
)
from prebleexp.policies.e2_released import ReleasedE2
from prebleexp.policies.least_work import LeastWork, _work_s
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.lor_tokens import LeastOutstandingTokens
from prebleexp.policies.replay import Replay
from prebleexp.policies.tpot import FLOATS, INTS
from prebleexp.sim import memory as memories
from prebleexp.sim.children import child_of
from prebleexp.sim.cost import prefill_s, request_ms
from prebleexp.sim.engine import Engine
from prebleexp.sim.memory import NONE, OUTPUT_UNIT, Tree
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Outcome, Workload
from tests.recordings import ROOT
from tests.routers import Router, free_rows, links_of, path_of
from tests.test_laws import A6000, workload_of, workloads

NAMES = sorted(path.stem for path in (ROOT / "conf" / "policy").glob("*.yaml"))
TREES: dict[str, Policy] = {
    "e2": E2(window_s=2),
    "e2_total": E2(window_s=2, decode="total", rebalance_threshold=1.0, replicate_factor=1.0),
    "e2_plain": E2(window_s=2, decode="none", decode_heavy_hit_ratio=None, eviction_cost=False),
    "lor_tokens": LeastOutstandingTokens(),
    "least_work": LeastWork(),
    "e2_released": ReleasedE2(),
    "e2_corrected": ReleasedE2(()),
}
DESCRIBED = [name for name, policy in TREES.items() if isinstance(policy, E2)]


def serve(workload: Workload, policy: Policy, gpus: int, *, kv: int = 600, lengths: Lengths | None = None) -> Outcome:
    return simulate(
        workload,
        gpus=gpus,
        policy=policy,
        hardware=replace(A6000, kv_tokens=kv),
        engine=Engine(),
        lengths=lengths or Mean(window=3),
        overhead=Overhead("recorded", 1e-3, 1e-4, 1e-5, 1e-6, 1e-7),
        duration_s=4.0,
        horizon="drain",
        seed=1,
    )


def assert_same(one: Outcome, other: Outcome, *, but: tuple[str, ...] = ()) -> None:
    for field in fields(Outcome):
        if field.name not in but:
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), err_msg=field.name)


# ---------------------------------------------------------------- whole runs
@cache
def all_policies() -> list[Any]:
    """Those of conf/policy that need no file."""
    return [configure.cells([f"policy={name}"])[0].policy for name in NAMES if name != "replay"]


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(workloads())
def test_with_one_gpu_all_policies_do_the_same(workload: Workload) -> None:
    first = serve(workload, LeastOutstanding(), 1)
    for policy in all_policies():
        assert_same(first, serve(workload, policy, 1), but=("overhead_s",))


def test_so_does_a_recording(tmp_path: Path) -> None:
    workload = workload_of([[0, 1], [0, 2], [0, 1]], [0.1, 0.2, 0.3], [5, 5, 5], 30)
    np.savez(tmp_path / "gpu.npz", gpu=np.zeros(3, int))
    replayed = serve(workload, Replay(str(tmp_path / "gpu.npz")), 1)
    assert_same(serve(workload, LeastOutstanding(), 1), replayed, but=("overhead_s",))


@pytest.mark.parametrize("decode", DECODES)
@settings(max_examples=25, deadline=None)
@given(workloads(), st.integers(2, 4), st.sampled_from([0.3, 2.0, 180.0]), st.sampled_from([600, 100_000]))
def test_sums_made_anew_are_those_kept_up_to_date(
    decode: str, workload: Workload, gpus: int, window_s: float, kv: int
) -> None:
    kept = E2(window_s=window_s, decode=decode)
    lengths = Noisy(sigma=0.5)
    anew = serve(workload, replace(kept, recompute=True), gpus, kv=kv, lengths=lengths)
    assert_same(serve(workload, kept, gpus, kv=kv, lengths=lengths), anew, but=("overhead_s",))


@pytest.mark.parametrize("name", sorted(TREES))
@settings(max_examples=10, deadline=None)
@given(workloads(), st.integers(2, 4), st.sampled_from([600, 100_000]))
def test_compiled_or_not_under_pressure(name: str, workload: Workload, gpus: int, kv: int) -> None:
    """With evictions, forgetting and rebalancing, which the tamer streams of test_policies hardly have."""
    policy = TREES[name]
    kind = type(policy)
    interpreted = type(kind.__name__, (kind,), {"compiled": False})
    given = {field.name: getattr(policy, field.name) for field in fields(kind)}
    assert_same(serve(workload, policy, gpus, kv=kv), serve(workload, interpreted(**given), gpus, kv=kv))


@pytest.mark.parametrize("name", sorted(TREES))
def test_growing_room_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    paths = [list(map(int, rng.integers(0, 3, size=rng.integers(1, 6)))) for _ in range(400)]
    workload = workload_of(paths, list(rng.uniform(0, 20, 400)), list(map(int, rng.integers(1, 60, 400))), 60)
    roomy = serve(workload, TREES[name], 3)
    monkeypatch.setattr(memories, "min", lambda *sizes: 1, raising=False)
    assert len(TREES[name].start(workload, 3, 0).tree.nodes) == 2
    assert_same(roomy, serve(workload, TREES[name], 3))


# ---------------------------------------------------------------- a policy by itself
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["route", "route", "finish", "evict", "shrink"]), st.integers(0, 99), st.floats(0, 0.6)),
    min_size=20,
    max_size=120,
)


def act(router: Router, actions: list[tuple[str, int, float]]) -> float:
    """Route, finish and evict as told, as far as that makes sense; returns the time at the end."""
    now, gpus = 0.0, len(router.gpus)
    for what, number, pause in actions:
        now += pause
        if what == "route" and len(router.routed) < len(router.requests):
            router.gpus[number % gpus].window_prompt_tokens += number
            router.gpus[number % gpus].window_hit_tokens += number // 2
            router.route(now)
        elif what == "finish" and router.unfinished:
            router.finish(router.unfinished[number % len(router.unfinished)], now, 0.01 * number, 1e-3 * number)
        elif what == "evict" and router.routed:
            request = number % len(router.routed)
            tokens = int(router.requests[request].prompt_tokens) * (number % 4) // 4
            router.evicted(request, router.routed[request], tokens, now)
        elif what == "shrink":
            gpu = router.gpus[number % gpus]
            gpu.kv_free, gpu.queued = number, min(number, gpu.outstanding)
            gpu.running, gpu.generated = gpu.outstanding - gpu.queued, number % 7
    return now


def stream(seed: int, n: int = 60) -> tuple[Workload, Any]:
    rng = np.random.default_rng(seed)
    paths = [list(map(int, rng.integers(0, 3, size=rng.integers(1, 6)))) for _ in range(n)]
    return workload_of(paths, list(np.arange(n)), [5] * n, 60), rng.uniform(1, 60, n)


def made(name: str, seed: int, gpus: int, actions: list[tuple[str, int, float]]) -> tuple[Router, float]:
    workload, expected = stream(seed)
    router = Router(TREES[name], workload, gpus, A6000, expected)
    return router, act(router, actions)


def test_such_actions_redirect_replicate_evict_and_forget() -> None:
    rng = np.random.default_rng(0)
    happened: Counter[str] = Counter()
    for seed in range(20):
        words = rng.choice(["route", "route", "finish", "evict", "shrink"], 150)
        actions = [(str(word), int(rng.integers(100)), float(rng.uniform(0, 0.3))) for word in words]
        router, _ = made("e2_total", seed % 10, 6, actions)
        tree, rows = router.memory.tree, router.memory.tree.routed[: len(router.routed)]
        links = [
            tree.links[link] for row in rows for node in safe_path(tree, int(row.leaf)) for link in links_of(tree, node)
        ]
        happened["redirected"] += any(link.successor != NONE for link in links)
        happened["replicated"] += any(link.replica for link in links)
        happened["evicted"] += any(not link.serves for link in links)
        happened["forgot"] += bool((rows.finished & rows.expired).any())
        happened["waits to be forgotten"] += bool((rows.expired & ~rows.finished & 1).any())
    assert len(+happened) == 5, happened


@pytest.mark.parametrize("name", DESCRIBED)
@settings(max_examples=80, deadline=None)
@given(st.integers(0, 9), st.integers(1, 6), ACTIONS)
def test_counts_are_those_of_the_requests(name: str, seed: int, gpus: int, actions: list[Any]) -> None:
    router, _ = made(name, seed, gpus, actions)
    tree, ints = router.memory.tree, router.memory.ints
    rows = tree.routed[: len(router.routed)]
    assert tree.control.routed == len(router.routed)
    assert rows.gpu.tolist() == router.routed
    inside = [i for i, row in enumerate(rows) if row.time >= (rows[-1].time - 2 if len(rows) else 0)]
    counting = sorted({*inside, *router.unfinished})
    users, active, requests, output = Counter(), Counter(), Counter(), Counter()  # type: ignore[var-annotated]
    for i in counting:
        for node in path_of(tree, int(rows[i].leaf)):
            link = (node, router.routed[i])
            users[node] += 1
            requests[link] += i in inside
            active[link] += i in router.unfinished
            output[link] += int(rows[i].output) * (i in router.unfinished)
    free = free_rows(tree.nodes, "parent", int(tree.control.free_node), int(tree.control.free_nodes))
    assert sorted({0, *users, *free}) == list(range(len(tree.nodes)))
    assert len(users) + 1 + len(free) == len(tree.nodes)
    links = [link for node in users for link in links_of(tree, node)]
    free = free_rows(tree.links, "next", int(tree.control.free_link), int(tree.control.free_links))
    assert sorted([*links, *free]) == list(range(len(tree.links)))
    for node, count in users.items():
        record = tree.nodes[node]
        assert record.users == count
        assert child_of(tree, int(record.parent), int(record.first)) == node
        assert record.children == sum(int(tree.nodes[other].parent) == node for other in users)
        assert record.serving == sum(int(tree.links[link].serves) for link in links_of(tree, node))
        for link in links_of(tree, node):
            one = tree.links[link]
            key = (node, int(one.gpu))
            assert one.node == node
            assert (one.active, one.requests, one.output) == (active[key], requests[key], output[key])
            assert one.serves or not one.active  # what an unfinished request uses is held
    for g in range(gpus):
        mine = [rows[i] for i in inside if router.routed[i] == g]
        assert ints[column(gpus, REQUESTS) + g] == len(mine)
        assert ints[column(gpus, WORK_NS) + g] == sum(int(row.prefill_ns) for row in mine)
        assert ints[column(gpus, OUTPUT) + g] == sum(int(row.output) for row in mine)
        left = [int(rows[i].output) for i in router.unfinished if router.routed[i] == g]
        assert ints[column(gpus, UNFINISHED) + g] == sum(left)


@pytest.mark.parametrize("name", DESCRIBED)
@settings(max_examples=80, deadline=None)
@given(st.integers(0, 9), st.integers(1, 6), ACTIONS)
def test_prefixes_are_those_of_the_requests(name: str, seed: int, gpus: int, actions: list[Any]) -> None:
    router, _ = made(name, seed, gpus, actions)
    tree, ints = router.memory.tree, router.memory.ints
    rows = tree.routed[: len(router.routed)]
    inside = [i for i, row in enumerate(rows) if row.time >= (rows[-1].time - 2 if len(rows) else 0)]
    counting = Counter(int(rows[i].prefix) for i in {*inside, *router.unfinished})
    listed, prefix = [], int(tree.control.first_prefix)
    while prefix != NONE:
        listed.append(prefix)
        prefix = int(tree.prefixes[prefix].behind)
    assert sorted(listed) == sorted(counting)
    assert tree.control.prefixes == len(listed)
    free = free_rows(tree.prefixes, "behind", int(tree.control.free_prefix), int(tree.control.free_prefixes))
    assert sorted([*listed, *free]) == list(range(len(tree.prefixes)))
    for prefix in listed:
        entry = tree.prefixes[prefix]
        assert entry.count == counting[prefix]
        assert tree.nodes[entry.node].prefix == prefix
    for i in {*inside, *router.unfinished}:
        assert int(tree.prefixes[rows[i].prefix].node) in path_of(tree, int(rows[i].leaf))
    for node in {node for i in {*inside, *router.unfinished} for node in path_of(tree, int(rows[i].leaf))}:
        links = {int(tree.links[link].gpu): tree.links[link] for link in links_of(tree, node)}
        for link in links.values():
            if tree.nodes[node].prefix == NONE:  # nothing is left of one that was
                assert [*map(int, (link.work_ns, link.work_output, link.successor, link.replica))] == [0, 0, NONE, 0]
            elif link.successor != NONE:  # who serves in another's place is there himself
                assert links[int(link.successor)].successor == NONE
    work: Counter[tuple[int, int]] = Counter()
    for i in inside:  # for the GPU that serves the prefix in place of the one it was sent to
        node, gpu = int(tree.prefixes[rows[i].prefix].node), router.routed[i]
        server = [int(tree.links[link].successor) for link in links_of(tree, node) if tree.links[link].gpu == gpu]
        work[node, gpu if server[0] == NONE else server[0]] += int(rows[i].prefill_ns)
    for prefix in listed:
        node = int(tree.prefixes[prefix].node)
        for link in links_of(tree, node):
            assert tree.links[link].work_ns == work[node, int(tree.links[link].gpu)]
    for share, of in ((SHARE_NS, "work_ns"), (SHARE_OUTPUT, "work_output")):
        sums = [0] * gpus
        for prefix in listed:
            for link in links_of(tree, int(tree.prefixes[prefix].node)):
                assert tree.links[link][of] >= 0
                sums[tree.links[link].gpu] += int(tree.links[link][of])
        assert ints[column(gpus, share) : column(gpus, share) + gpus].tolist() == sums
    assert ints[column(gpus, SHARE_NS) :][:gpus].sum() == ints[column(gpus, WORK_NS) :][:gpus].sum()


@pytest.mark.parametrize("name", DESCRIBED)
@settings(max_examples=80, deadline=None)
@given(st.integers(0, 9), st.integers(1, 6), ACTIONS)
def test_lists_by_last_use_hold_what_is_held(name: str, seed: int, gpus: int, actions: list[Any]) -> None:
    router, _ = made(name, seed, gpus, actions)
    tree, ints = router.memory.tree, router.memory.ints
    nodes = {node for row in tree.routed[: len(router.routed)] for node in safe_path(tree, int(row.leaf))}
    for g in range(gpus):
        order, link, before = [], int(ints[column(gpus, OLDEST) + g]), NONE
        while link != NONE:
            order.append(link)
            assert tree.links[link].older == before
            before, link = link, int(tree.links[link].newer)
        assert ints[column(gpus, NEWEST) + g] == before
        held = [link for node in nodes for link in links_of(tree, node) if tree.links[link].gpu == g]
        assert sorted(order) == sorted(link for link in held if tree.links[link].serves)
        rank = {int(tree.links[link].node): place for place, link in enumerate(order)}
        for node, place in rank.items():
            for above in path_of(tree, node)[1:]:
                assert rank.get(above, place + 1) > place


def safe_path(tree: Tree, leaf: int) -> list[int]:
    """As `path_of`, but of a leaf that may have been forgotten: nothing."""
    return path_of(tree, leaf) if tree.nodes[leaf].users > 0 else []


@pytest.mark.parametrize("name", ["lor_tokens", "least_work", "e2_released", "e2_corrected"])
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 9), st.integers(1, 6), ACTIONS)
def test_others_count_their_unfinished_requests(name: str, seed: int, gpus: int, actions: list[Any]) -> None:
    router, _ = made(name, seed, gpus, actions)
    tree, rows = router.memory.tree, router.memory.tree.routed
    active, output = Counter(), Counter()  # type: ignore[var-annotated]
    for i in router.unfinished:
        for node in path_of(tree, int(rows[i].leaf)):
            active[node, router.routed[i]] += 1
            output[node, router.routed[i]] += int(rows[i].output)
    for node in {node for i in range(len(router.routed)) for node in path_of(tree, int(rows[i].leaf))}:
        assert tree.nodes[node].serving == sum(int(tree.links[link].serves) for link in links_of(tree, node))
        for link in links_of(tree, node):
            key = (node, int(tree.links[link].gpu))
            assert tree.links[link].active == active[key]
            if name.startswith("e2"):
                assert tree.links[link].output == output[key]
    if name == "lor_tokens":
        for g in range(gpus):
            left = [int(rows[i].prefill_ns + rows[i].output) for i in router.unfinished if router.routed[i] == g]
            assert router.memory.ints[g] == sum(left)


@pytest.mark.parametrize("name", [*DESCRIBED, "lor_tokens", "least_work", "e2_corrected"])
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 9), st.permutations(range(4)), ACTIONS)
def test_numbers_of_gpus_mean_nothing(name: str, seed: int, order: list[int], actions: list[Any]) -> None:
    """GPU g is called order[g]: so is the answer, but for ties, which the lower number wins."""
    router, now = made(name, seed, 4, actions)
    if len(router.routed) == len(router.requests):
        return
    other = copy.deepcopy(router)
    rename(other, np.array(order))
    before = copy.deepcopy(other)
    one, two = router.route(now), other.route(now)
    if two != order[one]:
        assert seen(before, other, order[one]) == seen(before, other, two)


def seen(before: Router, after: Router, gpu: int) -> Any:
    """What decides between GPUs, from before and after a decision."""
    if isinstance(before.policy, E2):
        return after.memory.floats[scratch(4, LOAD_S) + gpu]
    if isinstance(before.policy, LeastOutstandingTokens):
        missing = before.requests[len(before.routed)].prompt_tokens - int(after.memory.floats[gpu])
        return before.memory.ints[gpu] + OUTPUT_UNIT * max(1, int(missing))  # one token at least is computed
    if isinstance(before.policy, LeastWork):
        request = before.requests[len(before.routed)]
        length = int(request.prompt_tokens)
        new = max(1, length - int(after.memory.floats[gpu]))
        cost = before.memory.cost
        prefill = prefill_s(cost, 1, new, length, new, request_ms(cost, new, length))
        return _work_s(before.memory, before.gpus[gpu], gpu, 4, request, prefill)
    return after.memory.floats[gpu]


def rename(router: Router, order: Any) -> None:
    """Let all that is known of GPU g be known of GPU order[g]."""
    tree, ints, floats = router.memory.tree, router.memory.ints, router.memory.floats
    back = np.argsort(order)
    router.gpus[:] = router.gpus[back]
    for rows, names in ((tree.links, ("gpu", "successor")), (tree.nodes, ("subtree_gpu",)), (tree.routed, ("gpu",))):
        for one in names:
            rows[one] = np.where(rows[one] == NONE, NONE, order[rows[one]])
    if isinstance(router.policy, E2):
        at, width, tpots = SWITCHES, COLUMNS, THRESHOLDS + 2 * 4
    elif isinstance(router.policy, ReleasedE2):
        at, width, tpots = 12, 0, 2 * 4  # quirks, an order of GPUs, nodes each serves
    else:
        at, width, tpots = 0, len(ints) // 4, None
    for i in range(width):
        ints[at + 4 * i : at + 4 * i + 4] = ints[at + 4 * i : at + 4 * i + 4][back]
    if tpots is not None:
        for array, begin, size in ((ints, at + 4 * width, INTS), (floats, tpots, FLOATS)):
            array[begin : begin + 4 * size] = array[begin : begin + 4 * size].reshape(4, size)[back].ravel()
