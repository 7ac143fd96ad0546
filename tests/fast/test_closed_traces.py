"""Traces of sessions in a closed loop: who comes after whom, how prompts grow, and how sessions follow each other."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.described import quantiles, reuse
from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.metrics import measure
from prebleexp.sim.types import State, Workload
from prebleexp.workloads import weka
from prebleexp.workloads.agents import Agents
from prebleexp.workloads.growth import NOBODY, grown, headed
from prebleexp.workloads.mooncake import Mooncake
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.plays import FASTEST_S
from prebleexp.workloads.rows import Records
from tests.support.places import ROOT
from tests.support.sampled import examples

DATA = ROOT.parent / "shared" / "data"
SESSIONS, WEKA = DATA / "agentic_sessions.jsonl.gz", DATA / "weka_trace_a0157.json.gz"
OUTPUT = OutputLength((1,), (1.0,))
needs_sessions = pytest.mark.skipif(not SESSIONS.exists(), reason="the agents' sessions are not there")


def records() -> list[dict[str, Any]]:
    with gzip.open(SESSIONS, "rt") as file:
        return [json.loads(line) for line in file]


def written(path: Path, *rows: Any) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def after(workload: Workload, request: int) -> list[int]:
    first, last = workload.after_offsets[request : request + 2]
    return workload.after_ids[first:last].tolist()  # type: ignore[no-any-return]


def prompt(workload: Workload, request: int) -> list[tuple[int, int]]:
    rows = slice(*workload.segment_offsets[request : request + 2])
    return list(zip(workload.segment_ids[rows].tolist(), workload.segment_tokens[rows].tolist(), strict=True))


# ---------------------------------------------------------------- how prompts grow
@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[int], list[int], list[int], list[int]]:
    of, keep, prompts, outputs = [], [], [], []
    for i in range(draw(st.integers(1, 12))):
        source = draw(st.integers(-1, i - 1))
        whole = source >= 0 and draw(st.booleans())
        most = 0 if source < 0 else prompts[source]
        kept = prompts[source] + outputs[source] if whole else draw(st.integers(0, most))
        of.append(source)
        keep.append(kept)
        prompts.append(max(kept + draw(st.integers(0, 5)), 1))
        outputs.append(draw(st.integers(1, 4)))
    return of, keep, prompts, outputs


@settings(max_examples=examples(200), deadline=None)
@given(conversations())
def test_prompts_share_exactly_what_they_keep(drawn: tuple[list[int], ...]) -> None:
    """Against texts written out token by token."""
    of, keep, sizes, outputs = drawn
    columns = [np.array(one, np.int64) for one in drawn]
    prompts, answer = grown(*columns)
    texts: list[list[tuple[str, int, int]]] = []
    for i, (source, kept) in enumerate(zip(of, keep, strict=True)):
        context = [] if source < 0 else [*texts[source], *(("answer", source, k) for k in range(outputs[source]))]
        mine = context[:kept]
        if (
            0 < kept < len(context)
            and mine[-1][0] == "answer"
            and mine[-1][1:] != (mine[-1][1], outputs[mine[-1][1]] - 1)
        ):
            mine = mine[: len(mine) - mine[-1][2] - 1]  # of an answer nothing is kept that is not kept whole
        texts.append([*mine, *(("new", i, k) for k in range(sizes[i] - len(mine)))])
    pieces = [
        list(zip(prompts.ids[a:b].tolist(), prompts.tokens[a:b].tolist(), strict=True))
        for a, b in zip(prompts.offsets, prompts.offsets[1:], strict=False)
    ]
    meaning: dict[int, tuple[Any, ...]] = {}
    for text, parts in zip(texts, pieces, strict=True):
        assert sum(tokens for _, tokens in parts) == len(text)
        at = 0
        for name, tokens in parts:
            path = tuple(text[: at + tokens])
            assert meaning.setdefault(name, path) == path, "one path from the root"
            at += tokens
    assert len(set(meaning.values())) == len(meaning), "equal beginnings have equal ids"
    for i, name in enumerate(answer.tolist()):
        if name != NOBODY:
            assert meaning[name] == (*texts[i], *(("answer", i, k) for k in range(outputs[i])))


def test_a_common_head_is_shared_by_its_group_alone() -> None:
    prompts, answer = grown(*(np.array(one) for one in ([-1, 0, -1, -1], [0, 80, 0, 0], [100, 120, 90, 40], [1] * 4)))
    made, _, shared = headed(prompts, answer, np.array([7, 7, 7, 7]), np.array([50, 50, 50, 50]))
    parts = [
        [*zip(made.ids[a:b].tolist(), made.tokens[a:b].tolist(), strict=True)]
        for a, b in zip(made.offsets, made.offsets[1:], strict=False)
    ]
    assert [[tokens for _, tokens in one] for one in parts] == [[50, 30, 20], [50, 30, 40], [50, 40], [40]]
    assert parts[0][0] == parts[1][0] == parts[2][0]
    assert parts[0][1] == parts[1][1]
    assert len({name for one in parts for name, _ in one}) == 6
    assert shared.tolist() == [name == parts[0][0][0] for name in range(6)]
    made, *_ = headed(prompts, answer, np.array([7, 7, 7, 7]), np.array([79, 79, 79, 79]))
    assert made.tokens.tolist() == [79, 1, 20, 79, 1, 40, 79, 11, 40], "a single token behind the head stays"


# ---------------------------------------------------------------- coding agents
@pytest.mark.slow
@pytest.mark.skipif(not (SESSIONS.exists() and WEKA.exists()), reason="the agents' sessions are not there")
def test_a_session_as_published_is_the_compact_one() -> None:
    (kept,) = (one for one in records() if one["session"] == "a0157")
    with gzip.open(WEKA, "rt") as file:
        made = weka.compact(Records("a0157", [{}], [1]), 0, json.load(file))
    assert [turn[:7] for turn in made["turns"]] == [turn[:7] for turn in kept["turns"]]
    assert (made["tool"], made["system"]) == (kept["tool"], kept["system"])
    names = ("after", "start", "join", "tool", "system", "turns")
    assert [[one[name] for name in names] for one in made["agents"]] == [
        [one[name] for name in names] for one in kept["agents"]
    ]


@pytest.mark.skipif(not WEKA.exists(), reason="the published session is not there")
def test_who_called_agents_waits_for_the_last_of_them() -> None:
    trace = Agents(str(WEKA)).trace()
    assert trace.links is not None
    mine = np.flatnonzero(trace.session == 0)
    of = [trace.links.before[trace.links.later == request].tolist() for request in range(len(trace))]
    firsts = [int(np.flatnonzero(trace.session == agent)[0]) for agent in (1, 2, 3)]
    lasts = [int(np.flatnonzero(trace.session == agent)[-1]) for agent in (1, 2, 3)]
    assert [of[request] for request in firsts] == [[mine[0]]] * 3
    assert trace.links.delay_s[firsts].tolist() == pytest.approx([0.694, 0.681, 0.694])
    assert of[mine[1]] == lasts
    assert trace.links.delay_s[mine[1]] == pytest.approx(16.653), "the think time of 209 s contains the agents' run"
    assert trace.parent is not None
    assert trace.parent[firsts].tolist() == [0, 0, 0]
    assert trace.turn[firsts].tolist() == [0, 0, 0]


@pytest.mark.slow
@needs_sessions
def test_the_agents_are_those_of_the_table() -> None:
    trace = Agents(str(SESSIONS)).trace()
    assert trace.parent is not None
    assert trace.links is not None
    own = trace.parent < 0
    assert (own.sum(), (~own).sum(), len(np.unique(trace.session[own]))) == (27_362, 542, 410)
    inputs, outputs = quantiles(trace.prompt_tokens[own]), quantiles(trace.output_tokens[own])
    assert (*inputs.at, inputs.mean) == pytest.approx((31_704, 103_701, 202_662, 499_278, 118_586), rel=1e-5)
    assert (*outputs.at, outputs.mean) == pytest.approx((88, 215, 916, 3_746.7, 443), abs=0.5)
    turns = np.unique(trace.session[own], return_counts=True)[1]
    assert (np.quantile(turns, (0.5, 0.9)).tolist(), turns.max()) == (pytest.approx([44, 151], abs=1), 439)
    tools = Counter(
        len(one) for one in np.split(trace.links.before, np.unique(trace.links.later, return_index=True)[1][1:])
    )
    assert (tools[2], tools[3]) == (4, 8), "joins of two and of three agents"


@pytest.mark.slow
@needs_sessions
def test_agents_find_what_the_table_says() -> None:
    source = Agents(str(SESSIONS))
    once = replace(source, limit=27_904).draw(rps=7.6, duration_s=3600, seed=1, output_length=OUTPUT)
    assert reuse(once, np.inf) == pytest.approx(0.964, abs=0.004)


@pytest.mark.slow
@needs_sessions
def test_sessions_with_equal_tools_may_share_them() -> None:
    plain = Agents(str(SESSIONS)).trace()
    for public, groups in (("tools", 71), ("tools_system", 243)):
        trace = Agents(str(SESSIONS), public_prefix=public).trace()
        assert trace.parent is not None
        assert trace.public is not None
        first = trace.prompts.ids[trace.prompts.offsets[:-1]]
        heads = first[(trace.parent < 0) & trace.public[first]]
        assert len(np.unique(heads)) == groups
        assert trace.prompt_tokens.tolist() == plain.prompt_tokens.tolist()


@pytest.mark.slow
@needs_sessions
def test_agents_think_as_recorded_or_no_longer_than_the_cap() -> None:
    links = Agents(str(SESSIONS)).trace().links
    turns = [(turn[1], turn[7], "agents" in one) for one in records() for turn in one["turns"][1:]]
    told, typed = ([think for think, user, _ in turns if user == who] for who in (0, 1))
    assert links is not None
    assert np.quantile(told, (0.05, 0.5, 0.9, 0.99)) == pytest.approx((3, 9, 78, 951), rel=0.05)
    assert np.median(typed) == pytest.approx(122, rel=0.05)
    assert Counter(links.delay_s.tolist()) >= Counter(think for think, _, agents in turns if not agents)
    source = Agents(str(SESSIONS), load="population", lanes=50, gap_cap_s=60.0)
    capped, faster = (
        one.draw(rps=1, duration_s=20, seed=0, output_length=OUTPUT) for one in (source, replace(source, compress=4.0))
    )
    assert capped.delay_s.max() == faster.delay_s.max() == 60, "in simulated seconds"
    assert np.median(faster.delay_s) < np.median(capped.delay_s)


# ---------------------------------------------------------------- sessions at other times
def session(turns: int, think: float = 5.0, prompt: int = 100) -> dict[str, Any]:
    rows = [
        [
            think * k + k,
            think if k else 0,
            prompt + 50 * k,
            20,
            k - 1,
            max(prompt + 50 * (k - 1), 0) if k else 0,
            1.0,
            1,
        ]
        for k in range(turns)
    ]
    return {"tool": 10, "system": 10, "turns": rows}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return written(tmp_path / "sessions.jsonl", *(session(turns, prompt=100 + turns) for turns in (3, 5, 9, 2)))


def test_sessions_start_at_random_and_at_another_rate_are_the_same_ones(path: str) -> None:
    slow, fast = (Agents(path).draw(rps=rps, duration_s=1000, seed=4, output_length=OUTPUT) for rps in (4, 8))
    firsts = [one.waits == 0 for one in (slow, fast)]
    assert len(fast) == pytest.approx(8000, rel=0.15)
    n = int(firsts[0].sum())
    np.testing.assert_allclose(fast.arrival_s[firsts[1]][:n] * 2, slow.arrival_s[firsts[0]])
    assert fast.prompt_tokens[firsts[1]][:n].tolist() == slow.prompt_tokens[firsts[0]].tolist()
    for request in np.flatnonzero(~firsts[0])[:200].tolist():
        (before,) = after(slow, request)
        assert slow.session[before] == slow.session[request]
        assert slow.turn[before] == slow.turn[request] - 1
        assert slow.delay_s[request] == 5


def test_what_is_replayed_shares_nothing_with_what_it_was(path: str) -> None:
    workload = Agents(path).draw(rps=8, duration_s=1000, seed=0, output_length=OUTPUT)
    owners: dict[int, int] = {}
    for request in range(len(workload)):
        for name, _ in prompt(workload, request):
            assert owners.setdefault(name, int(workload.session[request])) == workload.session[request]
    shared = Agents(path, public_prefix="tools").draw(rps=8, duration_s=1000, seed=0, output_length=OUTPUT)
    assert len({prompt(shared, request)[0] for request in range(len(shared))}) == 1


def test_turns_of_an_open_loop_come_when_they_were_recorded(path: str) -> None:
    workload = Agents(path, mode="open").draw(rps=4, duration_s=1000, seed=0, output_length=OUTPUT)
    assert not len(workload.after_ids)
    for one in np.unique(workload.session)[:50]:
        np.testing.assert_allclose(np.diff(workload.arrival_s[workload.session == one]), 6)


def population(path: str, **options: Any) -> Workload:
    source = Agents(path, load="population", lanes=40, between_s=2.0, **options)
    return source.draw(rps=1, duration_s=300, seed=0, output_length=OUTPUT)


def test_lanes_begin_in_the_middle_and_go_on_for_the_whole_run(path: str) -> None:
    workload = population(path)
    first = np.flatnonzero(workload.waits == 0)
    assert len(first) == len(np.unique(workload.session)) == 40
    assert 0 < workload.turn[first].max() <= 7
    assert (workload.turn[first] > 0).mean() > 0.5
    assert workload.arrival_s[first].min() >= 0
    assert workload.arrival_s[first].max() < 5, "while somebody thinks"
    least = np.zeros(len(workload))
    for request in range(len(workload)):
        before = after(workload, request)
        due = max((least[one] for one in before), default=0.0) + workload.delay_s[request]
        least[request] = due + FASTEST_S * workload.output_tokens[request]
        if before and workload.turn[request] == 0:
            assert workload.delay_s[request] == 2
    ends = [least[workload.session == lane].max() for lane in range(40)]
    assert min(ends) > 290, "no lane runs dry, however fast it is served"


def test_a_population_is_served_by_as_many_as_it_has(path: str) -> None:
    (cell,) = configure.cells(
        ["workload=agents", f"workload.path={path}", "workload.load=population", "workload.lanes=40", "gpus=2",
         "duration_s=100", "horizon=stop", "workload.between_s=2"]
    )  # fmt: skip
    assert "rps" not in cell.identity()
    workload = runs.draw(cell)
    outcome = runs.simulate_cell(cell, workload)
    states = np.bincount(outcome.state, minlength=len(State))
    assert states[State.FINISHED] > 400
    assert states[State.QUEUED] + states[State.RUNNING] <= 40
    assert states.sum() == len(workload)


def test_a_warm_up_is_played_and_not_counted(path: str) -> None:
    line = ["workload=agents", f"workload.path={path}", "workload.load=population", "workload.lanes=40", "gpus=2",
            "duration_s=100", "horizon=stop"]  # fmt: skip
    (cell,), (warm,) = configure.cells(line), configure.cells([*line, "slo.warmup_s=40"])
    workload = runs.draw(cell)
    made, same = runs.simulate_cell(cell, workload), runs.simulate_cell(warm, workload)
    np.testing.assert_array_equal(made.finish_s, same.finish_s)  # no barrier between warm-up and measurement
    late = made.due_s >= 40
    assert 0 < late.sum() < np.isfinite(made.due_s).sum()
    cold, found = (measure(workload, made, one.slo) for one in (cell, warm))
    assert found["ttft_mean_s"] == pytest.approx(np.nanmean(made.ttft_s[late]))
    assert found["latency_p90_s"] == pytest.approx(np.nanquantile(made.latency_s[late], 0.9))
    assert found["due_requests"] == late.sum()
    assert found["ttft_mean_s"] != cold["ttft_mean_s"]
    assert found["n_finished"] == cold["n_finished"]


def test_what_other_loads_and_modes_have_is_no_part_of_a_key(path: str) -> None:
    one = Agents(path)
    assert replace(one, lanes=3, between_s=4.0).identity() == one.identity()
    assert replace(one, gap_cap_s=9.0).identity() != one.identity()
    lanes = Agents(path, load="population")
    assert replace(lanes, lanes=3).identity() != lanes.identity()
    opened = replace(one, mode="open")
    assert replace(opened, gap_cap_s=9.0).identity() == opened.identity()


def test_a_lane_waits_for_its_answers(path: str) -> None:
    with pytest.raises(InvalidInput, match=r"^workload.load=population needs workload.mode=closed: "):
        population(path, mode="open")


# ---------------------------------------------------------------- traces that know starts alone
def line(at: float, tokens: int, output: int, hashes: list[int]) -> dict[str, Any]:
    return {"timestamp": 1000 * at, "input_length": tokens, "output_length": output, "hash_ids": hashes}


CHAT = (
    line(0, 1536, 100, [0, 1, 2]),
    line(3, 700, 9, [0, 9]),
    line(30, 2100, 50, [0, 1, 2, 3, 4]),
    line(31, 600, 5, [7, 8]),
)


def test_what_is_left_of_a_gap_without_the_service_is_thought(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", *CHAT)
    source = Mooncake(path, load="recorded", mode="closed", recorder_ttft_s=2.0, recorder_tpot_s=0.05)
    workload = source.draw(rps=1, duration_s=1, seed=0, output_length=OUTPUT)
    assert [after(workload, request) for request in range(4)] == [[], [], [0], []]
    assert workload.delay_s.tolist() == [0, 0, 30 - 2 - 5, 0]
    slow = replace(source, recorder_ttft_s=99.0).draw(rps=1, duration_s=1, seed=0, output_length=OUTPUT)
    assert slow.delay_s.tolist() == [0, 0, 0, 0]
    fast = replace(source, compress=2.0).draw(rps=1, duration_s=1, seed=0, output_length=OUTPUT)
    assert fast.delay_s[2] == (30 - 2 - 5) / 2


def test_a_service_that_is_not_known_is_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", *CHAT)
    with pytest.raises(InvalidInput, match=r"^workload.mode=closed of mooncake needs workload.recorder_ttft_s and"):
        Mooncake(path, mode="closed").trace()


def test_a_window_that_begins_within_a_session_has_its_later_turns(tmp_path: Path) -> None:
    rows = [line(10 * k, 1024 + 512 * k, 5, [0, *range(1, k + 2)]) for k in range(50)]
    source = Mooncake(written(tmp_path / "t.jsonl", *rows), mode="closed", recorder_ttft_s=1.0, recorder_tpot_s=0.0)
    workload = source.draw(rps=0.1, duration_s=200, seed=0, output_length=OUTPUT)
    assert (workload.waits == 0).sum() <= 2
    assert workload.turn[0] > 0
    assert set(workload.delay_s[workload.waits > 0].tolist()) == {9}
