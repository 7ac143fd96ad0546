"""The core against `tests.oracle`: the same bytes on random workloads, engines, policies and clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.extending import register_jitable

from prebleexp.engines.continuous import PREFILLS, QUEUES, Continuous
from prebleexp.hardware.preble import PrebleFit
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import HOLD, REFUSE, Policy
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.random import Random
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim.records import ENTRIES, NODES, SEGMENTS, View
from prebleexp.sim.records import GPUS as SCORED
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Outcome, Setup, State, Workload
from tests import oracle
from tests.recordings import ROOT
from tests.sampled import examples
from tests.sessions import impatient, in_order, linked

FOLDER = ROOT / "conf" / "hardware"


def hardware(name: str) -> PrebleFit:
    given = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return PrebleFit(**{key: value for key, value in given.items() if key != "_target_"})


A6000 = hardware("a6000_mistral_7b_monotone")  # the fitted one takes less than no time for some batches


# ---------------------------------------------------------------- a policy that sees and hears everything
ROUTE, FIRST_TOKEN, FINISHED, STORED, EVICTED = range(5)
KIND, REQUEST, GPU, TOKENS, NOW, OUTPUT, TTFT, LATENCY, SEEN = range(9)
OF_GPU = 13
"""columns of each GPU: ten that it publishes, …"""
SENT = SEEN + 10
"""… and three of the router's book"""
ROWS = 1 << 13


class Notes(NamedTuple):
    rows: Any
    used: Any


KEPT: list[Notes] = []
"""what policies of the last runs noted"""


@dataclass(frozen=True)
class Watcher(Policy):
    """Takes the GPU whose published numbers are least, and notes everything that it can see when it is asked or told.

    Holds unless a GPU has fewer than `outstanding` requests, and refuses every `refuses`-th request (0: neither). The
    oracle calls it as plain Python."""

    outstanding: int = 0
    refuses: int = 0

    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> Notes:
        KEPT.append(Notes(np.zeros((ROWS, SEEN + OF_GPU * setup.gpus)), np.zeros(1, np.int64)))
        return KEPT[-1]

    def route(self, mine: Notes, view: View, request: int, now: float) -> int:
        note(mine, view, ROUTE, request, -1, 0, now)
        view.work[NODES] += request % 3
        view.work[SEGMENTS] += view.requests[request].segments
        view.work[ENTRIES] += view.requests[request].turn
        view.work[SCORED] += len(view.candidates)
        if self.refuses > 0 and request % self.refuses == self.refuses - 1:
            return REFUSE
        best, least, room = HOLD, 0, False
        for g in view.candidates:
            seen = view.gpus[g]
            score = 3 * seen.queued + 5 * seen.running + 2 * seen.waiting_tokens + seen.generated
            score += (seen.kv_tokens - seen.kv_free - seen.evictable) % 17 + seen.window_hit_tokens % 11
            score += 40 * view.sent[g].outstanding
            room = room or view.sent[g].outstanding < self.outstanding
            if best == HOLD or score < least:
                best, least = g, score
        return best if room or self.outstanding == 0 else HOLD

    def first_token(self, mine: Notes, view: View, request: int, now: float) -> None:
        note(mine, view, FIRST_TOKEN, request, -1, 0, now)

    def finished(self, mine: Notes, view: View, request: int, now: float) -> None:
        note(mine, view, FINISHED, request, -1, 0, now)

    def stored(self, mine: Notes, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        note(mine, view, STORED, request, gpu, tokens, now)

    def evicted(self, mine: Notes, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        note(mine, view, EVICTED, request, gpu, tokens, now)


class PlainWatcher(Watcher):
    compiled: ClassVar[bool] = False


@register_jitable
def note(mine: Notes, view: View, kind: int, request: int, gpu: int, tokens: int, now: float) -> None:
    if mine.used[0] == len(mine.rows):
        return
    row, seen = mine.rows[mine.used[0]], view.requests[request]
    row[KIND], row[REQUEST], row[GPU], row[TOKENS], row[NOW] = kind, request, gpu, tokens, now
    row[OUTPUT], row[TTFT], row[LATENCY] = seen.output_seen, seen.ttft_s, seen.latency_s
    mine.used[0] += 1
    for g in range(len(view.gpus)):
        one, sent, at = view.gpus[g], view.sent[g], SEEN + OF_GPU * g
        row[at], row[at + 1], row[at + 2] = one.queued, one.running, one.waiting_tokens
        row[at + 3], row[at + 4], row[at + 5] = one.kv_tokens, one.kv_free, one.evictable
        row[at + 6], row[at + 7] = one.window_hit_tokens, one.window_prompt_tokens
        row[at + 8], row[at + 9] = one.generated, one.ahead
        row[at + 10], row[at + 11], row[at + 12] = sent.outstanding, sent.tokens, sent.requests


# ---------------------------------------------------------------- what is drawn
class Segments:
    """Segments as they come to be."""

    def __init__(self) -> None:
        self.ids: dict[tuple[int, ...], int] = {}
        self.tokens: list[int] = []

    def new(self, tokens: int) -> int:
        self.tokens.append(tokens)
        return len(self.tokens) - 1

    def of(self, path: tuple[int, ...]) -> list[int]:
        """Every distinct path is a segment, of a length that depends on it."""
        for i in range(len(path)):
            if path[: i + 1] not in self.ids:
                self.ids[path[: i + 1]] = self.new(1 + 7 * len(self.tokens) % 40)
        return [self.ids[path[: i + 1]] for i in range(len(path))]


def workload_of(
    prompts: list[list[int]],
    segment_tokens: list[int],
    arrivals: list[float],
    outputs: list[int],
    most: list[int],
    answers: list[int],
    turns: list[int] | None = None,
) -> Workload:
    ids = np.concatenate(prompts)
    tokens = np.array(segment_tokens)[ids]
    return Workload(
        arrival_s=np.sort(np.array(arrivals)),
        prompt_tokens=np.array([sum(segment_tokens[one] for one in row) for row in prompts]),
        output_tokens=np.array(outputs),
        max_new_tokens=np.array(most),
        prefix_group=np.full(len(prompts), -1),
        segment_offsets=np.concatenate([[0], np.cumsum([len(row) for row in prompts])]),
        segment_ids=ids,
        segment_tokens=tokens,
        turn=None if turns is None else np.array(turns),
        answer_segment=np.array(answers),
    )


PATHS = st.lists(st.integers(0, 2), min_size=1, max_size=5).map(tuple)
DEEP = st.lists(st.integers(0, 1), min_size=2, max_size=6).map(tuple)
ANSWERS = st.sampled_from(["anonymous", "named", "named", "longer", "turn"])
NOW_AND_THEN = st.one_of(st.floats(0, 3), st.integers(0, 6).map(lambda quarter: quarter / 4), st.floats(0, 90))
KINDS = st.sampled_from(  # path of a first prompt, output, at most, answer; arrival
    [
        (st.tuples(PATHS, st.integers(1, 70), st.sampled_from([1, 5, 30, 60]), ANSWERS), NOW_AND_THEN),
        (st.tuples(PATHS, st.integers(50, 70), st.sampled_from([59, 60]), ANSWERS), st.floats(0, 0.1)),
        (st.tuples(DEEP, st.integers(1, 12), st.sampled_from([5, 12, 30]), ANSWERS), st.floats(0, 0.5)),
        (st.tuples(DEEP, st.integers(1, 12), st.just(12), ANSWERS), st.integers(0, 12).map(lambda i: 7.5 * i)),
        (st.tuples(PATHS, st.integers(100, 400), st.sampled_from([100, 400]), ANSWERS), st.floats(0, 2)),
    ]
)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    n, (requests, times) = draw(st.integers(1, 40)), draw(KINDS)
    drawn = draw(st.lists(requests, min_size=n, max_size=n))
    return conversations(drawn, draw(st.lists(times, min_size=n, max_size=n)))


def conversations(drawn: list[tuple[tuple[int, ...], int, int, str]], arrivals: list[float]) -> Workload:
    """Some requests are the next turn of one before: its prompt, its answer and a new segment."""
    segments = Segments()
    prompts: list[list[int]] = []
    answers, turns = [], []
    for i, (path, output, most, kind) in enumerate(drawn):
        before = [j for j in range(i) if answers[j] >= 0]
        if kind == "turn" and before:
            j = before[(output + most) % len(before)]
            prompts.append([*prompts[j], answers[j], segments.new(1 + output % 20)])
            turns.append(turns[j] + 1)
        else:
            prompts.append(segments.of(path))
            turns.append(0)
        same = [answers[j] for j in before if prompts[j] == prompts[i]]  # another answer with this name
        longer = (7 if output % 2 else -3) if kind == "longer" else 0
        name = same[0] if same and output % 2 else segments.new(max(1, min(output, most) + longer))
        answers.append(-1 if kind == "anonymous" else name)
    outputs, most = [one[1] for one in drawn], [one[2] for one in drawn]
    return workload_of(prompts, segments.tokens, arrivals, outputs, most, answers, turns)


FINE = replace(
    A6000,
    linear=((64, 4.2, 0.108, 0.0), (16, 3.0, 0.2, 1e-3), (0, 5.0, 0.0, 0.0)),
    attention=(100, 0.32, 0.159, 1.86e-3),
    shared=(40, 3000),
    request=(500, 0.1, 1.13e-3, 1.75e-3, 2.19e-5),
)
"""what small batches cost is of every branch"""


@dataclass(frozen=True)
class Fronted(PrebleFit):
    """Requests pass a frontend before they are queued: those that are sent at one time, not always in their order."""

    frontend_s: tuple[float, float] = (0.003, 0.0007)


FRONTED = Fronted(**{one.name: getattr(FINE, one.name) for one in fields(FINE)})
ENGINES = st.builds(
    Continuous,
    queue=st.sampled_from(QUEUES),
    groups=st.sampled_from([1, 4, 10]),
    prefill=st.sampled_from(PREFILLS),
    chunk_tokens=st.integers(16, 64),
    block_tokens=st.sampled_from([1, 16]),
    decode_steps=st.sampled_from([1, 3, 8]),
)
WATCHERS = st.tuples(st.sampled_from([0, 0, 1, 3, -1]), st.sampled_from([0, 0, 2, 3]))
POLICIES = st.one_of(
    st.sampled_from([LeastOutstanding(), RoundRobin(), Random()]),
    st.builds(lambda two: Watcher(*two), WATCHERS),
    st.builds(lambda two: PlainWatcher(*two), WATCHERS),
)
COSTS = {"decision_s": 0.01, "node_s": 0.003, "segment_s": 0.0007, "entry_s": 0.0011, "gpu_s": 0.002}
OVERHEADS = st.builds(
    lambda mode, prediction_s: Overhead(mode=mode, prediction_s=prediction_s, **COSTS),
    st.sampled_from(["none", "serial", "recorded"]),
    st.sampled_from([0.0, 0.013]),
)
HARDWARE = st.builds(
    lambda base, **given: replace(base, **given),
    st.sampled_from([FINE, A6000, FRONTED]),
    kv_tokens=st.one_of(*[st.integers(100, most) for most in (300, 300, 700, 2000)], st.just(100_000)),
    context_length=st.sampled_from([150, 32768]),
    prefill_batch=st.sampled_from([True, True, False]),
)


def of_two_kinds(cluster: dict[str, Any]) -> dict[str, Any]:
    """Or of one, where there is no second."""
    second, gpus = cluster.pop("second"), cluster["gpus"]
    kinds = [(gpus, cluster["hardware"]), *([second] if second else [])]
    return cluster | {"gpus": sum(count for count, _ in kinds), "kinds": kinds}


CLUSTERS = st.fixed_dictionaries(
    {
        "gpus": st.sampled_from([1, 1, 1, 2, 3, 4]),
        "policy": POLICIES,
        "hardware": HARDWARE,
        "second": st.one_of(st.none(), st.none(), st.tuples(st.integers(1, 2), HARDWARE)),
        "engine": ENGINES,
        "overhead": OVERHEADS,
        "duration_s": st.sampled_from([0.5, 4.0]),
        "horizon": st.sampled_from(["stop", "drain"]),
        "seed": st.integers(0, 3),
        "reports_ms": st.sampled_from([0.0, 50.0, 500.0]),
    }
).map(of_two_kinds)


# ---------------------------------------------------------------- the comparison
def agree(workload: Workload, cluster: dict[str, Any], by: Callable[..., Outcome] = oracle.simulate) -> Outcome:
    """And whatever the core's policy heard and saw, the oracle's did."""
    KEPT.clear()
    made = simulate(workload, lengths=Max(), **cluster)
    heard = [one.rows[: one.used[0]] for one in KEPT]
    KEPT.clear()
    expected = by(workload, **cluster)
    for ours, theirs in zip(heard, [one.rows[: one.used[0]] for one in KEPT], strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg="what the policy heard", strict=True)
        once = made.gpu_requests.sum() == (made.gpu >= 0).sum()  # nobody was given back
        if once and not made.losses.any():  # who is lost is heard of more than once
            causal(workload, made, ours)
    for name in (one.name for one in fields(Outcome)):
        ours, theirs = getattr(made, name), getattr(expected, name)
        np.testing.assert_array_equal(ours, theirs, err_msg=name, strict=True)
    return made


def causal(workload: Workload, made: Outcome, rows: Any) -> None:
    """Nothing is heard or seen before it happened, and nothing that can be told is missing."""
    kind, request, now = rows[:, KIND].astype(int), rows[:, REQUEST].astype(int), rows[:, NOW]
    since, gave_up = now - made.due_s[request], (made.state == State.CANCELLED) & (made.gpu >= 0)
    for notice, when, happened in (
        (FIRST_TOKEN, made.ttft_s[request], since),
        (FINISHED, made.finish_s[request], now),
    ):
        told = kind == notice
        served = told & ~gave_up[request]
        assert (happened[served] == when[served]).all()
        assert len(set(request[told])) == told.sum()
    stored = kind == STORED
    assert ((since[stored] >= made.ttft_s[request[stored]]) | gave_up[request[stored]]).all()
    came = {FIRST_TOKEN: np.isfinite(made.ttft_s), FINISHED: (made.state == State.FINISHED) | gave_up}
    if len(rows) < ROWS:
        for notice, had in came.items():
            assert set(request[kind == notice]) == set(np.flatnonzero(had))
        length = workload.prompt_tokens + made.output_seen - 1
        whole = stored & (now == made.finish_s[request]) & (rows[:, TOKENS] == length[request])
        assert set(request[whole]) == set(np.flatnonzero(made.state == State.FINISHED))
    ends = np.where(kind == FINISHED, made.gpu[request], -1)
    for g in range(len(made.gpu_requests)):
        sent, outstanding = rows[:, SENT + OF_GPU * g + 2], rows[:, SENT + OF_GPU * g]
        assert (sent - outstanding == np.cumsum(ends == g)).all()
        here = np.flatnonzero((made.gpu == g) & np.isfinite(made.ttft_s))
        begun = (now[:, None] - made.due_s[here] >= made.ttft_s[here]).sum(axis=1)
        assert (rows[:, SEEN + OF_GPU * g + 1] <= begun).all()
    assert (now[kind == ROUTE] >= made.due_s[request[kind == ROUTE]]).all()


@settings(max_examples=examples(100), deadline=None)
@given(workloads(), CLUSTERS)
def test_the_core_gives_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


@settings(max_examples=examples(100), deadline=None)
@given(st.one_of(linked(workloads()), impatient(linked(workloads())), impatient(workloads())), CLUSTERS)
def test_the_core_gives_the_bytes_of_the_oracle_in_sessions(workload: Workload, cluster: dict[str, Any]) -> None:
    made = agree(workload, cluster)
    in_order(workload, made)


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(st.one_of(workloads(), linked(workloads()), impatient(linked(workloads()))), CLUSTERS)
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
def cluster_of(**given: Any) -> dict[str, Any]:
    """One small GPU."""
    kv_tokens, context_length = given.pop("kv_tokens", 1000), given.pop("context_length", 32768)
    small = replace(FINE, kv_tokens=kv_tokens, context_length=context_length)
    shared = {"gpus": 1, "policy": Watcher(), "hardware": small, "engine": Continuous(), "overhead": Overhead()}
    return shared | {"duration_s": 60.0, "horizon": "drain", "seed": 0, "reports_ms": 0.0} | given


def alike(arrivals: list[float], prompt: int, output: int, most: int | None = None) -> Workload:
    """Requests that share nothing."""
    n = len(arrivals)
    limits = [output if most is None else most] * n
    return workload_of([[i] for i in range(n)], [prompt] * n, arrivals, [output] * n, limits, [-1] * n)


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
