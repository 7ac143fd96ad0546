"""What became of the GPUs over time, by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from prebleexp.autoscalers.hpa import HPA
from prebleexp.engines.vllm.engine import VLLM
from prebleexp.experiment.runs import Run
from prebleexp.faults.base import Faults
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.report.perfetto import of_history
from prebleexp.sim.history import NOTHING, PAID, Change, GpuState, changes_of
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Outcome
from tests.support.by_hand.small_cluster import alike
from tests.support.by_hand.timeline import happens
from tests.support.costs.linear_cost import LinearCost

READY, SLOW, STARTING, DRAINING, FAILED, OFF = GpuState
STEP = LinearCost(step_s=0.125, token_s=0.0, context_token_s=0.0, kv_tokens=16 * 1001, gpu_memory_gib=48)
ONE = VLLM(max_num_batched_tokens=16, max_num_seqs=1, async_scheduling=False, host_s=0.0)
"""a request of 16 prompt tokens and one of output takes 0.125 s, one at a time"""
SERVED: dict[str, Any] = {"policy": LeastOutstanding(), "hardware": STEP, "engine": ONE, "overhead": Overhead()}
SERVED |= {"duration_s": 9999.0, "horizon": "drain", "seed": 0, "lengths": Max()}


def states(made: Outcome, g: int) -> list[tuple[float, GpuState]]:
    return [(one.at_s, one.state) for one in made.history.gpu_states if one.gpu == g]


def paid(made: Outcome) -> list[float]:
    """Seconds of each GPU in states that are paid for."""
    found = []
    for g in range(len(made.gpu_on_s)):
        rows = [*states(made, g), (made.end_s, OFF)]
        found.append(sum(b - a for (a, state), (b, _) in pairwise(rows) if state in PAID))
    return found


def test_hpa_goes_from_three_to_two_to_one_behind_its_window() -> None:
    """llm-d-autoscaling 681. Six requests of 8 s come at 14 to three GPUs, two to each. At 15 all are there:
    3 · 2 / 2 = 3 are wanted. At 30 the last three are about to end: 3 · 1 / 2, so 2. Later nobody is there, and
    one is wanted at least. The three of 15 s have left the window of 300 s at 330, the two of 30 s at 345."""
    long = LinearCost(step_s=8.0, token_s=0.0, context_token_s=0.0, kv_tokens=16 * 1001, gpu_memory_gib=48)
    workload = alike([*[14.0] * 6, 400.0], 16, 1)
    made = simulate(workload, gpus=3, autoscaler=HPA(target=2.0, initial=3), **SERVED | {"hardware": long})
    wanted = [(one.at_s, one.wanted) for one in made.history.decisions]
    times = [15.0 * i for i in range(1, len(wanted) + 1)]
    assert wanted == [(at_s, 3 if at_s < 330 else 2 if at_s < 345 else 1) for at_s in times]
    drained = [(one.at_s, one.ready, one.drained) for one in made.history.decisions if one.drained]
    assert drained == [(330.0, 3, 1), (345.0, 2, 1)]
    assert not any(one.started for one in made.history.decisions)
    assert [states(made, g)[1:] for g in range(3)] == [[], [(345.0, OFF)], [(330.0, OFF)]], "the last first, and idle"
    np.testing.assert_allclose(paid(made), made.gpu_on_s)


def test_a_gpu_fails_and_is_started_again() -> None:
    faults = happens((1.0, 0, "down"), (2.0, 0, "up"), detect_ms=100.0, init_s=0.5)
    made = simulate(alike(np.arange(0, 4, 0.25).tolist(), 16, 1), gpus=2, faults=faults, **SERVED)
    assert states(made, 0) == [(0.0, READY), (1.0, FAILED), (2.0, STARTING), (2.5, READY)]
    assert states(made, 1) == [(0.0, READY)]
    np.testing.assert_allclose(paid(made), made.gpu_on_s)


def test_a_trace_has_a_slice_for_each_state() -> None:
    faults = happens((1.0, 0, "down"), (2.0, 0, "up"), detect_ms=100.0, init_s=0.5)
    workload = alike(np.arange(0, 4, 0.25).tolist(), 16, 1)
    made = simulate(workload, gpus=2, faults=faults, **SERVED)
    slices = [(one["pid"], one["name"], one["ts"], one["dur"]) for one in of_history(Run({}, workload, made, 0.0))]
    end_us = round(made.end_s * 1e6, 3)
    first = [(1, "ready", 0, 1e6), (1, "failed", 1e6, 1e6), (1, "starting", 2e6, 5e5)]
    assert slices == [*first, (1, "ready", 2.5e6, end_us - 2.5e6), (2, "ready", 0, end_us)]


def test_where_nothing_happens_nothing_is_kept() -> None:
    for faults in (None, Faults(init_s=3.0)):
        given = {} if faults is None else {"faults": faults}
        assert simulate(alike([0.0, 1.0], 16, 1), gpus=2, **SERVED | given).history == NOTHING


def test_of_an_instant_the_last_counts() -> None:
    noted = [Change(1.0, 0, DRAINING), Change(1.0, 0, OFF), Change(2.0, 0, OFF), Change(3.0, 0, SLOW)]
    assert changes_of(1, noted) == (Change(0.0, 0, READY), Change(1.0, 0, OFF), Change(3.0, 0, SLOW))
