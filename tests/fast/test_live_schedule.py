"""Who is due when by the clock is who is due when in a simulation, given how its requests ended."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.engines.continuous import Continuous
from prebleexp.experiment.runs import run
from prebleexp.launch.configure import job
from prebleexp.lengths.known import Max
from prebleexp.live.measuring.schedule import Schedule, last_due_s
from prebleexp.overhead.model import Overhead
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Floats, Outcome, State, Workload
from tests.support.costs.turn_cost import TurnCost
from tests.support.sampled import examples
from tests.support.sessions import after_those, impatient, linked, staged
from tests.support.strategies.conversations import workload_of, workloads

CELLS = {
    "sessions": ["workload=chats", "rps=6"],
    "stages": ["workload=inference_perf"],
    "so many at a time": ["workload=vllm_bench", "workload.max_concurrency=4", "workload.num_prompts=60"],
}


@pytest.mark.parametrize("name", CELLS)
def test_a_cells_requests_are_due_as_simulated(name: str) -> None:
    cell = job([*CELLS[name], "gpus=2", "duration_s=10", "policy=lor"]).cells[0]
    made = run(cell)
    last_start_s = cell.duration_s if len(made.workload.after_ids) else math.inf
    _agrees(Schedule(made.workload, last_start_s), made.workload, made.outcome)
    earliest_s = last_due_s(made.workload, last_start_s)
    assert (earliest_s > 0) == (name != "so many at a time"), "those wait for answers alone"
    assert earliest_s <= np.nanmax(made.outcome.due_s)


def test_the_last_request_is_due_at_the_earliest_when_answers_take_no_time() -> None:
    """Two sessions: one at 1 s, whose second turn comes 5 s and whose third 7 s behind; one at 4 s, of one turn."""
    turns = workload_of([[0, i + 1] for i in range(4)], [16] * 5, [1.0, 1.0, 1.0, 4.0], [1] * 4, [1] * 4, [-1] * 4)
    sessions, delay_s = np.array([0, 0, 0, 1]), np.array([0.0, 5.0, 7.0, 0.0])
    after = after_those(turns, [[], [0], [1], []], session=sessions, delay_s=delay_s)
    assert last_due_s(after) == 13
    assert last_due_s(after, last_start_s=3) == 13
    assert last_due_s(after, last_start_s=0.5) == 0
    assert last_due_s(turns) == 4


@pytest.mark.thorough
@settings(max_examples=examples(60), deadline=None)
@given(
    st.one_of(linked(impatient(workloads())), staged(impatient(workloads())), impatient(linked(staged(workloads()))))
)
def test_requests_that_give_up_end_as_simulated(workload: Workload) -> None:
    outcome = simulate(
        workload,
        gpus=2,
        policy=RoundRobin(),
        engine=Continuous(),
        hardware=TurnCost(),
        lengths=Max(),
        overhead=Overhead(),
        duration_s=1e9,
        horizon="drain",
        seed=0,
    )
    _agrees(Schedule(workload), workload, outcome)


def _agrees(schedule: Schedule, workload: Workload, outcome: Outcome) -> None:
    """In due times, to the bit, and in who never comes since another was cancelled or refused."""
    due_s: Floats = np.full(len(workload), np.nan)
    gone, events = set[int](), list[tuple[float, int, bool]]()

    def come(due: list[tuple[float, int]]) -> None:
        for when, one in due:
            due_s[one] = when
            if not math.isnan(outcome.finish_s[one]):
                heapq.heappush(events, (float(outcome.finish_s[one]), one, True))
            elif outcome.state[one] == State.CANCELLED:
                heapq.heappush(events, (when + float(workload.patience_s[one]), one, False))
            elif outcome.state[one] == State.REFUSED:
                heapq.heappush(events, (when, one, False))

    come(schedule.firsts)
    while events:
        now, one, ended = heapq.heappop(events)
        if ended:
            come(schedule.ended(one, now))
        else:
            due, never = schedule.failed(one, now)
            gone |= set(never)
            come(due)
    np.testing.assert_array_equal(due_s, outcome.due_s)
    assert gone == {
        one for one in range(len(workload)) if outcome.state[one] == State.CANCELLED and np.isnan(due_s[one])
    }
