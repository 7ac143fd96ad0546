"""Sessions: who is due when, what a next turn finds in the cache, and where all of that is known exactly.

The worked examples are those of ../shared/spec/workloads.md, section 2."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from prebleexp.engines.base import Engine
from prebleexp.engines.continuous import Continuous
from prebleexp.engines.released.engine import Released
from prebleexp.engines.sglang.engine import SGLang
from prebleexp.engines.splitwise.engine import Splitwise
from prebleexp.engines.vllm.engine import VLLM
from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import HOLD, Policy
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Outcome, State, Workload
from prebleexp.testing import stream
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.recorded import Recorded, save
from prebleexp.workloads.sessions import Sessions
from tests.support.costs.turn_cost import TurnCost
from tests.support.places import ROOT
from tests.support.sessions import after_those

SHARED = ROOT.parent / "shared"
LONG = 1 << 20
VLLMS = {size: VLLM(block_size=size, async_scheduling=False, host_s=0, max_num_batched_tokens=LONG) for size in (1, 16)}
SGLANG = SGLang(disable_overlap_schedule=True, host_s=0, chunked_prefill_size=16384)
PREBLE = {size: Continuous(step_cost_s=1e-7, block_tokens=size, decode_steps=1) for size in (1, 16)}
ENGINES: dict[str, tuple[Engine, int]] = {
    **{f"vllm, blocks of {size}": (engine, size) for size, engine in VLLMS.items()},
    **{f"preble, blocks of {size}": (engine, size) for size, engine in PREBLE.items()},
    "sglang": (SGLANG, 1),
}
"""each with the tokens of its cache's blocks"""


def router(name: str) -> Policy:
    """As configured."""
    return configure.cells([f"policy={name}"])[0].policy


def serve(workload: Workload, engine: Engine, policy: Policy | None = None, **given: Any) -> Outcome:
    cluster = {"gpus": 1, "hardware": TurnCost(), "overhead": Overhead(), "duration_s": 1000.0, "horizon": "drain"}
    policy = policy or LeastOutstanding()
    return simulate(workload, engine=engine, policy=policy, lengths=Max(), seed=0, **(cluster | given))


# ---------------------------------------------------------------- worked examples
CHAIN = ((0.0, 1000, 100), (5.0, 50, 10), (2.0, 20, 1))


def chain() -> Workload:
    sessions = Sessions()
    sessions.accumulate(CHAIN)
    return sessions.workload()


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINES)
def test_a_chain(name: str) -> None:
    """Prompts of 1000, 1150 and 1180 tokens; of an answer all but the last token is cached, in whole blocks."""
    engine, block = ENGINES[name]
    workload = chain()
    made = serve(workload, engine)
    assert workload.prompt_tokens.tolist() == [1000, 1150, 1180]
    hits = [0, 1099 // block * block, 1159 // block * block]
    assert made.hit_tokens.tolist() == hits
    assert made.prefilled_tokens.tolist() == [1000, 1150 - hits[1], 1180 - hits[2]]
    end = 2.0
    for turn, (think, _, output) in enumerate(CHAIN):
        due = 0.0 if turn == 0 else end + think
        first = due + 0.001 * (workload.prompt_tokens[turn] - hits[turn]) + 0.01
        end = first + 0.01 * (output - 1)
        assert made.due_s[turn] == pytest.approx(due, abs=1e-4)
        assert made.due_s[turn] + made.ttft_s[turn] == pytest.approx(first, abs=1e-4)
        assert made.finish_s[turn] == pytest.approx(end, abs=1e-4)
    if block == 1:
        assert made.due_s.tolist() == pytest.approx([0.0, 7.0, 9.151], abs=1e-4)
        assert (made.due_s + made.ttft_s).tolist() == pytest.approx([1.010, 7.061, 9.182], abs=1e-4)
        assert made.finish_s.tolist() == pytest.approx([2.000, 7.151, 9.182], abs=1e-4)


def test_a_chain_without_a_prefix_cache_comes_later() -> None:
    """Not when it came with one: a late answer delays the next question."""
    made = serve(chain(), replace(VLLMS[1], enable_prefix_caching=False))
    assert made.due_s.tolist() == pytest.approx([0.0, 7.0, 10.25])
    assert made.finish_s.tolist() == pytest.approx([2.0, 8.25, 11.44])
    np.testing.assert_allclose(made.latency_s, made.finish_s - made.due_s)


def joined(goes_on: bool = False, of_c: tuple[int, int] = (1000, 600)) -> Workload:
    """A; after it B and C, of so many tokens; after both D."""
    sessions = Sessions()
    session = sessions.begin()
    a = sessions.request(session, 1000, 100)
    b = sessions.request(session, 1000, 300, after=[a], delay_s=1.0)
    c = sessions.request(session, *of_c, after=[a], delay_s=1.0, goes_on=goes_on)
    sessions.request(session, 10, 1, after=[c, b], delay_s=3.0)
    return sessions.workload()


@pytest.mark.parametrize("engine", [VLLMS[1], SGLANG, PREBLE[1]])
def test_a_join_waits_for_all(engine: Engine) -> None:
    made = serve(joined(), engine, gpus=2)
    assert made.finish_s[:3].tolist() == pytest.approx([2.0, 7.0, 10.0], abs=1e-3)
    assert made.due_s.tolist() == pytest.approx([0.0, 3.0, 3.0, 13.0], abs=1e-3)


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_join_with_a_refusal(goes_on: bool) -> None:
    """D goes on without C, which was refused when it came, or is cancelled; so is who comes after D."""
    sessions, workload = Sessions(), joined(goes_on)
    longer = replace(workload, max_new_tokens=np.where(np.arange(4) == 2, 10**9, workload.max_new_tokens))
    made = serve(longer, PREBLE[1], gpus=2)
    assert made.state.tolist()[:3] == [State.FINISHED, State.FINISHED, State.REFUSED]
    assert made.state[3] == (State.FINISHED if goes_on else State.CANCELLED)
    if goes_on:
        assert made.due_s[3] == made.finish_s[1] + 3.0
    else:
        assert np.isnan(made.due_s[3])
    session = sessions.begin()
    first = sessions.request(session, 10**8, 1)
    second = sessions.request(session, 10, 1, after=[first])
    sessions.request(session, 10, 1, after=[second], goes_on=True)
    made = serve(sessions.workload(), PREBLE[1])
    assert made.state.tolist() == [State.REFUSED, State.CANCELLED, State.CANCELLED]
    assert made.end_s == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("engine", [VLLMS[1], SGLANG, PREBLE[1]])
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_join_with_a_cancellation(goes_on: bool, engine: Engine) -> None:
    """C gives up at 6, part-way through a prompt of 7 s: D is due at 10, behind B's end at 7, or cancelled."""
    workload = joined(goes_on, of_c=(6999, 1))
    patient = replace(workload, patience_s=np.array([np.nan, np.nan, 3.0, np.nan]))
    made = serve(patient, engine, gpus=2)
    assert made.state[:3].tolist() == [State.FINISHED, State.FINISHED, State.CANCELLED]
    assert np.isnan([made.ttft_s[2], made.latency_s[2], made.finish_s[2]]).all()
    assert made.finish_s[1] == pytest.approx(7.0, abs=1e-3)
    if goes_on:
        assert made.due_s[3] == made.finish_s[1] + 3.0 == pytest.approx(10.0, abs=1e-3)
        assert made.state[3] == State.FINISHED
    else:
        assert made.state[3] == State.CANCELLED
        assert np.isnan(made.due_s[3])
        assert made.gpu[3] == -1


AGENTS = SHARED / "data" / "agentic_sessions.jsonl.gz"


@pytest.mark.skipif(not AGENTS.exists(), reason="shared/data is not there")
def test_agents_are_waited_for_and_their_run_is_not_counted_twice() -> None:
    """Session a0157, every request as long as it was recorded: turn 1 is due when it was."""
    with gzip.open(AGENTS, "rt") as lines:
        recorded = next(one for one in map(json.loads, lines) if one["session"] == "a0157")
    with gzip.open(SHARED / "data" / "weka_trace_a0157.json.gz", "rt") as file:
        original = json.load(file)["requests"]
    agents = [one for one in recorded["agents"] if one["after"] == 0]
    sessions = Sessions()
    main = sessions.begin()

    def lasting(session: int, seconds: float, **rest: Any) -> int:
        return sessions.request(session, round(seconds * 1000) - 10, 1, **rest)

    first = lasting(main, original[0]["api_time"])
    started = [
        lasting(sessions.begin(parent=main), one["seconds"], after=[first], delay_s=one["start"]) for one in agents
    ]
    turn = sessions.request(main, recorded["turns"][1][2], 1, after=started, delay_s=agents[0]["join"])
    made = serve(sessions.workload(), VLLMS[16], gpus=4)
    ends = [one["t"] for one in original if one["type"] == "subagent"][:3]
    assert made.finish_s[started].tolist() == pytest.approx(ends)
    assert made.due_s[turn] == made.finish_s[started].max() + 16.653
    assert made.due_s[turn] == pytest.approx(recorded["turns"][1][0])


# ---------------------------------------------------------------- closed queues
def lanes(count: int, turns: int, rng: np.random.Generator, think_s: float, service_ms: float) -> Workload:
    """Each asks again when it has thought; all is exponential."""
    n = count * turns
    think = rng.exponential(think_s, n)
    prompts = np.maximum(1, np.round(rng.exponential(service_ms, n))).astype(np.int32)
    lane, turn = np.repeat(np.arange(count), turns), np.tile(np.arange(turns), count)
    first, one = turn == 0, np.ones(n, np.int32)
    arrival = np.repeat(think[first], turns)
    order = np.argsort(arrival, kind="stable")
    return Workload(
        arrival_s=arrival[order],
        prompt_tokens=prompts,
        output_tokens=one,
        max_new_tokens=one,
        prefix_group=-one,
        segment_offsets=np.arange(n + 1),
        segment_ids=np.arange(n),
        segment_tokens=prompts,
        session=lane,
        turn=turn,
        delay_s=think,
        after_offsets=np.concatenate([[0], np.cumsum(turn > 0)]),
        after_ids=np.flatnonzero(turn < turns - 1),
    )


def littles_law(made: Outcome, think_s: Any, from_s: float, to_s: float) -> tuple[float, float, float]:
    """(throughput, mean response, lanes found by N = X (R + Z)) over a window: of those that ended in it."""
    there = (made.finish_s > from_s) & (made.finish_s <= to_s)
    rate, response = there.sum() / (to_s - from_s), made.latency_s[there].mean()
    return float(rate), float(response), float(rate * (response + np.mean(think_s[there])))


def test_machine_repair() -> None:
    """Ten machines and one repairman, M/M/1//10: throughput and response are known exactly; limits of 99 %, over
    twenty seeds."""
    engine = VLLM(
        async_scheduling=False, host_s=0, max_num_seqs=1, max_num_batched_tokens=LONG, enable_prefix_caching=False
    )
    found, warm_s, end_s = [], 500.0, 8500.0
    for seed in range(20):
        workload = lanes(10, 900, np.random.default_rng(seed), 9.0, 1000.0)
        made = serve(workload, engine, hardware=TurnCost(output_token_s=0.0), duration_s=end_s, horizon="stop")
        assert (made.state[workload.turn == 899] == State.NOT_DUE).all(), "no lane is done before the end"
        found.append(littles_law(made, workload.delay_s, warm_s, end_s))
    for exact, values in zip((0.832037, 3.018700, 10.0), np.transpose(found), strict=True):
        limit = 2.861 * values.std(ddof=1) / np.sqrt(20)  # t with 19 degrees of freedom
        assert limit < 0.02 * exact
        assert values.mean() == pytest.approx(exact, abs=limit)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [VLLM(), SGLang(), Continuous()])
@pytest.mark.parametrize("policy", ["lor", "round_robin", "random", "e2"])
def test_lanes_are_conserved_whatever_serves_them(engine: Engine, policy: str) -> None:
    workload = lanes(24, 200, np.random.default_rng(3), 2.0, 300.0)
    made = serve(workload, engine, router(policy), gpus=3, duration_s=300.0, horizon="stop")
    assert littles_law(made, workload.delay_s, 20.0, 300.0)[2] == pytest.approx(24, rel=0.03)


# ---------------------------------------------------------------- order
def test_the_next_turn_without_delay_comes_at_once_and_after_the_finish_is_heard() -> None:
    sessions = Sessions()
    sessions.accumulate([(0.0, 100, 10), (0.0, 10, 10), (0.0, 10, 1)])
    made = serve(sessions.workload(), VLLMS[1], gpus=2)
    assert made.due_s[1:].tolist() == made.finish_s[:2].tolist()
    assert made.gpu.tolist() == [0, 0, 0], "each GPU had none outstanding"


def test_requests_due_together_come_by_number() -> None:
    sessions = Sessions()
    session = sessions.begin()
    first = sessions.request(session, 100, 1)
    for _ in range(5):
        sessions.request(session, 50, 1, after=[first], delay_s=1.0)
    made = serve(sessions.workload(), PREBLE[1], RoundRobin(), gpus=6)
    assert made.gpu.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("engine", [Continuous(queue="fcfs"), VLLM(scheduling_policy="priority"), SGLang()])
def test_first_come_is_first_served_though_it_has_a_higher_number(engine: Engine) -> None:
    """Request 1 comes after request 0, and later than request 2: a queue in order of arrival is not one of numbers."""
    sessions = Sessions()
    first = sessions.accumulate([(0.0, 10, 1), (20.0, 9000, 1)])
    second = sessions.accumulate([(0.0, 9000, 1)], start_s=20.0)
    other = sessions.accumulate([(0.0, 9000, 500)], start_s=19.0)
    workload = sessions.workload()
    made = serve(workload, engine, hardware=TurnCost(kv_tokens=12_000))
    at = {(int(s), int(t)): i for i, (s, t) in enumerate(zip(workload.session, workload.turn, strict=True))}
    turn, late, busy = at[0, 1], at[1, 0], at[2, 0]
    assert len(first) + len(second) + len(other) == 4
    assert made.finish_s[busy] > made.due_s[turn] > made.due_s[late]
    assert turn < late
    assert made.finish_s[late] < made.finish_s[turn]


def test_when_no_session_starts_any_more_those_that_run_go_on() -> None:
    sessions = Sessions()
    for start_s in (0.0, 20.0, 50.0):
        sessions.accumulate(((0.0, 1000, 200), *CHAIN[1:]), start_s=start_s)
    workload = sessions.workload()
    drained = serve(workload, VLLMS[1], duration_s=22.0)
    assert drained.state.tolist() == [State.FINISHED] * 6 + [State.NOT_DUE] * 3
    assert drained.end_s == drained.finish_s[5] > 22.0
    assert np.isnan(drained.due_s[6:]).all()
    stopped = serve(workload, VLLMS[1], duration_s=22.0, horizon="stop")
    assert stopped.state.tolist() == [State.FINISHED] * 3 + [State.RUNNING] + [State.NOT_DUE] * 5
    assert stopped.end_s == 22.0


# ---------------------------------------------------------------- giving up
@pytest.mark.parametrize(
    ("engine", "kept"),
    [
        (replace(VLLMS[16], max_num_batched_tokens=512), 1024),  # two steps of 512 tokens
        (replace(SGLANG, chunked_prefill_size=512), 1024),
        (replace(PREBLE[16], prefill="chunked"), 1024),
        (VLLMS[16], 2992),  # one step: all of it, in whole blocks
        (SGLANG, 3000),
        (PREBLE[16], 2992),
    ],
)
def test_what_was_computed_of_whom_gave_up_stays_cached(engine: Engine, kept: int) -> None:
    """Request 0 gives up at .6, in a step, and leaves when that is over. Request 1 has its prompt, and one token more.
    Request 2 waits and gives up at .375."""
    sessions = Sessions()
    session = sessions.begin()
    a = sessions.request(session, 3000, 50, goes_on=True)
    sessions.request(session, 1, 5, after=[a], delay_s=10.0, of=a, keep=3000)
    sessions.accumulate([(0.0, 800, 50)], start_s=0.125)
    workload = replace(sessions.workload(), patience_s=np.array([0.6, np.nan, 0.25]))
    made = serve(workload, engine, policy=Recorder())
    assert made.state.tolist() == [State.CANCELLED, State.FINISHED, State.CANCELLED]
    assert made.due_s[1] == 0.6 + 10.0
    assert made.hit_tokens[1] == kept
    assert made.prefilled_tokens.tolist()[1:] == [3001 - kept, 0]
    assert made.output_seen.tolist() == [0, 5, 0]
    assert [(2, 0.375, 1), (0, 0.6, 0), (1, made.finish_s[1], 0)] == HEARD


HEARD: list[tuple[int, float, int]] = []


@dataclass(frozen=True)
class Recorder(Policy):
    """Writes down of whose end it hears, when, and how many are outstanding then."""

    compiled: ClassVar[bool] = False

    def start(self, setup: Any) -> None:
        HEARD.clear()

    def route(self, mine: Any, view: Any, request: int, now: float) -> int:
        return 0

    def finished(self, mine: Any, view: Any, request: int, now: float) -> None:
        HEARD.append((request, now, int(view.sent[0].outstanding)))


def test_whom_the_router_holds_may_give_up() -> None:
    """Nobody asks for it again, and its place is free."""

    @dataclass(frozen=True)
    class OneAtATime(Policy):
        compiled: ClassVar[bool] = False

        def route(self, mine: Any, view: Any, request: int, now: float) -> int:
            return 0 if view.sent[0].outstanding == 0 else HOLD

    sessions = Sessions()
    for _ in range(3):
        sessions.accumulate([(0.0, 1000, 100)])
    workload = replace(sessions.workload(), patience_s=np.array([np.nan, 1.5, np.nan]))
    for overhead in (Overhead(), Overhead("serial", decision_s=0.1)):
        made = serve(workload, VLLMS[1], OneAtATime(), overhead=overhead)
        assert made.state.tolist() == [State.FINISHED, State.CANCELLED, State.FINISHED]
        assert made.gpu.tolist() == [0, -1, 0]
        assert made.due_s[1] == 0.0
    held = serve(replace(workload, patience_s=np.full(3, 1e-9)), VLLMS[1], OneAtATime())
    assert (held.state == State.CANCELLED).all()
    assert held.end_s == 1e-9


def test_a_first_token_in_time_is_served_to_the_end() -> None:
    """At the very instant at which patience ends as well: ends of steps come first."""
    sessions = Sessions()
    sessions.accumulate([(0.0, 1000, 500)])
    workload = sessions.workload()
    served = serve(workload, VLLMS[1])
    for more, state in ((0.0, State.FINISHED), (-1e-9, State.CANCELLED)):
        impatient = replace(workload, patience_s=served.ttft_s + more)
        assert serve(impatient, VLLMS[1]).state.tolist() == [state]


@pytest.mark.slow
def test_an_engine_that_cannot_cancel_says_so() -> None:
    @dataclass(frozen=True)
    class Stubborn(VLLM):
        def kernels(self) -> Any:
            made = super().kernels()
            return SimpleNamespace(**{name: one for name, one in vars(made).items() if name != "cancel"})

    workload = replace(chain(), patience_s=np.ones(3))
    with pytest.raises(InvalidInput, match=r"^engine Stubborn has no cancel, and requests have patience_s$"):
        serve(workload, Stubborn(block_size=1))


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "name"), [(Released(), "released"), (Splitwise(), "splitwise")])
def test_what_was_released_without_sessions_has_none(engine: Engine, name: str) -> None:
    says = rf"^engine={name} is not valid with requests that come after others, in stages, or that give up;"
    for workload in (chain(), replace(stream(), patience_s=np.ones(160))):
        with pytest.raises(InvalidInput, match=says):
            serve(workload, engine)


# ---------------------------------------------------------------- growth
def test_what_a_recording_keeps_is_kept_and_no_more() -> None:
    """Turn 1 keeps a part of the first prompt, turn 2 all of turn 0's context, turn 3 a part of its answer."""
    sessions = Sessions()
    session = sessions.begin()
    a = sessions.request(session, 100, 20)
    b = sessions.request(session, 30, 5, after=[a], of=a, keep=64)
    c = sessions.request(session, 10, 5, after=[b], of=a, keep=120)
    d = sessions.request(session, 7, 5, after=[c], of=c, keep=110)
    e = sessions.request(session, 1, 5, after=[d], of=d)
    workload = sessions.workload()
    assert workload.prompt_tokens.tolist() == [100, 94, 130, 117, 123]
    made = serve(workload, VLLMS[1])
    assert made.hit_tokens.tolist()[:3] == [0, 64, 119]
    assert made.hit_tokens[d] == 100, "of an answer only the longest part that is kept has its name"
    assert made.hit_tokens[e] == 121
    with pytest.raises(InvalidInput, match=r"request 5: keep=121 is not valid; the context of request 0 has 120"):
        sessions.request(session, 1, 1, of=a, keep=121)


def test_an_answer_that_is_cut_accumulates_as_it_was_generated() -> None:
    sessions = Sessions()
    session = sessions.begin()
    a = sessions.request(session, 100, 50, max_new=20)
    b = sessions.request(session, 10, 1, after=[a], of=a)
    recorded = sessions.request(session, 10, 1, after=[b], of=a, keep=150)
    workload = sessions.workload()
    assert workload.prompt_tokens.tolist() == [100, 130, 160]
    made = serve(workload, VLLMS[1])
    assert made.hit_tokens[recorded] == 119, "what was generated of it, but its last token"


# ---------------------------------------------------------------- what cannot be
def linked(after: list[list[int]], **columns: Any) -> Workload:
    n = len(after)
    one = np.ones(n, np.int32)
    workload = Workload(np.zeros(n), one, one, one, -one, np.arange(n + 1), np.arange(n), one, session=one)
    return after_those(workload, after, **columns)


FEW = [[], [0], [0, 1]]
BEFORE = "it must be a request before it, from 0 on: none waits for itself"


@pytest.mark.parametrize(
    ("after", "columns", "said"),
    [
        ([[], [2], [1]], {}, f"after_ids, row 1: 2 is not valid; {BEFORE}"),
        ([[], [1]], {}, f"after_ids, row 1: 1 is not valid; {BEFORE}"),
        ([[], [-1]], {}, f"after_ids, row 1: -1 is not valid; {BEFORE}"),
        ([[], [7]], {}, f"after_ids, row 1: 7 is not valid; {BEFORE}"),
        (FEW, {"delay_s": [0.0, -1.0, 0.0]}, "delay_s, row 1: -1.0 is not valid; it must be finite and >= 0"),
        (FEW, {"delay_s": [0.0, 0.0, np.nan]}, "delay_s, row 2: nan is not valid; it must be finite and >= 0"),
        (FEW, {"delay_s": [np.inf, 0.0, 0.0]}, "delay_s, row 0: inf is not valid; it must be finite and >= 0"),
        (FEW, {"delay_s": [0.0]}, r"delay_s has shape \(1,\); \(3,\) was expected"),
        (FEW, {"patience_s": [1.0, 0.0, 1.0]}, "patience_s, row 1: 0.0 is not valid; it must be > 0"),
        (FEW, {"goes_on": [0, 2, 0]}, "goes_on, row 1: 2 is not valid; it must be 0 or 1"),
        (FEW, {"session": [1, 1, 2]}, "after_ids, row 2: 0 is not valid; it must be of a session, and of the same"),
        (FEW, {"session": [-1, 1, 1]}, "after_ids, row 1: 0 is not valid; it must be of a session"),
        (FEW, {"parent_session": [0, 0, -1]}, "parent_session, row 2: -1 is not valid; it must be that of its whole"),
        (FEW, {"parent_session": [-2] * 3}, "parent_session, row 0: -2 is not valid; it must be >= -1"),
        (FEW, {"after_offsets": [0, 2, 1, 3]}, "after_offsets, row 1: 1 is not valid; it must be at least the offset"),
        (FEW, {"after_offsets": [0, 0, 0, 2]}, "after_offsets runs from 0 to 2; it must run from 0 to 3"),
        (FEW, {"after_offsets": [0, 3]}, "after_offsets has 2 rows; 4 were expected"),
    ],
)
def test_links_that_cannot_be_are_refused(after: list[list[int]], columns: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=f"^workload column {said}"):
        replace(linked(after), **{name: np.array(column) for name, column in columns.items()})


def test_sessions_of_a_parent_may_wait_for_each_other_through_it() -> None:
    """A parent's turn comes after its children's, theirs after its own; cousins do not wait for each other."""
    family = {"session": np.array([1, 2, 3, 1]), "parent_session": np.array([-1, 1, 1, -1])}
    n = len(family["session"])
    one = np.ones(n, np.int32)
    alone = Workload(np.zeros(n), one, one, one, -one, np.arange(n + 1), np.arange(n), one, **family)
    assert after_those(alone, [[], [0], [0], [1, 2]]).waits.tolist() == [0, 1, 1, 2]
    with pytest.raises(InvalidInput, match=r"after_ids, row 2: 1 is not valid"):
        after_those(alone, [[], [0], [1], [2]])


def test_the_release_has_no_sessions() -> None:
    with pytest.raises(InvalidInput, match=r"^engine=released is not valid with requests that come after others"):
        serve(chain(), Released())


# ---------------------------------------------------------------- files
@pytest.mark.parametrize("suffix", ["parquet", "npz"])
def test_sessions_are_read_back_from_a_file(suffix: str, tmp_path: Path) -> None:
    workload, path = joined(True), tmp_path / f"sessions.{suffix}"
    columns = {one.name: getattr(workload, one.name) for one in fields(Workload) if one.name != "predictions"}
    if suffix == "parquet":
        save(workload, path)
    else:
        np.savez(path, **columns)
    (cell,) = configure.cells(["workload=recorded", f"workload.path={path}"])
    again = runs.draw(cell)
    for name, column in columns.items():
        np.testing.assert_array_equal(getattr(again, name), column, err_msg=name, strict=True)
    assert runs.run(cell).metrics["n_finished"] == 4


def test_links_of_a_file_that_cannot_be_name_it(tmp_path: Path) -> None:
    workload, path = joined(), tmp_path / "sessions.npz"
    columns = {one.name: getattr(workload, one.name) for one in fields(Workload) if one.name != "predictions"}
    np.savez(path, **(columns | {"after_ids": columns["after_ids"] + 1}))
    with pytest.raises(InvalidInput, match=rf"^{path}: workload column after_ids, row 1: 1 is not valid; {BEFORE}$"):
        Recorded(path=str(path)).draw(rps=1, duration_s=1, seed=0, output_length=OutputLength((1,), (1.0,)))
    del columns["after_offsets"]
    np.savez(path, **columns)
    with pytest.raises(InvalidInput, match=r"there is no column after_offsets$"):
        Recorded(path=str(path)).draw(rps=1, duration_s=1, seed=0, output_length=OutputLength((1,), (1.0,)))


# ---------------------------------------------------------------- routers
SESSION_ROUTERS = (
    *("production_stack_session", "sglang_consistent_hashing", "sglang_manual", "vllm_consistent_hash"),
    "vllm_sticky_least_loaded",
)


@pytest.mark.slow
@pytest.mark.parametrize("policy", SESSION_ROUTERS)
def test_a_router_of_sessions_keeps_each_on_its_gpu(policy: str) -> None:
    sessions = Sessions()
    for start_s in np.linspace(0, 3, 40):
        sessions.accumulate([(0.0, 200, 20), (1.0, 30, 20), (1.0, 30, 20), (0.5, 30, 5)], start_s=float(start_s))
    workload = sessions.workload()
    made = serve(workload, VLLMS[16], router(policy), gpus=4, hardware=TurnCost(prompt_token_s=1e-5))
    assert (made.state == State.FINISHED).all()
    homes = {int(session): set(made.gpu[workload.session == session].tolist()) for session in range(40)}
    assert all(len(gpus) == 1 for gpus in homes.values())
    assert len(set.union(*homes.values())) == 4
    later = workload.turn > 0
    assert (made.hit_tokens[later] >= 200 // 16 * 16).all()


def test_a_stream_without_links_is_served_as_before() -> None:
    """The columns of sessions say nothing where nobody comes after another."""
    workload = stream()
    one = np.ones(len(workload))
    assert workload.waits.sum() == 0
    plain, told = (
        serve(given, Continuous(), gpus=3) for given in (workload, replace(workload, delay_s=one, goes_on=one))
    )
    np.testing.assert_array_equal(plain.finish_s, told.finish_s)
    np.testing.assert_array_equal(plain.due_s, workload.arrival_s)
