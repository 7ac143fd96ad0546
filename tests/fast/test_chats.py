"""Made-up sessions: what each turn keeps, how long they are, and that they are the same at every rate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.experiment.key import key
from prebleexp.launch import configure
from prebleexp.sim.types import State, Workload
from prebleexp.workloads.chats import Chats
from prebleexp.workloads.output_length import OutputLength

OUTPUT = OutputLength((50, 500), (0.5, 0.5))


def drawn(rps: float = 20.0, seed: int = 0, duration_s: float = 100.0, **settings: Any) -> Workload:
    return Chats(**settings).draw(rps=rps, duration_s=duration_s, seed=seed, output_length=OUTPUT)


def prompt(workload: Workload, request: int) -> list[tuple[int, int]]:
    rows = slice(*workload.segment_offsets[request : request + 2])
    return list(zip(workload.segment_ids[rows].tolist(), workload.segment_tokens[rows].tolist(), strict=True))


def test_a_turn_keeps_the_prompt_and_the_answer_before_it_and_comes_after_it() -> None:
    workload = drawn(rps=5, max_new_tokens=300, apps=3)
    heads = set()
    for request in range(len(workload)):
        first, last = workload.after_offsets[request : request + 2]
        before = workload.after_ids[first:last].tolist()
        heads.add(prompt(workload, request)[0])
        if workload.turn[request] == 0:
            assert not before
            continue
        (source,) = before
        answer = (int(workload.answer_segment[source]), int(min(workload.output_tokens[source], 300)))
        kept = [*prompt(workload, source), answer]
        assert workload.session[source] == workload.session[request]
        assert workload.turn[source] == workload.turn[request] - 1
        assert prompt(workload, request)[: len(kept)] == kept
        assert workload.prompt_tokens[request] > sum(tokens for _, tokens in kept)
    assert len(heads) == 3, "the system prompts of three apps"
    assert {tokens for _, tokens in heads} == {1000}


def test_sessions_are_as_many_and_as_long_as_was_asked_for() -> None:
    workload = drawn(rps=200, turns=5.0, think_s=7.0, first_tokens=900, new_tokens=100)
    first = workload.turn == 0
    assert len(workload) == 20_000
    assert len(workload) / first.sum() == pytest.approx(5, rel=0.05)
    assert workload.delay_s[~first].mean() == pytest.approx(7, rel=0.05)
    assert not workload.delay_s[first].any()
    assert (workload.prompt_tokens[first] - 1000).mean() == pytest.approx(900, rel=0.05)
    assert 0 < workload.arrival_s[first].min() < workload.arrival_s[first].max() < 100
    counts = np.bincount(workload.arrival_s[first].astype(int), minlength=100)
    assert counts.var() / counts.mean() == pytest.approx(1, abs=0.5), "as a Poisson process"


def test_no_prompt_is_longer_than_the_longest() -> None:
    workload = drawn(turns=50.0, longest=3000)
    assert workload.prompt_tokens.max() <= 3000
    assert workload.turn.max() < 40


def test_a_greater_rate_has_the_sessions_of_a_lesser_one_and_more() -> None:
    def turns(workload: Workload) -> set[tuple[float, ...]]:
        columns = (workload.arrival_s, workload.turn, workload.prompt_tokens, workload.output_tokens, workload.delay_s)
        return set(zip(*(column.tolist() for column in columns), strict=True))

    slow, quick = drawn(rps=10), drawn(rps=40)
    assert len(turns(slow)) == len(slow) == 1000
    assert turns(slow) < turns(quick)
    assert (np.diff(quick.arrival_s) >= 0).all()
    assert not turns(slow) & turns(drawn(rps=10, seed=1))


@pytest.mark.slow
def test_a_router_by_session_serves_them() -> None:
    settings = ["workload=chats", "gpus=4", "rps=20", "duration_s=10", "policy=vllm_sticky_least_loaded"]
    cell = configure.cells(settings)[0]
    workload = runs.draw(cell)
    outcome = runs.simulate_cell(cell, workload)
    assert (outcome.state == State.FINISHED).all()
    stays = [len(set(outcome.gpu[workload.session == one].tolist())) for one in np.unique(workload.session)]
    assert set(stays) == {1}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"turns": 0.5}, "workload.turns=0.5"),
        ({"think_s": -1}, "workload.think_s=-1"),
        ({"apps": 0}, "workload.apps=0"),
        ({"system_tokens": 5000, "longest": 5000}, "workload.longest=5000"),
    ],
)
def test_what_is_not_valid_is_named(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        Chats(**settings)


def test_too_many_requests_are_refused() -> None:
    with pytest.raises(InvalidInput, match="100,000,000 requests"):
        drawn(rps=1e9)


# ---------------------------------------------------------------- users
@pytest.mark.slow
def test_a_population_plays_one_session_after_the_other() -> None:
    """So many requests are in the system at most, and think times are between a session's turns alone."""
    settings = ["workload=chats", "workload.load=population", "workload.lanes=7", "gpus=2", "duration_s=120"]
    cell = configure.cells([*settings, "policy=lor", "horizon=stop"])[0]
    workload = runs.draw(cell)
    outcome = runs.simulate_cell(cell, workload)
    served = outcome.state == State.FINISHED
    assert served.sum() > 50
    due, end = outcome.due_s[served], outcome.finish_s[served]
    lane = workload.session[served]
    assert len(np.unique(lane)) == 7
    for one in range(7):
        order = np.argsort(due[lane == one], kind="stable")
        assert (due[lane == one][order][1:] >= end[lane == one][order][:-1] - 1e-9).all(), "one request at a time"
    for seed in (1, 2):
        assert len(drawn(seed=seed, load="population", lanes=7)) > 0


@pytest.mark.slow
def test_who_plays_a_session_again_shares_the_system_prompt_alone() -> None:
    workload = drawn(load="population", lanes=300, turns=2.0, duration_s=4000.0, apps=2)
    heads = {prompt(workload, request)[0] for request in range(len(workload))}
    assert len(heads) == 2
    first = np.flatnonzero(workload.turn == 0)
    own = [one for request in first for one, _ in prompt(workload, int(request))[1:]]
    assert len(workload) > 20_000, "more than the sessions that are drawn, so that some are played again"
    assert len(own) == len(set(own))


def test_the_rate_does_not_matter_to_a_population() -> None:
    one, other = (configure.cells(["workload=chats", "workload.load=population", f"rps={rps}"])[0] for rps in (1, 2))
    assert key(one) == key(other)
    with pytest.raises(InvalidInput, match=r"workload\.lanes=0"):
        drawn(load="population", lanes=0)
    with pytest.raises(InvalidInput, match=r"workload\.load=users"):
        drawn(load="users")
