"""What routing costs in time: counted work, and one router that serves decisions first come, first served."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from prebleexp.engines.base import Engine
from prebleexp.engines.continuous import Continuous
from prebleexp.engines.released.engine import Released
from prebleexp.errors import InvalidInput
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import HOLD, Policy
from prebleexp.policies.e2 import E2
from prebleexp.policies.e2_released import ReleasedE2
from prebleexp.policies.least_work import LeastWork
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.lor_tokens import LeastOutstandingTokens
from prebleexp.policies.random import Random
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim.records import View
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Outcome, Setup, State, Workload
from tests.support.batching import BATCHING
from tests.support.costs.fitted import MONOTONE as A6000
from tests.support.outcomes import assert_same
from tests.support.plain_python import interpreted
from tests.support.strategies.paths import workload_of

OVERHEADS = ("overhead_s", "router_wait_s")
CONTINUOUS = Continuous()
ENGINES = [CONTINUOUS, BATCHING[-1], Released()]
ON_ENGINES = pytest.mark.parametrize("engine", ENGINES, ids=["whole", "chunks", "released"])


@dataclass(frozen=True)
class Watcher(Policy):
    """Sends everything to GPU 0, and writes down when it was asked and what GPU 0 had then."""

    compiled: ClassVar[bool] = False

    def start(self, setup: Setup) -> Any:
        asked.clear()
        return None

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        asked.append((request, now, int(view.sent[0].outstanding)))
        return 0


asked: list[tuple[int, float, int]] = []


def stream(arrivals: list[float], output: int = 5) -> Workload:
    n = len(arrivals)
    return workload_of([[i] for i in range(n)], arrivals, [output] * n, output)


def serve(
    workload: Workload,
    policy: Policy,
    overhead: Overhead,
    engine: Engine = CONTINUOUS,
    *,
    horizon: str = "drain",
    duration_s: float = 10.0,
) -> Outcome:
    return simulate(
        workload,
        gpus=3,
        policy=policy,
        hardware=A6000,
        engine=engine,
        lengths=Max(),
        overhead=overhead,
        duration_s=duration_s,
        horizon=horizon,
        seed=0,
    )


def busy(n: int = 150) -> Workload:
    rng = np.random.default_rng(2)
    paths = [list(map(int, rng.integers(0, 3, size=rng.integers(1, 6)))) for _ in range(n)]
    return workload_of(paths, list(rng.uniform(0, 5, n)), list(map(int, rng.integers(1, 40, n))), 60)


COMPILED: list[Policy] = [
    LeastOutstanding(),
    LeastOutstandingTokens(),
    LeastWork(),
    E2(),
    ReleasedE2(),
    RoundRobin(),
    Random(),
]
COST = Overhead("recorded", decision_s=1e-4, node_s=1e-5, segment_s=1e-6, entry_s=1e-7, gpu_s=1e-8)


def assert_nothing_else_differs(one: Outcome, other: Outcome) -> None:
    assert_same(*(replace(made, overhead_s=0, router_wait_s=0) for made in (one, other)))  # type: ignore[arg-type]


@pytest.mark.slow
@ON_ENGINES
@pytest.mark.parametrize("policy", COMPILED, ids=lambda policy: type(policy).__name__)
def test_recorded_changes_records_and_nothing_else(policy: Policy, engine: Engine) -> None:
    without, recorded = serve(busy(), policy, Overhead(), engine), serve(busy(), policy, COST, engine)
    assert_nothing_else_differs(without, recorded)
    for name in OVERHEADS:
        assert np.isnan(getattr(without, name)).all()
    assert (recorded.overhead_s >= 1e-4).all()
    assert (recorded.router_wait_s == 0).all()
    np.testing.assert_array_equal(recorded.overhead_s, serve(busy(), policy, COST, engine).overhead_s)


def units(policy: Policy, name: str) -> Any:
    """How many units of one kind of work each decision took."""
    seconds = serve(busy(), policy, Overhead("recorded", **{name: 1.0})).overhead_s
    assert (seconds == np.round(seconds)).all()
    return seconds


def test_lor_scores_every_gpu_and_does_nothing_else() -> None:
    assert (units(LeastOutstanding(), "gpu_s") == 3).all()
    for name in ("node_s", "segment_s", "entry_s"):
        assert (units(LeastOutstanding(), name) == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", [E2(), ReleasedE2(), LeastWork(), LeastOutstandingTokens()], ids=lambda p: type(p).__name__
)
def test_a_tree_costs_work(policy: Policy) -> None:
    nodes, segments, gpus = (units(policy, name) for name in ("node_s", "segment_s", "gpu_s"))
    assert (nodes >= 1).all()
    assert segments.sum() > 0
    assert gpus.sum() > 0
    assert len(set(nodes)) > 2  # not the same for all: a decision's work is its own


def test_a_window_costs_work() -> None:
    for policy in (E2(), ReleasedE2()):
        assert units(policy, "entry_s").sum() > 0


def test_kinds_of_work_add_up() -> None:
    expected = 1e-4 * np.ones(150)
    for name, each in (("node_s", 1e-5), ("segment_s", 1e-6), ("entry_s", 1e-7), ("gpu_s", 1e-8)):
        expected += each * units(E2(), name)
    np.testing.assert_allclose(serve(busy(), E2(), COST).overhead_s, expected, rtol=1e-12)


# ---------------------------------------------------------------- serial
@ON_ENGINES
def test_three_requests_queue_at_one_router(engine: Engine) -> None:
    """Decisions of 1 s. Arrivals at 1, 1.5 and 4 s.

    The first is taken up at 1 and sent at 2; the second is taken up at 2 (it has waited 0.5 s) and sent at 3; the third
    finds the router free at 4 and is sent at 5. A second router would have sent the second at 2.5.
    """
    made = serve(stream([1.0, 1.5, 4.0]), Watcher(), Overhead("serial", decision_s=1.0), engine)
    assert [(index, now) for index, now, _ in asked] == [(0, 1.0), (1, 2.0), (2, 4.0)]
    assert made.router_wait_s.tolist() == [0.0, 0.5, 0.0]
    assert made.overhead_s.tolist() == [1.0, 1.0, 1.0]
    # A GPU with nothing to do takes as long for a request sent at 2, 3 or 5 s as for one that arrives then.
    at_once = serve(stream([2.0, 3.0, 5.0]), Watcher(), Overhead(), engine)
    np.testing.assert_allclose(made.finish_s, at_once.finish_s, rtol=1e-12)
    np.testing.assert_allclose(made.ttft_s, at_once.ttft_s + np.array([1.0, 1.5, 1.0]), rtol=1e-12)


@ON_ENGINES
def test_the_router_sees_what_is_when_it_takes_a_request_up(engine: Engine) -> None:
    """Long outputs: nothing finishes. What it has decided shows when the request is sent, 1 s later; the next is taken
    up in the same instant."""
    serve(stream([0.5, 0.6, 0.7, 0.8], output=500), Watcher(), Overhead("serial", decision_s=1.0), engine)
    assert asked == [(0, 0.5, 0), (1, 1.5, 1), (2, 2.5, 2), (3, 3.5, 3)]
    serve(stream([0.5, 0.6, 0.7, 0.8], output=500), Watcher(), Overhead(), engine)
    assert asked == [(0, 0.5, 0), (1, 0.6, 1), (2, 0.7, 2), (3, 0.8, 3)]


@ON_ENGINES
def test_what_finishes_while_a_decision_is_made_is_not_seen_by_it_but_by_the_next(engine: Engine) -> None:
    """Outputs of one token take far less than 1 s."""
    serve(stream([0.5, 0.6, 0.7], output=1), Watcher(), Overhead("serial", decision_s=1.0), engine)
    assert asked == [(0, 0.5, 0), (1, 1.5, 1), (2, 2.5, 1)]  # each has just been sent; the one before has finished


@ON_ENGINES
def test_simultaneous_arrivals_queue(engine: Engine) -> None:
    """In order of their numbers, but for the release, where they fall as its heap lets them."""
    made = serve(stream([1.0] * 6), Watcher(), Overhead("serial", decision_s=0.25), engine)
    if engine != Released():
        assert made.router_wait_s.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25]
    assert sorted(made.router_wait_s.tolist()) == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25]
    assert sorted(index for index, _, _ in asked) == list(range(6))
    assert [now for _, now, _ in asked] == [1.0, 1.25, 1.5, 1.75, 2.0, 2.25]


@ON_ENGINES
@pytest.mark.parametrize("policy", [LeastOutstanding(), E2(), ReleasedE2(), Watcher()], ids=lambda p: type(p).__name__)
def test_the_router_is_a_queue_with_one_server(policy: Policy, engine: Engine) -> None:
    """Lindley: a request is taken up when it has arrived and the one before it has been decided."""
    made = serve(busy(), policy, Overhead("serial", decision_s=0.03, node_s=0.005, gpu_s=0.001), engine)
    arrivals, free = busy().arrival_s, 0.0
    for i in range(len(arrivals)):
        taken_up = max(arrivals[i], free)
        assert made.router_wait_s[i] == pytest.approx(taken_up - arrivals[i], abs=1e-9)
        free = taken_up + made.overhead_s[i]
        assert made.ttft_s[i] > free - arrivals[i]
    assert made.router_wait_s.max() > 0.1
    assert (made.state == State.FINISHED).all()


@pytest.mark.thorough
@ON_ENGINES
def test_a_serial_router_that_takes_no_time_changes_no_time(engine: Engine) -> None:
    for policy in COMPILED:
        one, other = serve(busy(), policy, Overhead(), engine), serve(busy(), policy, Overhead("serial"), engine)
        assert_nothing_else_differs(one, other)
        assert (other.router_wait_s == 0).all()


@ON_ENGINES
def test_a_prediction_comes_before_the_router_and_is_no_wait(engine: Engine) -> None:
    """0.5 s each, side by side; decisions of 1 s. Arrivals at 1, 1.2 and 4 s reach it at 1.5, 1.7 and 4.5 s."""
    overhead = Overhead("serial", prediction_s=0.5, decision_s=1.0)
    made = serve(stream([1.0, 1.2, 4.0]), Watcher(), overhead, engine)
    assert [now for _, now, _ in asked] == [1.5, 2.5, 4.5]
    assert made.router_wait_s == pytest.approx([0, 0.8, 0], abs=1e-12)
    assert made.overhead_s.tolist() == [1.5] * 3
    at_once = serve(stream([2.5, 3.5, 5.5]), Watcher(), Overhead(), engine)
    np.testing.assert_allclose(made.finish_s, at_once.finish_s, rtol=1e-12)


@dataclass(frozen=True)
class Patient(Policy):
    """Holds while GPU 0 has anything."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return HOLD if view.sent[0].outstanding > 0 else 0


@pytest.mark.parametrize("engine", ENGINES[:2], ids=["whole", "chunks"])
def test_who_is_held_is_decided_anew_and_its_wait_is_until_the_last_time(engine: Engine) -> None:
    """Two at once, decisions of 0.25 s: the first is sent at 0.25 s, the second held at 0.5 s. It is taken up again
    when a step ends, and held or sent 0.25 s after that."""
    overhead = Overhead("serial", decision_s=0.25)
    for policy in (Patient(), interpreted(Patient())):
        long = serve(stream([0.0, 0.0], output=200), policy, overhead, engine)
        assert (long.state == State.FINISHED).all()
        assert long.router_wait_s[0] == 0
        assert long.finish_s[0] <= long.router_wait_s[1] < long.finish_s[0] + 0.25 + 0.1
        assert long.overhead_s.tolist() == [0.25, 0.25]
        assert long.ttft_s[1] > long.router_wait_s[1] + 0.25


def test_at_the_horizon_what_was_not_sent_is_unrouted() -> None:
    """Decisions of 1 s, arrivals at 0, stop at 2.5 s: two are sent, the third is being decided, the others wait."""
    workload = replace(stream([0.0] * 5), arrival_s=np.arange(5) * 1e-3)
    made = serve(workload, Watcher(), Overhead("serial", decision_s=1.0), horizon="stop", duration_s=2.5)
    assert (made.state == State.UNROUTED).tolist() == [False, False, True, True, True]
    assert made.gpu.tolist() == [0, 0, -1, -1, -1]
    assert made.gpu_requests.sum() == 2
    assert np.isfinite(made.router_wait_s).tolist() == [True, True, True, False, False]
    assert np.isnan(made.ttft_s[2:]).all()


def test_plain_python_decisions_take_decision_s() -> None:
    made = serve(busy(), Watcher(), COST)
    assert set(made.overhead_s.tolist()) == {1e-4}


@pytest.mark.slow
@ON_ENGINES
@pytest.mark.parametrize("policy", [E2(), ReleasedE2(), LeastOutstanding()], ids=lambda p: type(p).__name__)
def test_compiled_or_not_decisions_cost_the_same_and_queue_the_same(policy: Policy, engine: Engine) -> None:
    overhead = replace(COST, mode="serial", decision_s=0.02)
    assert_same(serve(busy(), policy, overhead, engine), serve(busy(), interpreted(policy), overhead, engine))


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, True, "1"])
@pytest.mark.parametrize("name", ["decision_s", "node_s", "gpu_s"])
def test_a_cost_that_is_none_is_one_line(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"^overhead\.{name}={value} is not valid; it must be .*$"):
        Overhead("serial", **{name: value})


def test_a_mode_that_is_none_is_one_line() -> None:
    with pytest.raises(InvalidInput, match=r"^overhead\.mode=parallel is not valid; .* none, recorded, serial$"):
        Overhead("parallel")
