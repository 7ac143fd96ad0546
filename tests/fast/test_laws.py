"""What holds of every run, on random small clusters under memory pressure and on bursts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from prebleexp.engines.base import Engine
from prebleexp.engines.continuous import Continuous
from prebleexp.engines.released.engine import Released
from prebleexp.engines.sglang.engine import SGLang
from prebleexp.engines.vllm.engine import VLLM
from prebleexp.lengths.known import Max, Oracle
from prebleexp.lengths.mean import Mean
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import HOLD, REFUSE, Policy
from prebleexp.sim.records import SERVER, View
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Longs, Outcome, Setup, State, Workload
from tests.support.batching import BATCHING
from tests.support.costs.fitted import MONOTONE as A6000
from tests.support.outcomes import assert_same
from tests.support.plain_python import interpreted
from tests.support.recordings.released import OWN
from tests.support.sampled import examples
from tests.support.sessions import impatient, in_order, linked
from tests.support.strategies.paths import workload_of, workloads

KV = 600


@dataclass(frozen=True)
class Fussy(Policy):
    """Not more than two a GPU at a time, the others are held; long prompts are refused. It hears of all there is."""

    longest: int = 120

    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> Longs:
        return np.zeros(4, np.int64)

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        if view.requests[request].prompt_tokens > self.longest:
            return REFUSE
        best = view.candidates[0]
        for g in view.candidates:
            if view.sent[g].outstanding < view.sent[best].outstanding:
                best = g
        return HOLD if view.sent[best].outstanding >= 2 else best

    def first_token(self, mine: Any, view: View, request: int, now: float) -> None:
        mine[0] += 1

    def finished(self, mine: Any, view: View, request: int, now: float) -> None:
        mine[1] += 1

    def stored(self, mine: Any, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        mine[2] += tokens

    def evicted(self, mine: Any, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        mine[3] += tokens


POLICIES: dict[str, Policy] = OWN | {"fussy": Fussy()}
VLLMS = [
    VLLM(
        block_size=block,
        max_num_batched_tokens=64,
        max_num_seqs=most,
        async_scheduling=later,
        enable_prefix_caching=kept,
    )
    for block, most, later, kept in [
        (4, 64, True, True),
        (16, 5, False, True),
        (1, 64, True, False),
        (16, 64, True, True),
    ]
] + [VLLM(block_size=4, scheduling_policy="priority", watermark=0.1, long_prefill_token_threshold=16)]
SGLANG = [
    SGLang(chunked_prefill_size=64),
    SGLang(skip_finishing_decode=False, max_running_requests=3),
    SGLang(schedule_policy="lpm", chunked_prefill_size=16),
    SGLang(schedule_policy="lpm", disable_overlap_schedule=True),
]
RELEASED = [Released(output_step_cost_s=0.0006), Released()]
NONE, SERIAL = Overhead(), Overhead("serial", decision_s=0.002, gpu_s=0.0005)


def clusters(engines: list[Any], policies: dict[str, Policy], **rest: Any) -> Any:
    given = {
        "gpus": st.integers(1, 4),
        "policy": st.sampled_from(sorted(policies)),
        "engine": st.sampled_from(engines),
        "horizon": st.sampled_from(["stop", "drain"]),
        "kv": st.sampled_from([120, KV, 1_000, 100_000]),
        "lengths": st.sampled_from([Max(), Oracle(), Mean(1.0)]),
        "overhead": st.sampled_from([NONE, SERIAL]),
    }
    return st.fixed_dictionaries(given | rest)


OF_RELEASED = clusters(RELEASED, OWN)
OF_SESSIONS = clusters([*BATCHING, *VLLMS, *SGLANG], POLICIES, reports_ms=st.sampled_from([0.0, 37.5]))
CLUSTERS = OF_SESSIONS | OF_RELEASED
DURATION_S = 2.5


def serve(workload: Workload, cluster: dict[str, Any], **rest: Any) -> Outcome:
    policy = cluster["policy"]
    return simulate(
        workload,
        gpus=cluster["gpus"],
        policy=POLICIES[policy] if isinstance(policy, str) else policy,
        hardware=replace(A6000, kv_tokens=cluster["kv"]),
        engine=cluster["engine"],
        lengths=cluster.get("lengths", Max()),
        overhead=cluster.get("overhead", NONE),
        duration_s=DURATION_S,
        horizon=cluster["horizon"],
        seed=1,
        reports_ms=cluster.get("reports_ms", 0.0),
        **rest,
    )


def impossible(workload: Workload, cluster: dict[str, Any]) -> Any:
    """Which requests can never be served; in the release, which may wait for ever (the last token of a prompt that is
    cached is computed once more)."""
    if isinstance(cluster["engine"], Released):
        return workload.prompt_tokens + workload.max_new_tokens + 1 >= cluster["kv"]
    setup = Setup(cluster["gpus"], 1, len(workload), cluster["kv"], A6000.context_length, workload)
    return cluster["engine"].refuses(setup)


def decoded_once_more(workload: Workload, engine: Engine) -> Any:
    """Whose last token may be unknown when the next step is scheduled."""
    if not isinstance(engine, SGLang) or engine.disable_overlap_schedule:
        return np.zeros(len(workload), np.bool_)
    return ~(engine.skip_finishing_decode & (workload.output_tokens >= workload.max_new_tokens))


def assert_accounted_for(workload: Workload, cluster: dict[str, Any], made: Outcome) -> None:
    finished, refused = made.state == State.FINISHED, made.state == State.REFUSED
    unrouted, waiting = made.state == State.UNROUTED, made.state == State.QUEUED
    cancelled, not_due = made.state == State.CANCELLED, made.state == State.NOT_DUE
    gave_up = cancelled & np.isfinite(made.due_s)
    never_came = not_due | (cancelled & ~gave_up)
    wanted = np.minimum(workload.output_tokens, workload.max_new_tokens)
    never, drained = impossible(workload, cluster), cluster["horizon"] == "drain"
    # every request is in exactly one state, and its columns say the same
    assert np.isin(made.state, list(State)).all()
    assert ((made.gpu == -1) >= (unrouted | refused | never_came)).all()
    assert ((made.gpu == -1) <= (unrouted | refused | never_came | gave_up)).all()
    if len(workload.after_ids):
        assert (np.isnan(made.due_s) == never_came).all()
    else:
        assert not never_came.any()
        came = np.where(workload.arrival_s <= made.end_s, workload.arrival_s, np.nan)
        np.testing.assert_array_equal(made.due_s, came)
    assert (np.isfinite(made.finish_s) == finished).all()
    assert (made.gpu_requests == np.bincount(made.gpu[made.gpu >= 0], minlength=cluster["gpus"])).all()
    if isinstance(cluster["engine"], Released):
        assert not refused.any()
        if drained:
            assert (waiting | finished).all()
            assert finished.all() or never.any(), "who never fits may stand in the way of others"
    else:
        fussy = cluster["policy"] == "fussy"
        told = made.due_s + (cluster["overhead"].prediction_s if cluster["overhead"] == SERIAL else 0)
        seen = told <= made.end_s
        assert (refused >= (never & seen)).all()
        assert (refused <= seen).all()
        if not fussy:
            assert (refused <= never).all()
        if drained:
            long = (workload.prompt_tokens > Fussy().longest) & fussy
            assert (refused <= (never | long)).all()
            assert (refused | gave_up >= ((never | long) & ~never_came)).all()
            # what is held while the last step of all ends is not asked for again (see tests/fast/test_overhead.py)
            held = unrouted & (fussy and cluster["overhead"] == SERIAL)
            assert (finished == ~(refused | held | never_came | gave_up)).all()
            last = made.finish_s[finished].max(initial=0)
            if cluster["overhead"] == NONE:
                last = max(last, made.due_s[refused].max(initial=0))
            assert made.end_s == last or cluster["overhead"] == SERIAL or gave_up.any()
    # tokens
    assert (made.output_seen[finished] == wanted[finished]).all()
    assert (made.output_seen <= wanted).all()
    assert ((made.hit_tokens + made.prefilled_tokens)[finished] == workload.prompt_tokens[finished]).all()
    assert (made.prefilled_tokens[finished] > 0).all()
    decoded = made.gpu_forwarded_tokens - made.gpu_prefilled_tokens
    assert decoded.sum() >= (made.output_seen[finished] - 1).sum()
    if drained and made.gpu_retracted.sum() == 0 and not gave_up.any():
        for g in range(cluster["gpus"]):
            here = made.gpu == g
            once_more = decoded[g] - (made.output_seen[here & finished] - 1).sum()
            assert 0 <= once_more <= decoded_once_more(workload, cluster["engine"])[here & finished].sum()
            assert made.gpu_prefilled_tokens[g] == made.prefilled_tokens[here].sum()
            assert made.gpu_hit_tokens[g] == made.hit_tokens[here].sum()
    assert (made.gpu_peak_kv_tokens <= cluster["kv"]).all()
    assert (made.gpu_evicted_tokens <= made.gpu_forwarded_tokens).all()
    assert ((made.gpu_recomputed_tokens > 0) == (made.gpu_retracted > 0)).all()
    # times
    reported = made.output_seen > 0
    assert (np.isfinite(made.ttft_s) >= reported).all()
    assert (made.ttft_s[reported] > 0).all()
    assert (made.latency_s[finished] >= made.ttft_s[finished]).all()
    assert (made.finish_s[finished] <= made.end_s).all()
    np.testing.assert_allclose((made.due_s + made.latency_s)[finished], made.finish_s[finished], rtol=1e-12)
    if cluster["horizon"] == "stop" and not isinstance(cluster["engine"], Released):
        assert made.end_s <= DURATION_S


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(workloads(), CLUSTERS)
def test_requests_tokens_and_memory_are_accounted_for(workload: Workload, cluster: dict[str, Any]) -> None:
    assert_accounted_for(workload, cluster, serve(workload, cluster))


SESSIONS = linked(workloads()) | impatient(linked(workloads()))


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(SESSIONS, OF_SESSIONS)
def test_sessions_are_accounted_for_and_in_order(workload: Workload, cluster: dict[str, Any]) -> None:
    made = serve(workload, cluster)
    assert_accounted_for(workload, cluster, made)
    in_order(workload, made)


@settings(max_examples=examples(100), deadline=None)
@given(workloads(), clusters(RELEASED, OWN, kv=st.sampled_from([KV, 1_000, 100_000])))
def test_every_short_cut_of_the_release_gives_the_bytes_of_stepping(
    workload: Workload, cluster: dict[str, Any]
) -> None:
    """All fit: who waits for ever is stepped for ever."""
    # Simultaneous arrivals may fall otherwise in the event queue's heap: chance never makes them.
    spread = replace(workload, arrival_s=workload.arrival_s + np.arange(len(workload)) * 0.00137)
    stepwise, at_once = cluster | {"engine": replace(cluster["engine"], stepwise=True)}, [False]

    def look(sim: Any) -> None:
        """Likewise steps of two GPUs, which tell only as one of them ends the run."""
        clocks = sim.gpus.clock[sim.gpus.running > 0]
        at_once[0] |= sim.control.now > DURATION_S - 0.3 and len(set(clocks)) < len(clocks)

    stepped = serve(spread, stepwise, on_event=look)
    assume(cluster["horizon"] == "drain" or not at_once[0])
    assert_same(serve(spread, cluster), stepped)


def leaving(state: Any) -> int:
    """Requests that gave up in a step that is not over: the router has heard of it."""
    count = 0
    for one in getattr(state, "servers", np.zeros(0, SERVER).view(np.recarray)).leaving:
        while one >= 0:
            count, one = count + 1, state.jobs[one].next
    return count


@pytest.mark.slow
@settings(max_examples=examples(80), deadline=None)
@given(st.tuples(workloads(), CLUSTERS) | st.tuples(SESSIONS, OF_SESSIONS))
def test_who_looks_after_every_event_or_again_sees_the_same(served: tuple[Workload, dict[str, Any]]) -> None:
    """The loop is left and entered anew for every event; and of one that drains, nothing is left in memory."""
    (workload, cluster), seen = served, list[Any]()

    def look(state: Any) -> None:
        seen[:] = [state]
        of = state.seen.gpus if isinstance(cluster["engine"], Released) else state.live
        assert (of.kv_free >= 0).all()
        assert (of.kv_free + of.evictable <= cluster["kv"]).all()
        assert (state.cache.roots.evictable >= 0).all()
        assert (of.kv_free + state.cache.roots.evictable + state.cache.roots.locked <= cluster["kv"]).all()
        assert state.seen.sent.outstanding.sum() + leaving(state) >= (of.running + of.queued).sum()

    made = serve(workload, cluster)
    assert_same(made, serve(workload, cluster))
    assert_same(made, serve(workload, cluster, on_event=look))
    (last,) = seen
    if np.isin(made.state, [State.FINISHED, State.REFUSED, State.CANCELLED]).all() and leaving(last) == 0:
        of = last.seen.gpus if isinstance(cluster["engine"], Released) else last.live
        own_cache = isinstance(cluster["engine"], VLLM | SGLang)
        assert (of.kv_free + (of if own_cache else last.cache.roots).evictable == cluster["kv"]).all()
        assert (last.cache.roots.locked == 0).all()
        for name in ("queued", "running", "generated", "waiting_tokens"):
            assert (of[name] == 0).all(), name
        assert (last.seen.sent.outstanding == 0).all()
        assert (last.seen.sent.tokens == 0).all()


PLAIN = {name: interpreted(policy) for name, policy in POLICIES.items()}


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(st.tuples(workloads(), CLUSTERS) | st.tuples(SESSIONS, OF_SESSIONS))
def test_compiled_or_interpreted_a_run_has_the_same_bytes(served: tuple[Workload, dict[str, Any]]) -> None:
    workload, cluster = served
    assert POLICIES[cluster["policy"]].compiled
    plain = cluster | {"policy": PLAIN[cluster["policy"]]}
    assert_same(serve(workload, cluster), serve(workload, plain))


@pytest.mark.slow
@pytest.mark.parametrize("engine", [BATCHING[0], BATCHING[-1], VLLMS[0], SGLANG[0], RELEASED[0]])
def test_small_memory_evicts_and_retracts_in_these_tests(engine: Engine) -> None:
    rng = np.random.default_rng(0)
    prompts = [list(map(int, rng.integers(0, 3, size=5))) for _ in range(60)]
    workload = workload_of(prompts, list(rng.uniform(0, 2, 60)), [60] * 60, 60)
    made = serve(workload, {"gpus": 2, "policy": "lor", "engine": engine, "horizon": "drain", "kv": 500})
    assert made.gpu_evicted_tokens.sum() > 0
    assert made.gpu_retracted.sum() > 0


# ---------------------------------------------------------------- sizes
@dataclass(frozen=True)
class First(Policy):
    """Everything to GPU 0."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return 0


def burst(n: int, seconds: float = 0.001) -> Workload:
    one = np.ones(n, np.int32)
    return Workload(
        np.linspace(0, seconds, n), 5 * one, 3 * one, 3 * one, -one, np.arange(n + 1), np.arange(n), 5 * one
    )


@pytest.mark.parametrize(
    "engine", [Continuous(), Continuous(queue="fcfs", prefill="chunked"), VLLM(), *SGLANG, Released()]
)
def test_a_burst_to_one_gpu_outgrows_every_guess_of_memory(engine: Engine) -> None:
    n = 5000
    cluster = {"gpus": 8, "policy": First(), "engine": engine, "horizon": "drain", "kv": A6000.kv_tokens}
    made = serve(burst(n), cluster)
    assert (made.state == State.FINISHED).all()
    assert made.gpu_requests.tolist() == [n, 0, 0, 0, 0, 0, 0, 0]


SIZES = sorted({size + more for size in (1, 2, 4, 8, 16, 32, 64, 256, 1024) for more in (-1, 0, 1)} - {0})


@pytest.mark.parametrize("engine", [Continuous(), BATCHING[-1], VLLMS[0], *SGLANG[::2], Released()])
def test_so_many_requests_as_a_power_of_two_and_one_more_or_less(engine: Engine) -> None:
    for n in SIZES:
        cluster = {"gpus": 2, "policy": "lor", "engine": engine, "horizon": "drain", "kv": 2_000, "overhead": NONE}
        made = serve(burst(n, 0.3), cluster)
        assert_accounted_for(burst(n, 0.3), cluster, made)
        assert (made.state == State.FINISHED).all()


@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 7, 8, 9, 64, 128, 300])
@pytest.mark.parametrize("engine", [Continuous(), BATCHING[-1], VLLMS[0], SGLang(), Released()])
def test_from_one_to_three_hundred_gpus(engine: Engine, gpus: int) -> None:
    rng = np.random.default_rng(gpus)
    prompts = [list(map(int, rng.integers(0, 3, size=5))) for _ in range(400)]
    workload = workload_of(prompts, list(rng.uniform(0, 1, 400)), list(map(int, rng.integers(1, 60, 400))), 60)
    for policy in ("lor", "round_robin", "random"):
        cluster = {"gpus": gpus, "policy": policy, "engine": engine, "horizon": "drain", "kv": KV, "overhead": NONE}
        made = serve(workload, cluster)
        assert_accounted_for(workload, cluster, made)
        assert (made.state == State.FINISHED).all()
        if policy == "round_robin":
            assert made.gpu.tolist() == (np.arange(400) % gpus).tolist()
    assert_same(made, serve(workload, cluster))


@pytest.mark.parametrize("engine", [*BATCHING[:2], BATCHING[-1], VLLM(), *SGLANG[:1], *RELEASED])
def test_no_requests_at_all_are_served_at_once(engine: Engine) -> None:
    for horizon in ("drain", "stop"):
        cluster = {"gpus": 3, "policy": "lor", "engine": engine, "horizon": horizon, "kv": KV}
        made = serve(burst(0), cluster)
        assert len(made) == 0
        assert made.gpu_requests.tolist() == [0, 0, 0]


# ---------------------------------------------------------------- requests that never fit
@pytest.mark.parametrize("horizon", ["drain", "stop"])
def test_in_the_release_a_request_that_never_fits_stays_queued(horizon: str) -> None:
    workload = workload_of([[0], [1]], [0.0, 0.5], [5, 5], 60)
    cluster = {"gpus": 1, "policy": "lor", "engine": Released(), "horizon": horizon, "kv": 10}
    assert (serve(workload, cluster).state == State.QUEUED).all()


@pytest.mark.parametrize("engine", [*BATCHING, VLLM(block_size=4), *SGLANG])
@pytest.mark.parametrize("horizon", ["drain", "stop"])
def test_a_request_that_never_fits_is_refused_when_it_arrives(engine: Engine, horizon: str) -> None:
    """One that would have come after the end has not."""
    workload = workload_of([[0], [1], [0]], [0.0, 0.5, 3.0], [5, 5, 5], 60)
    made = serve(workload, {"gpus": 1, "policy": "lor", "engine": engine, "horizon": horizon, "kv": 10})
    last = State.REFUSED if horizon == "drain" else State.UNROUTED
    assert made.state.tolist() == [State.REFUSED, State.REFUSED, last]
    assert made.end_s == (3.0 if horizon == "drain" else DURATION_S)
