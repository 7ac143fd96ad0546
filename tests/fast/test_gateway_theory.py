"""Gateways against queueing theory: servers of one request at a time, Poisson arrivals, exponential times of 1 s in the
mean. Of twenty replications the 99 % interval must have what is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from prebleexp.engines.vllm.engine import VLLM
from prebleexp.gateway.base import Gateway
from prebleexp.intervals import mean_interval
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Floats, Outcome, State, Workload
from tests.support.costs.linear_cost import LinearCost
from tests.support.sampled import sampled

TOKEN_S = 0.0005
ONE = VLLM(max_num_seqs=1, async_scheduling=False, host_s=0.0, enable_prefix_caching=False)
COST = LinearCost(step_s=0.0, token_s=TOKEN_S, context_token_s=0.0, kv_tokens=16 * 10_001, gpu_memory_gib=48)
SEEDS, REQUESTS, WARM_UP = 20, 6_000, 600
Measure = Callable[[Outcome, Floats], float]
"""of a run and of what each request would take alone"""


def served(rate: float, servers: int, gateway: Gateway, seed: int, fixed: bool) -> tuple[Outcome, Floats]:
    rng, one = np.random.default_rng(seed), np.ones(REQUESTS, np.int32)
    arrival_s = np.cumsum(rng.exponential(1 / rate, REQUESTS))
    seconds = np.ones(REQUESTS) if fixed else rng.exponential(1.0, REQUESTS)
    tokens = np.maximum(1, np.rint(seconds / TOKEN_S)).astype(np.int32)
    workload = Workload(arrival_s, tokens, one, one, -one, np.arange(REQUESTS + 1), np.arange(REQUESTS), tokens)
    return run(workload, servers, gateway, COST), tokens * TOKEN_S


def run(workload: Workload, servers: int, gateway: Gateway, cost: LinearCost) -> Outcome:
    given: dict[str, Any] = {"policy": LeastOutstanding(), "lengths": Max(), "overhead": Overhead(), "seed": 0}
    return simulate(
        workload, gpus=servers, hardware=cost, engine=ONE, gateway=gateway, duration_s=1.0, horizon="drain", **given
    )


def share(state: State) -> Measure:
    return lambda made, alone: float((made.state[WARM_UP:] == state).mean())


def response_s(made: Outcome, alone: Floats) -> float:
    return float(np.nanmean(made.latency_s[WARM_UP:]))


def wait_s(made: Outcome, alone: Floats) -> float:
    return float((made.latency_s - alone)[WARM_UP:].mean())


def share_that_waits(made: Outcome, alone: Floats) -> float:
    return float((made.latency_s - alone > 1e-6)[WARM_UP:].mean())


REFUSED, EXPIRED = share(State.REFUSED), share(State.EXPIRED)
SYSTEMS: dict[str, tuple[float, int, Gateway, bool, dict[Measure, float]]] = {
    "M/M/8/8": (6.0, 8, Gateway(limit=8), False, {REFUSED: 0.121876}),
    "M/M/4/4": (3.0, 4, Gateway(limit=4), False, {REFUSED: 0.206107}),
    "M/D/8/8": (6.0, 8, Gateway(limit=8), True, {REFUSED: 0.121876}),
    "M/D/4/4": (3.0, 4, Gateway(limit=4), True, {REFUSED: 0.206107}),
    "M/M/8": (6.0, 8, Gateway(max_in_flight=1), False, {share_that_waits: 0.356981, wait_s: 0.178491}),
    "M/M/2": (1.5, 2, Gateway(max_in_flight=1), False, {share_that_waits: 0.642857}),
    "M/M/1/5": (0.9, 1, Gateway(max_in_flight=1, queue_limit=4), False, {REFUSED: 0.126023, response_s: 2.790286}),
    "M/M/1/5, overloaded": (1.2, 1, Gateway(max_in_flight=1, queue_limit=4), False,
                            {REFUSED: 0.250588, response_s: 3.359493}),
    "M/M/1 of at most 5": (0.9, 1, Gateway(limit=5), False, {REFUSED: 0.126023, response_s: 2.790286}),
    "M/M/1 + D": (0.9, 1, Gateway(max_in_flight=1, ttl_queue_s=2.0), False, {EXPIRED: 0.218764}),
    "M/M/1 + D, overloaded": (1.2, 1, Gateway(max_in_flight=1, ttl_queue_s=5.0), False, {EXPIRED: 0.223855}),
}  # fmt: skip


def check(found: list[float], expected: float, what: str) -> None:
    mean, half = mean_interval(found, 0.99)
    assert half is not None
    print(f"{what}: {mean:.6f} ± {half:.6f}, theory {expected}")
    assert abs(mean - expected) < half < 0.12 * expected


LONG = "M/M/2", "M/M/1/5, overloaded", "M/M/1 + D, overloaded"
QUICK = sampled((one for one in SYSTEMS if one not in LONG), 4)
NIGHTLY = [pytest.param(one, marks=[pytest.mark.slow, pytest.mark.nightly]) for one in LONG]


@pytest.mark.slow
@pytest.mark.parametrize("system", QUICK + NIGHTLY)
def test_gateways_are_those_of_theory(system: str) -> None:
    rate, servers, gateway, fixed, known = SYSTEMS[system]
    runs = [served(rate, servers, gateway, seed, fixed) for seed in range(SEEDS)]
    for measure, expected in known.items():
        check([measure(*one) for one in runs], expected, system)


STEP_S = 0.005


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "mean_s", "gone"), [pytest.param(1.2, 10.0, 0.252828, marks=pytest.mark.nightly), (0.9, 2.0, 0.284956)]
)
def test_whoever_has_patience_in_the_queue_alone(rate: float, mean_s: float, gone: float) -> None:
    """Exponential patience, and a first token as soon as a request is taken up: what follows takes the time."""
    cost, left, idle = LinearCost(STEP_S, 0.0, 0.0, kv_tokens=16 * 10_001, gpu_memory_gib=48), [], []
    for seed in range(SEEDS):
        rng, one = np.random.default_rng(seed), np.ones(REQUESTS, np.int32)
        arrival_s, rows = np.cumsum(rng.exponential(1 / rate, REQUESTS)), np.arange(REQUESTS)
        outputs = np.maximum(1, np.rint(rng.exponential(1 / STEP_S, REQUESTS))).astype(np.int32)
        patience_s = rng.exponential(mean_s, REQUESTS) + STEP_S
        workload = Workload(
            arrival_s, one, outputs, outputs, -one, np.arange(REQUESTS + 1), rows, one, patience_s=patience_s
        )
        made = run(workload, 1, Gateway(max_in_flight=1), cost)
        left.append(share(State.CANCELLED)(made, outputs))
        busy_s = float(outputs[made.state == State.FINISHED].sum()) * STEP_S
        idle.append(1 - busy_s / made.end_s)
    check(left, gone, "patience")
    check(idle, 1 - rate * (1 - gone), "idle")
