"""The core against `tests.support.oracle.core`: the same bytes on random workloads, engines, policies and clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.engines.continuous import QUEUES, Continuous
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import State, Workload
from tests.support.by_hand.small_cluster import alike, cluster_of
from tests.support.oracle import compared
from tests.support.oracle import core as oracle
from tests.support.oracle.compared import agree, causal
from tests.support.policies.watcher import FIRST_TOKEN, KEPT, KIND, REQUEST, ROUTE, SEEN, SENT, PlainWatcher, Watcher
from tests.support.sampled import examples
from tests.support.sessions import after_those, capped, impatient, in_order, linked, staged
from tests.support.strategies.clusters import CLUSTERS
from tests.support.strategies.conversations import conversations, workload_of, workloads


@settings(max_examples=examples(100, found=True), deadline=None)
@given(workloads(), CLUSTERS)
def test_the_core_gives_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


@pytest.mark.thorough
@settings(max_examples=examples(100, found=True), deadline=None)
@given(st.one_of(linked(workloads()), impatient(linked(workloads())), impatient(workloads())), CLUSTERS)
def test_the_core_gives_the_bytes_of_the_oracle_in_sessions(workload: Workload, cluster: dict[str, Any]) -> None:
    made = agree(workload, cluster)
    in_order(workload, made)


STAGED = st.one_of(staged(workloads()), impatient(staged(workloads())), impatient(staged(linked(workloads()))))


@pytest.mark.thorough
@settings(max_examples=examples(100, found=True), deadline=None)
@given(STAGED, CLUSTERS)
def test_the_core_gives_the_bytes_of_the_oracle_in_stages(workload: Workload, cluster: dict[str, Any]) -> None:
    made = agree(workload, cluster)
    for stage in range(int(workload.stage[0]) + 1, int(workload.stage[-1]) + 1):
        due_s, before_s = made.due_s[workload.stage == stage], made.finish_s[workload.stage < stage]
        assert not (before_s[:, None] > due_s).any(), "a stage begins when all before it is over"


@settings(max_examples=examples(30, found=True), deadline=None)
@given(st.one_of(staged(workloads()), impatient(staged(linked(workloads())))), CLUSTERS)
def test_stages_that_overlap_are_no_more_than_names(workload: Workload, cluster: dict[str, Any]) -> None:
    none = np.zeros(len(workload), np.int32)
    made = agree(replace(workload, overlaps=none + 1), cluster)
    plain = agree(replace(workload, stage=none), cluster)
    assert made.due_s.tobytes() == plain.due_s.tobytes()
    assert made.finish_s.tobytes() == plain.finish_s.tobytes()


CAPPED = st.one_of(
    capped(workloads()), capped(impatient(workloads())), capped(linked(workloads())), capped(staged(workloads()))
)


@pytest.mark.thorough
@settings(max_examples=examples(100, found=True), deadline=None)
@given(CAPPED, CLUSTERS)
def test_the_core_gives_the_bytes_of_the_oracle_after_so_many_ends(workload: Workload, cluster: dict[str, Any]) -> None:
    made = agree(workload, cluster)
    ends = np.sort(made.finish_s)  # of those that failed it is not known when
    for i in np.flatnonzero((workload.after_ends > 0) & np.isfinite(made.due_s)):
        failed = np.isin(made.state, [State.REFUSED, State.CANCELLED]).sum()
        assert (ends <= made.due_s[i]).sum() >= workload.after_ends[i] - failed
        if workload.arrives[i]:
            assert made.due_s[i] >= workload.arrival_s[i]


def test_who_waited_for_two_that_are_refused_ends_once() -> None:
    ends = np.array([0, 0, 0, 2, 4], np.int32)
    plain = workload_of([[i] for i in range(5)], [99, 99, 1, 1, 1], [0.0] * 5, [1] * 5, [1] * 5, [-1] * 5)
    behind_two = after_those(plain, [[], [], [0, 1], [], []], after_ends=ends, session=np.zeros(5, np.int32))
    made = agree(behind_two, cluster_of(context_length=50))
    assert made.state.tolist() == [State.REFUSED, State.REFUSED, State.CANCELLED, State.FINISHED, State.FINISHED]
    assert made.due_s[3] == 0.0, "after the first refusal and who waited for it"
    assert made.due_s[4] == made.finish_s[3] > 0.0, "after three that failed and one that finished"


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(st.one_of(workloads(), linked(workloads()), impatient(linked(workloads())), STAGED, CAPPED), CLUSTERS)
def test_the_core_gives_the_bytes_of_the_oracle_on_many(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


@pytest.mark.slow
@pytest.mark.parametrize(("prefill", "block_tokens"), [("whole", 1), ("chunked", 1), ("chunked", 16)])
@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize(("outputs", "kv_tokens"), [([3, 40, 60], 400), ([100, 300, 300], 1200)])
def test_long_runs_under_pressure(
    queue: str, prefill: str, block_tokens: int, outputs: list[int], kv_tokens: int
) -> None:
    """Where the least difference in who is admitted, evicted or sent back changes everything after it."""
    rng, n = np.random.default_rng(QUEUES.index(queue)), 300
    drawn = [
        (tuple(rng.integers(0, 2, rng.integers(1, 6)).tolist()), int(rng.choice(outputs)), max(outputs), str(kind))
        for kind in rng.choice(["anonymous", "anonymous", "named", "turn"], n)
    ]
    engine = Continuous(queue=queue, groups=4, prefill=prefill, chunk_tokens=64, block_tokens=block_tokens)
    cluster = cluster_of(engine=engine, kv_tokens=kv_tokens, gpus=2)
    made = agree(conversations(drawn, rng.uniform(0, 4, n).tolist()), cluster)
    assert made.gpu_evicted_tokens.all()
    assert made.gpu_retracted.sum() > 0


# ---------------------------------------------------------------- one by one


def rows_of(kind: int) -> Any:
    rows = KEPT[-1].rows[: KEPT[-1].used[0]]
    return rows[rows[:, KIND] == kind]


@pytest.mark.parametrize(("answer", "hit"), [(1, 40 + 20 - 1), (-1, 40)])
def test_the_next_turn_finds_the_answer_in_the_cache(answer: int, hit: int) -> None:
    workload = workload_of([[0], [0, 1, 2]], [40, 20, 8], [0.0, 5.0], [20, 3], [20, 3], [answer, -1])
    made = agree(workload, cluster_of())
    assert made.hit_tokens.tolist() == [0, hit]
    assert made.prefilled_tokens.tolist() == [40, 68 - hit]


def test_a_request_that_is_held_waits_for_an_end() -> None:
    made = agree(alike([0.0, 0.0, 0.0], 10, 9), cluster_of(policy=Watcher(1), overhead=Overhead(mode="recorded")))
    assert made.router_wait_s.tolist() == [0.0, made.finish_s[0], made.finish_s[1]]
    assert (rows_of(ROUTE)[:, SENT] <= 1).all()


def test_what_is_held_for_ever_ends_the_run() -> None:
    made = agree(alike([0.0, 2.0], 10, 9), cluster_of(policy=Watcher(-1), reports_ms=500.0))
    assert made.state.tolist() == [State.UNROUTED, State.UNROUTED]
    assert made.end_s < 3


def test_reports_of_what_is_over_do_not_make_a_run_longer() -> None:
    """Somebody is left who never comes."""
    links = {"after_offsets": np.array([0, 0, 1, 1]), "after_ids": np.array([0]), "session": np.array([0, 0, 1])}
    workload = replace(alike([0.0, 0.0, 9.0], 30, 20), **links)
    made = agree(workload, cluster_of(reports_ms=7000.0, duration_s=5.0))
    assert made.state.tolist() == [State.FINISHED, State.FINISHED, State.NOT_DUE]
    assert made.end_s == made.finish_s[1]


@pytest.mark.thorough
def test_what_does_not_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports for a day before the second request comes."""
    workload, cluster = alike([0.0, 1e5], 10, 9), cluster_of(reports_ms=1.0, duration_s=2e5)
    with pytest.raises(AssertionError, match="the oracle does not end"):
        oracle.simulate(workload, **cluster)
    monkeypatch.setattr(compared, "PAUSES", 3)
    with pytest.raises(AssertionError, match="the core does not end"):
        agree(workload, cluster)


def test_a_request_that_is_refused_is_not_served() -> None:
    made = agree(alike([0.0, 0.1, 0.2, 0.3], 10, 9), cluster_of(policy=Watcher(0, 2)))
    assert made.state.tolist() == [State.FINISHED, State.REFUSED] * 2
    assert made.gpu.tolist() == [0, -1] * 2


def test_reports_are_as_old_as_they_are() -> None:
    arrivals = [0.0, 0.1, 0.4, 0.6, 0.9, 1.1]
    agree(alike(arrivals, 30, 60), cluster_of(reports_ms=500.0, engine=Continuous(step_cost_s=0.01)))
    asked = rows_of(ROUTE)
    seen, sent = asked[:, SEEN : SEEN + 10], asked[:, SENT + 2]
    assert not seen[:3, :3].any()
    assert seen[3, 1] > 0
    assert (seen[3] == seen[4]).all()
    assert sent.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_request_that_is_sent_back_keeps_its_first_token() -> None:
    made = agree(alike([0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07], 9, 60), cluster_of(kv_tokens=250))
    assert made.gpu_retracted.sum() > 0
    assert (made.state == State.FINISHED).all()
    assert sorted(rows_of(FIRST_TOKEN)[:, REQUEST]) == list(range(8))
    assert (made.gpu_recomputed_tokens == 9 * made.gpu_retracted).all()


def test_requests_that_arrive_together_are_one_batch() -> None:
    cluster = cluster_of()
    made = agree(alike([0.25, 0.25, 0.25], 20, 2), cluster)
    cost = oracle.Cost(cluster["hardware"])
    end_s = 0.25 + (cost.step_s(3, 60, 60, 0, 0, 60, 0.0) + 0.0006)
    assert made.ttft_s.tolist() == [end_s - 0.25] * 3


def test_who_tells_at_start_is_found() -> None:
    """The check of causality does find the fault that it is there for."""
    workload, cluster = alike([0.0, 0.1, 0.2, 0.3], 30, 20), cluster_of(policy=PlainWatcher(), gpus=2)
    KEPT.clear()
    made = [oracle.simulate(workload, tell_at_start=fault, **cluster) for fault in (False, True)]
    sound, faulty = [one.rows[: one.used[0]] for one in KEPT]
    causal(workload, made[0], sound)
    with pytest.raises(AssertionError):
        causal(workload, made[1], faulty)


# ---------------------------------------------------------------- where the core once was otherwise
def test_a_request_after_the_end_is_unrouted() -> None:
    workload = alike([0.0, 2.0], 200, 5)
    made = simulate(workload, lengths=Max(), **cluster_of(kv_tokens=100, duration_s=1.0, horizon="stop"))
    assert made.state.tolist() == [State.REFUSED, State.UNROUTED]


@pytest.mark.parametrize(("block_tokens", "kv_tokens", "tokens"), [(1, 100, [50]), (16, 170, [31, 65])])
def test_a_request_that_fits_only_if_nothing_of_it_is_cached_is_refused(
    block_tokens: int, kv_tokens: int, tokens: list[int]
) -> None:
    """Its own cached prefix is held while one block is computed again: it would wait for ever. With a block more it is
    served, although nothing else comes."""
    second = list(range(len(tokens)))
    workload = workload_of([[0], second], tokens, [0.0, 5.0], [1, 30], [1, 49], [-1, -1])
    for more, state in ((0, State.REFUSED), (block_tokens + 1, State.FINISHED)):
        engine = Continuous(block_tokens=block_tokens)
        made = simulate(workload, lengths=Max(), **cluster_of(kv_tokens=kv_tokens + more, engine=engine))
        assert made.state.tolist() == [State.FINISHED, state]
