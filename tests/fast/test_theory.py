"""Against queueing theory: one GPU, batches of one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from prebleexp.engines.base import Engine
from prebleexp.engines.continuous import Continuous
from prebleexp.engines.released.engine import Released
from prebleexp.hardware.preble import PrebleFit
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import State, Workload
from tests.support.sampled import sampled

MS_PER_TOKEN, MEAN_TOKENS = 1.0, 1000
ROOM = 10**6
"""max_new_tokens of every request: promised memory for one, not for two"""
SERVER = PrebleFit(
    linear=((0, 0, 0, 0),),
    attention=(0, 0, 0, 0),
    shared=(0, 0),
    request=(0, 0, MS_PER_TOKEN, 0, 0),
    efficiency=1,
    kv_tokens=2 * ROOM - 1,
    prefill_batch=False,
)
REQUESTS, WARM_UP, REPLICATIONS = 20_000, 2_000, 30
T_99 = 2.756
"""Student's t, 29 degrees of freedom"""


LAWS = ("M/D/1", "M/M/1")
ENGINES = {"continuous": Continuous(1e-7), "released": Released(1e-7, 1e-7)}


def mean_wait_s(utilisation: float, tokens: np.ndarray, rng: np.random.Generator, engine: Engine) -> float:
    n = len(tokens)
    service_s = tokens * MS_PER_TOKEN / 1e3
    arrivals = np.cumsum(rng.exponential(service_s.mean() / utilisation, n))
    one = np.ones(n, np.int32)
    workload = Workload(arrivals, tokens, one, ROOM * one, -one, np.arange(n + 1), np.arange(n), tokens)
    made = simulate(
        workload,
        gpus=1,
        policy=LeastOutstanding(),
        hardware=SERVER,
        engine=engine,
        lengths=Max(),
        overhead=Overhead(),
        duration_s=1.0,
        horizon="drain",
        seed=0,
    )
    assert (made.state == State.FINISHED).all()
    return float((made.latency_s - service_s)[WARM_UP:].mean())


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "law", "utilisation"), sampled(product(ENGINES, LAWS, [0.3, 0.6, 0.8]), 6))
def test_waits_are_those_of_theory(engine: str, law: str, utilisation: float) -> None:
    service_s = MEAN_TOKENS * MS_PER_TOKEN / 1e3
    expected = utilisation / (1 - utilisation) * service_s * (0.5 if law == "M/D/1" else 1.0)
    waits = []
    for seed in range(REPLICATIONS):
        rng = np.random.default_rng(seed)
        tokens = np.full(REQUESTS, MEAN_TOKENS, np.int32)
        if law == "M/M/1":
            tokens = np.ceil(rng.exponential(MEAN_TOKENS, REQUESTS)).astype(np.int32)
        waits.append(mean_wait_s(utilisation, tokens, rng, ENGINES[engine]))
    half = T_99 * np.std(waits, ddof=1) / np.sqrt(REPLICATIONS)
    print(f"{engine}, {law} at {utilisation}: {np.mean(waits):.4f} ± {half:.4f} s, theory {expected:.4f} s")
    assert abs(np.mean(waits) - expected) < half + 2e-3 * expected
    assert half < 0.1 * expected
