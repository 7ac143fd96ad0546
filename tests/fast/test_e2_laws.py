"""What holds of policies with a tree, on random small streams: sums kept up to date are those made anew, nothing in use
is forgotten."""

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

from prebleexp.engines.continuous import Continuous
from prebleexp.launch import configure
from prebleexp.lengths.base import Lengths
from prebleexp.lengths.mean import Mean
from prebleexp.lengths.noisy import Noisy
from prebleexp.overhead.model import Overhead
from prebleexp.policies import backlog, least_work, prefix_records
from prebleexp.policies.base import Policy
from prebleexp.policies.e2 import DECODES, E2
from prebleexp.policies.e2_released import ReleasedE2
from prebleexp.policies.least_work import LeastWork
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.lor_tokens import LeastOutstandingTokens
from prebleexp.policies.prefix_records import OUTPUT_UNIT
from prebleexp.policies.replay import Replay
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import prefill_s
from prebleexp.sim.records import NONE
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Outcome, Workload
from tests.support.costs.fitted import MONOTONE as A6000
from tests.support.outcomes import assert_same
from tests.support.places import ROOT
from tests.support.routers import Router, links_of, path_of
from tests.support.sampled import examples
from tests.support.sessions import in_sessions
from tests.support.strategies.paths import workload_of, workloads

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
        engine=Continuous(),
        lengths=lengths or Mean(window=3),
        overhead=Overhead("recorded", 1e-3, 1e-4, 1e-5, 1e-6, 1e-7),
        duration_s=4.0,
        horizon="drain",
        seed=1,
    )


# ---------------------------------------------------------------- whole runs
@cache
def all_policies() -> list[Any]:
    """Those of conf/policy that need no file."""
    return [configure.cells([f"policy={name}"])[0].policy for name in NAMES if name != "replay"]


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(workloads())
def test_with_one_gpu_all_policies_do_the_same(workload: Workload) -> None:
    workload = in_sessions(workload)
    first = serve(workload, LeastOutstanding(), 1)
    for policy in all_policies():
        assert_same(first, serve(workload, policy, 1), but=("overhead_s",))


def test_so_does_a_recording(tmp_path: Path) -> None:
    workload = workload_of([[0, 1], [0, 2], [0, 1]], [0.1, 0.2, 0.3], [5, 5, 5], 30)
    np.savez(tmp_path / "gpu.npz", gpu=np.zeros(3, int))
    replayed = serve(workload, Replay(str(tmp_path / "gpu.npz")), 1)
    assert_same(serve(workload, LeastOutstanding(), 1), replayed, but=("overhead_s",))


@pytest.mark.parametrize("decode", DECODES)
@settings(max_examples=examples(25, found=True), deadline=None)
@given(workloads(), st.integers(2, 4), st.sampled_from([0.3, 2.0, 180.0]), st.sampled_from([600, 100_000]))
def test_sums_made_anew_are_those_kept_up_to_date(
    decode: str, workload: Workload, gpus: int, window_s: float, kv: int
) -> None:
    kept = E2(window_s=window_s, decode=decode)
    lengths = Noisy(sigma=0.5)
    anew = serve(workload, replace(kept, recompute=True), gpus, kv=kv, lengths=lengths)
    assert_same(serve(workload, kept, gpus, kv=kv, lengths=lengths), anew, but=("overhead_s",))


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TREES))
def test_growing_room_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    paths = [list(map(int, rng.integers(0, 3, size=rng.integers(1, 6)))) for _ in range(400)]
    workload = workload_of(paths, list(rng.uniform(0, 20, 400)), list(map(int, rng.integers(1, 60, 400))), 60)
    roomy = serve(workload, TREES[name], 3)
    monkeypatch.setattr(prefix_records, "first_rows", lambda requests: 2)
    assert_same(roomy, serve(workload, TREES[name], 3))


# ---------------------------------------------------------------- a policy by itself
WORDS = [*("route", "finish", "evict", "shrink") * 3, *("route",) * 2, "lose"]
ACTIONS = st.lists(
    st.tuples(st.sampled_from(WORDS), st.integers(0, 99), st.floats(0, 0.6)),
    min_size=20,
    max_size=120,
)


def act(router: Router, actions: list[tuple[str, int, float]]) -> float:
    """Route, finish, evict and lose as told, as far as that makes sense; returns the time at the end."""
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
        elif what == "lose":
            router.lose(number % gpus, now)
        elif what == "shrink":
            gpu = router.gpus[number % gpus]
            outstanding = router.sent[number % gpus].outstanding
            gpu.kv_free, gpu.queued = number, min(number, outstanding)
            gpu.running, gpu.generated = outstanding - gpu.queued, number % 7
    return now


def stream(seed: int, n: int = 60) -> tuple[Workload, Any]:
    rng = np.random.default_rng(seed)
    paths = [list(map(int, rng.integers(0, 3, size=rng.integers(1, 6)))) for _ in range(n)]
    return workload_of(paths, list(np.arange(n)), [5] * n, 60), rng.uniform(1, 60, n)


def made(name: str, seed: int, gpus: int, actions: list[tuple[str, int, float]]) -> tuple[Router, float]:
    workload, expected = stream(seed)
    router = Router(TREES[name], workload, gpus, A6000, expected)
    return router, act(router, actions)


@pytest.mark.slow
def test_such_actions_redirect_replicate_evict_and_forget() -> None:
    rng = np.random.default_rng(0)
    happened: Counter[str] = Counter()
    for seed in range(20):
        words = rng.choice(WORDS, 150)
        actions = [(str(word), int(rng.integers(100)), float(rng.uniform(0, 0.3))) for word in words]
        router, _ = made("e2_total", seed % 10, 6, actions)
        mine, tree = router.memory, router.memory.tree
        rows = mine.routed[: len(router.routed)]
        kept = [int(leaf) for leaf in mine.leaves[: len(rows)] if leaf != NONE]
        links = [link for leaf in kept for node in path_of(tree, leaf) for link in links_of(tree, node)]
        happened["redirected"] += any(tree.accounts[link].relieved for link in links)
        happened["replicated"] += any(tree.accounts[link].replica for link in links)
        happened["evicted"] += any(not tree.rows[link].serves for link in links)
        happened["forgot"] += bool((rows.finished & rows.expired).any())
        happened["waits to be forgotten"] += bool((rows.expired & ~rows.finished & 1).any())
    assert len(+happened) == 5, happened


def within(times: Any) -> list[int]:
    """The requests of the window of the last one."""
    return np.flatnonzero(times >= times[-1:] - 2).tolist()  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize("name", DESCRIBED)
@settings(max_examples=examples(60, found=True), deadline=None)
@given(st.integers(0, 9), st.integers(1, 6), ACTIONS)
def test_counts_are_those_of_the_requests(name: str, seed: int, gpus: int, actions: list[Any]) -> None:
    router, _ = made(name, seed, gpus, actions)
    mine, tree = router.memory, router.memory.tree
    rows = mine.routed[: len(router.routed)]
    assert tree.control.routed == len(router.routed)
    assert rows.gpu.tolist() == router.routed
    inside = within(mine.times[: len(rows)])
    counting = sorted({*inside, *router.unfinished})
    assert [i for i in range(len(rows)) if mine.leaves[i] != NONE] == counting
    users, active, requests = Counter(), Counter(), Counter()  # type: ignore[var-annotated]
    for i in counting:
        for node in path_of(tree, int(mine.leaves[i])):
            link = (node, router.routed[i])
            users[node] += 1
            requests[link] += i in inside
            active[link] += i in router.unfinished
    assert np.count_nonzero(tree.begins) == len(users)
    for node, count in users.items():
        record = tree.rows[node]
        assert record.users == count
        assert tree.begins[int(record.first)] == node
        assert record.serving == sum(int(tree.rows[link].serves) for link in links_of(tree, node))
        for link in links_of(tree, node):
            one = tree.rows[link]
            key = (node, int(one.gpu))
            assert (one.active, one.requests) == (active[key], requests[key])
            assert one.serves or not one.active  # what an unfinished request uses is held
    for g in range(gpus):
        of = [rows[i] for i in inside if router.routed[i] == g]
        assert mine.gpus[g].requests == len(of)
        assert mine.gpus[g].work_ns == sum(int(row.prefill_ns) for row in of)
        assert mine.gpus[g].output == sum(int(row.output) for row in of)
        left = [int(rows[i].output) for i in router.unfinished if router.routed[i] == g]
        assert mine.gpus[g].unfinished == sum(left)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DESCRIBED)
@settings(max_examples=examples(60, found=True), deadline=None)
@given(st.integers(0, 9), st.integers(1, 6), ACTIONS)
def test_prefixes_are_those_of_the_requests(name: str, seed: int, gpus: int, actions: list[Any]) -> None:
    router, _ = made(name, seed, gpus, actions)
    mine, tree = router.memory, router.memory.tree
    rows = mine.routed[: len(router.routed)]
    inside = within(mine.times[: len(rows)])
    counting = Counter(int(rows[i].prefix) for i in {*inside, *router.unfinished})
    listed, prefix = [], int(tree.control.first_prefix)
    while prefix != NONE:
        listed.append(prefix)
        prefix = int(tree.prefixes[prefix].behind)
    assert sorted(listed) == sorted(counting)
    assert tree.control.prefixes == len(listed)
    shares = np.zeros((2, gpus), np.int64)
    for prefix in listed:
        entry = tree.prefixes[prefix]
        assert entry.count == counting[prefix]
        assert tree.rows[entry.node].prefix == prefix
        for link in links_of(tree, int(entry.node)):
            account, gpu = tree.accounts[link], int(tree.rows[link].gpu)
            assert account.work_ns >= 0
            assert account.work_output >= 0
            shares[:, gpu] += account.work_ns, account.work_output
    for i in {*inside, *router.unfinished}:
        assert int(tree.prefixes[rows[i].prefix].node) in path_of(tree, int(mine.leaves[i]))
    assert shares.tolist() == [mine.gpus.share_ns.tolist(), mine.gpus.share_output.tolist()]
    assert mine.gpus.share_ns.sum() == mine.gpus.work_ns.sum()


@pytest.mark.slow
@pytest.mark.parametrize("name", DESCRIBED)
@settings(max_examples=examples(60, found=True), deadline=None)
@given(st.integers(0, 9), st.integers(1, 6), ACTIONS)
def test_lists_by_last_use_have_what_is_held_and_idle(name: str, seed: int, gpus: int, actions: list[Any]) -> None:
    router, _ = made(name, seed, gpus, actions)
    mine, tree = router.memory, router.memory.tree
    nodes = {node for leaf in mine.leaves[: len(router.routed)] if leaf != NONE for node in path_of(tree, int(leaf))}
    node_of = {link: node for node in nodes for link in links_of(tree, node)}
    for g in range(gpus):
        order, link, before = [], int(mine.gpus[g].oldest), NONE
        while link != NONE:
            order.append(link)
            assert tree.rows[link].older == before
            before, link = link, int(tree.rows[link].newer)
        assert mine.gpus[g].newest == before
        held = [link for link in node_of if tree.rows[link].gpu == g and tree.rows[link].serves]
        idle = [link for link in held if not tree.rows[link].active]
        assert order == sorted(idle, key=lambda link: _last_use(router, node_of[link], g))


def _last_use(router: Router, node: int, gpu: int) -> tuple[int, int]:
    """The last request that the GPU was sent and whose prompt goes through the node, and how near the root that is."""
    record, ids = router.memory.tree.rows[node], router.seen.prompts.ids
    through = [
        i
        for i, at in enumerate(router.routed)
        if at == gpu
        and router.requests[i].segments >= record.segment
        and ids[router.requests[i].first_segment + record.segment - 1] == record.last
    ]
    return max(through), -int(record.tokens)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lor_tokens", "least_work"])
@settings(max_examples=examples(40, found=True), deadline=None)
@given(st.integers(0, 9), st.integers(1, 6), ACTIONS)
def test_others_count_their_unfinished_requests(name: str, seed: int, gpus: int, actions: list[Any]) -> None:
    router, _ = made(name, seed, gpus, actions)
    mine, tree, rows = router.memory, router.memory.tree, router.memory.routed
    active: Counter[tuple[int, int]] = Counter()
    for i in router.unfinished:
        for node in path_of(tree, int(rows[i].leaf)):
            active[node, router.routed[i]] += 1
    for node in {node for i in range(len(router.routed)) for node in path_of(tree, int(rows[i].leaf))}:
        assert tree.rows[node].serving == sum(int(tree.rows[link].serves) for link in links_of(tree, node))
        for link in links_of(tree, node):
            assert tree.rows[link].active == active[node, int(tree.rows[link].gpu)]
    for g in range(gpus):
        left = [rows[i] for i in router.unfinished if router.routed[i] == g]
        assert mine.prefill[g] == sum(int(row.prefill) for row in left)
        assert mine.output[g] == sum(int(row.output) for row in left)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*DESCRIBED, "lor_tokens", "least_work", "e2_corrected"])
@settings(max_examples=examples(60, found=True), deadline=None)
@given(st.integers(0, 9), st.permutations(range(4)), ACTIONS)
def test_numbers_of_gpus_mean_nothing(name: str, seed: int, order: list[int], actions: list[Any]) -> None:
    """GPU g is called order[g]: so is the answer, but for ties, which the lower number wins."""
    router, now = made(name, seed, 4, actions)
    if len(router.routed) == len(router.requests):
        return
    other = copy.deepcopy(router)
    for memory in (other.memory, other.seen._replace(costs=NONE, candidates=NONE)):  # all are, and cost the same
        rename(memory, np.array(order))
    before = copy.deepcopy(other)
    one, two = router.route(now), other.route(now)
    if two != order[one]:
        assert weighed(before, other, order[one]) == weighed(before, other, two)


def rename(value: Any, order: Any) -> None:
    """Let all that is known of GPU g be known of GPU order[g]."""
    if hasattr(value, "_fields"):
        for one in value:
            rename(one, order)
    elif isinstance(value, np.ndarray):
        for name in {"gpu", "successor", "subtree_gpu"} & set(value.dtype.names or ()):
            value[name] = np.where(value[name] == NONE, NONE, order[value[name]])
        if len(value) == len(order):
            value[:] = value[np.argsort(order)]


def weighed(before: Router, after: Router, gpu: int) -> Any:
    """What decides between GPUs, from before and after a decision."""
    mine, request = before.memory, len(before.routed)
    if isinstance(before.policy, E2):
        return after.memory.gpus[gpu].load_s
    if isinstance(before.policy, ReleasedE2):
        return after.memory.loads[gpu]
    missing = backlog.missing(*after.handles, request, gpu)
    if isinstance(before.policy, LeastWork):
        prefill = prefill_of(before.handles[1], gpu, missing, int(before.requests[request].prompt_tokens))
        least_work.look(*before.handles)
        output = before.memory.left[gpu] + before.requests[request].expected_output
        to_come = output * least_work.token_s(*before.handles, gpu, request)
        return before.memory.queued[gpu] + prefill + to_come
    return (mine.prefill[gpu] + missing) * OUTPUT_UNIT + mine.output[gpu]


@compiled
def prefill_of(view: Any, gpu: int, new: int, length: int) -> float:
    return prefill_s(view.costs[gpu], new, length)
