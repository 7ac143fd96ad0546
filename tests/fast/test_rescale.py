"""Traces at other rates: thinning and superposition keep sessions whole (spec: workloads, section 3)."""

from __future__ import annotations

import csv
import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.busiest import busiest, within
from prebleexp.described import reuse
from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.experiment.cold import cut
from prebleexp.experiment.shape import by_chance, flattened, one_recording
from prebleexp.launch import configure
from prebleexp.sim.types import COLUMNS, Floats, Longs, Workload
from prebleexp.workloads import chance, rescale
from prebleexp.workloads.blocks import Prompts
from prebleexp.workloads.mooncake import BLOCK, TICK_S, Mooncake
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.streams import workload_of
from prebleexp.workloads.trace import Trace
from tests.support.places import ROOT
from tests.support.sampled import examples

DATA = ROOT.parent / "shared" / "data"
CONVERSATION = DATA / "conversation_trace.jsonl.gz"
OUTPUT = OutputLength((1,), (1.0,))
needs_trace = pytest.mark.skipif(not CONVERSATION.exists(), reason="the conversation trace is not there")


def made(seed: int = 0, sessions: int = 60, turns: int = 4, span_s: float = 1000.0) -> Trace:
    """Sessions of up to so many turns: a public block, what they said before, and something new."""
    rng = np.random.default_rng(seed)
    rows = []
    for session in range(sessions):
        start = rng.uniform(0, span_s * 0.9)
        for turn in range(rng.integers(1, turns + 1)):
            rows.append((start, session, turn))
            start += rng.uniform(0, span_s * 0.1 / turns)
    rows.sort()
    start_s, session, turn = (np.array(column) for column in zip(*rows, strict=True))
    start_s = start_s - start_s[0]
    ids = [[0, *(1 + turns * s + np.arange(t + 1))] for s, t in zip(session, turn, strict=True)]
    offsets = np.concatenate(([0], np.cumsum([len(one) for one in ids])))
    flat = np.unique(np.concatenate(ids), return_inverse=True)[1].astype(np.int32)
    public = np.arange(flat.max() + 1) == 0
    tokens = np.full(len(flat), 100, np.int32)
    _, dense = np.unique(session, return_inverse=True)
    order = Prompts(offsets, flat, tokens)
    return Trace(start_s, np.ones(len(rows), np.int64), order, dense.astype(np.int32), turn.astype(np.int32), public)


def mooncake(**options: object) -> Mooncake:
    return Mooncake(str(CONVERSATION), **options)  # type: ignore[arg-type]


def shown(trace: Trace, chosen: rescale.Choice) -> Workload:
    return workload_of(trace, chosen)


def requests(chosen: rescale.Choice) -> set[tuple[int, int, float]]:
    return set(zip(chosen.row.tolist(), chosen.copy.tolist(), chosen.start_s.tolist(), strict=True))


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 2**63 - 1), st.floats(0.05, 4), st.floats(0.05, 4))
def test_what_comes_at_a_rate_comes_at_every_higher_one(seed: int, one: float, other: float) -> None:
    trace = made()
    few, many = (rescale.superposed(trace, copies, seed) for copies in sorted((one, other)))
    assert requests(few) <= requests(many)


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 2**63 - 1), st.floats(0.05, 4))
def test_sessions_stay_whole_with_the_gaps_they_had(seed: int, copies: float) -> None:
    trace = made()
    chosen = rescale.superposed(trace, copies, seed)
    assert (np.diff(chosen.start_s) >= 0).all()
    for copy in range(int(np.ceil(copies))):
        of = chosen.copy == copy
        rows, starts = chosen.row[of], chosen.start_s[of]
        for session in np.unique(trace.session[rows]):
            mine = rows[trace.session[rows] == session]
            assert mine.tolist() == np.flatnonzero(trace.session == session).tolist()
            gaps = np.diff(starts[trace.session[rows] == session])
            np.testing.assert_allclose(gaps, np.diff(trace.start_s[mine]), atol=1e-9)
            assert starts[trace.session[rows] == session][0] <= trace.span_s


def test_one_copy_is_the_trace() -> None:
    trace = made()
    for name in COLUMNS:
        one = getattr(shown(trace, rescale.superposed(trace, 1, 5)), name)
        assert one.tobytes() == getattr(shown(trace, rescale.whole(trace)), name).tobytes(), name


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 2**63 - 1), st.integers(1, 5))
def test_copies_share_what_is_public_and_nothing_else(seed: int, copies: int) -> None:
    trace = made()
    once = shown(trace, rescale.whole(trace))
    many = shown(trace, rescale.superposed(trace, copies, seed))
    assert len(many) == copies * len(once)
    assert len(np.unique(many.session)) == copies * len(np.unique(once.session))
    assert len(np.unique(many.segment_ids)) == copies * (len(np.unique(once.segment_ids)) - 1) + 1
    shared = (copies - 1) * 100 / many.prompt_tokens.sum()
    assert reuse(many, np.inf) == pytest.approx(reuse(once, np.inf) + shared)


def test_the_share_of_sessions_is_the_one_asked_for() -> None:
    trace = made(sessions=4000, turns=1)
    for seed in range(5):
        kept = len(rescale.superposed(trace, 0.3, seed))
        assert kept == pytest.approx(1200, abs=4 * np.sqrt(4000 * 0.3 * 0.7))


def test_other_seeds_and_copies_are_other_sessions() -> None:
    trace = made(sessions=1000, turns=1)
    first, other = (rescale.superposed(trace, 0.5, seed).row.tolist() for seed in (0, 1))
    last = rescale.superposed(trace, 1.5, 0)
    again = last.row[last.copy == 1].tolist()
    for one in (other, again):
        assert len(set(first) & set(one)) == pytest.approx(250, abs=80)


# ---------------------------------------------------------------- windows of a run
def line(i: int) -> dict[str, object]:
    return {"timestamp": 100 * i, "input_length": 600, "output_length": 5, "hash_ids": [0, i + 1]}


@pytest.fixture
def steady(tmp_path: Path) -> Mooncake:
    path = tmp_path / "steady.jsonl"
    path.write_text("".join(json.dumps(line(i)) + "\n" for i in range(10_001)))
    return Mooncake(str(path))


def test_a_window_has_the_rate_and_the_length_asked_for(steady: Mooncake) -> None:
    counts = []
    for seed in range(20):
        drawn = steady.draw(rps=25, duration_s=100, seed=seed, output_length=OUTPUT)
        assert drawn.arrival_s[0] >= 0
        assert drawn.arrival_s[-1] < 100
        counts.append(len(drawn))
    assert np.mean(counts) == pytest.approx(2500, rel=0.02)


def test_windows_are_drawn_by_the_seed_and_are_the_same_at_every_rate(steady: Mooncake) -> None:
    few, many, other = (
        steady.draw(rps=rps, duration_s=100, seed=seed, output_length=OUTPUT)
        for rps, seed in ((8, 3), (40, 3), (40, 4))
    )
    assert set(few.arrival_s.tolist()) <= set(many.arrival_s.tolist())
    assert len(few) < len(many)
    assert many.arrival_s.tolist() != other.arrival_s.tolist()


def test_a_window_is_not_longer_than_the_trace(steady: Mooncake) -> None:
    with pytest.raises(
        InvalidInput, match=r"^duration_s=2000 is not valid; .*steady.jsonl lasts 1000 s: take less, or"
    ):
        steady.draw(rps=1, duration_s=2000, seed=0, output_length=OUTPUT)


def test_a_window_may_be_as_long_as_the_trace_is_said_to_be(tmp_path: Path) -> None:
    """Whoever reads "in 1,235 s" of 1,234.6 s, and asks for it, means all."""
    path = tmp_path / "odd.jsonl"
    path.write_text("".join(json.dumps({**line(i), "timestamp": 1234.6 * i}) + "\n" for i in range(1001)))
    assert len(Mooncake(str(path)).draw(rps=0.5, duration_s=1235, seed=1, output_length=OUTPUT)) > 500


def test_a_window_without_requests_is_refused(steady: Mooncake) -> None:
    with pytest.raises(InvalidInput, match=r"has no request: take a longer time$"):
        steady.draw(rps=1e-9, duration_s=1, seed=0, output_length=OUTPUT)


def test_compressed_times_are_shorter_and_the_rate_is_still_that_asked_for(steady: Mooncake) -> None:
    drawn = replace(steady, compress=4).draw(rps=25, duration_s=100, seed=0, output_length=OUTPUT)
    assert len(drawn) == pytest.approx(2500, rel=0.1)


# ---------------------------------------------------------------- Mooncake's conversations
@needs_trace
def test_sessions_are_those_of_the_rule() -> None:
    trace = mooncake().trace()
    with gzip.open(DATA / "conversation_sessions.csv.gz", "rt") as file:
        given = [list(map(int, row)) for row in list(csv.reader(file))[1:]]
    assert np.column_stack([trace.session, trace.turn + 1]).tolist() == [row[1:3] for row in given]
    sizes = np.bincount(trace.session)
    assert (len(sizes), (sizes > 1).sum(), sizes[sizes > 1].sum(), sizes.max()) == (8496, 1925, 5460, 43)


@pytest.mark.slow
@needs_trace
def test_unlimited_reuse_of_three_copies_is_that_of_one() -> None:
    trace = mooncake().trace()
    for copies in (1, 3):
        many = shown(trace, rescale.superposed(trace, copies, 0))
        assert len(many) == copies * 12_031
        assert len(np.unique(many.segment_ids)) == copies * 182_789 + 1
        assert reuse(many, np.inf, BLOCK) == pytest.approx(0.3736, abs=5e-5)


@pytest.mark.slow
@needs_trace
def test_compressed_requests_find_more_than_superposed_ones() -> None:
    """In a cache of 3 M tokens, at four times the rate."""
    assert reuse(drawn(mooncake(load="recorded", compress=4)), 3e6, BLOCK) == pytest.approx(0.139, abs=5e-4)
    trace = mooncake().trace()
    found = [reuse(shown(trace, rescale.superposed(trace, 4, seed)), 3e6, BLOCK) for seed in range(2)]
    assert found == pytest.approx([0.061] * 2, abs=0.002)


@pytest.mark.slow
@needs_trace
def test_a_quarter_of_the_sessions_loses_reuse_across_sessions_alone() -> None:
    """.314 is what the specification drew; it depends on who is kept."""
    trace = mooncake().trace()
    found = [reuse(shown(trace, rescale.superposed(trace, 0.25, seed)), np.inf, BLOCK) for seed in range(30)]
    assert min(found) < 0.314 < np.mean(found) < 0.3736
    own = replace(trace, public=None)
    ids = (
        own.prompts.ids.astype(np.int64) + np.repeat(own.session.astype(np.int64), np.diff(own.prompts.offsets)) * 2**32
    )
    prompts = own.prompts._replace(ids=np.unique(ids, return_inverse=True)[1].astype(np.int32))
    apart = replace(own, prompts=prompts)  # sessions share nothing
    within = [
        reuse(shown(apart, rescale.superposed(apart, share, seed)), np.inf, BLOCK)
        for share, seed in ((1, 0), *((0.25, seed) for seed in range(30)))
    ]
    assert np.mean(within[1:]) == pytest.approx(within[0], abs=4 * np.std(within[1:]) / np.sqrt(30))


@needs_trace
def test_requests_of_a_tick_are_spread_over_it_in_their_order() -> None:
    recorded = drawn(mooncake(load="recorded"))
    spread, other = (drawn(mooncake(load="recorded", spread_ticks=True), seed) for seed in (0, 1))
    assert (spread.arrival_s >= recorded.arrival_s - 0.002).all()
    assert (spread.arrival_s < recorded.arrival_s + TICK_S + 0.002).all()
    assert (np.diff(spread.arrival_s) > 0).all()
    assert spread.arrival_s.tolist() != other.arrival_s.tolist()
    assert spread.segment_ids.tolist() == recorded.segment_ids.tolist()
    assert (np.diff(spread.arrival_s) / np.diff(spread.arrival_s).mean()).std() < 1.2, "3.03 as recorded"


def drawn(source: Mooncake, seed: int = 0) -> Workload:
    return source.draw(rps=1, duration_s=1, seed=seed, output_length=OUTPUT)


@pytest.mark.parametrize("rps", [0.5, 3.0])
def test_what_is_scaled_has_the_rate_and_the_busy_hour_of_the_recording(rps: float, tmp_path: Path) -> None:
    """A busy hour of five times the rate of the two beside it is as busy at any rate."""
    times = sorted([*(5.0 * i for i in range(2160)), *(3600 + 1.25 * i for i in range(2880))])
    path = tmp_path / "busy.jsonl"
    rows = ({**line(i), "timestamp": round(1000 * at)} for i, at in enumerate(times))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = Mooncake(str(path), load="scaled")
    found = source.draw(rps=rps, duration_s=1.0, seed=3, output_length=OUTPUT)
    assert len(found) / times[-1] == pytest.approx(rps, rel=0.05)
    for of in (np.array(times), found.arrival_s):
        peak = busiest(of)
        assert peak is not None
        assert (peak.of, peak.times) == ("hour", pytest.approx(15 / 7, rel=0.05))
    flat = busiest(
        replace(source, load="window").draw(rps=3.0, duration_s=10_700, seed=3, output_length=OUTPUT).arrival_s
    )
    assert flat is not None
    assert flat.times < 1.8
    more = source.draw(rps=2 * rps, duration_s=1.0, seed=3, output_length=OUTPUT)
    assert set(found.arrival_s.tolist()) <= set(more.arrival_s.tolist())


def came_at_random(rng: np.random.Generator, sessions: int, turns: int) -> tuple[Floats, Longs]:
    """An hour of sessions that begin at random, with turns half a minute apart: when requests start, and of which."""
    starts = rng.uniform(0, 3600, sessions)[:, None] + rng.exponential(30, (sessions, turns)).cumsum(axis=1)
    return starts.ravel() % 3600, np.repeat(np.arange(sessions), turns)


def busiest_minute(start_s: Floats) -> float:
    ordered = np.sort(start_s)
    return float(within(ordered, ordered, 60.0).max()) / (len(ordered) / 60)


@pytest.mark.parametrize("turns", [1, 4])
def test_of_a_log_that_is_laid_over_itself_it_is_known_what_its_busiest_minute_owes_to_chance(turns: int) -> None:
    """As many independent sessions are drawn, too, and counted: over ten logs the mean is within a tenth of what their
    busiest minute has beyond the average, where that of the log laid over itself has thrice as much."""
    rng, copies = np.random.default_rng(5), 20
    copied, told, truth = [], [], []
    for _ in range(10):
        start_s, session = came_at_random(rng, 1600 // turns, turns)
        shifts = [0.0, *rng.uniform(0, 60, copies - 1)]
        over = np.concatenate([(start_s + shift) % 3600 for shift in shifts])
        order = np.argsort(over)
        copy = np.repeat(np.arange(copies), len(start_s))
        found = chance.peak(over[order], np.tile(session, copies)[order], copy[order])
        assert found is not None
        copied.append(found.busiest)
        told.append(found.independent)
        truth.append(busiest_minute(came_at_random(rng, copies * 1600 // turns, turns)[0]))
    assert np.mean(told) == pytest.approx(np.mean(truth), abs=0.1)
    assert np.mean(copied) - 1 > 2.5 * (np.mean(truth) - 1)


def test_a_log_that_is_scaled_far_up_says_what_chance_makes_of_its_busiest_minute(tmp_path: Path) -> None:
    start_s, session = came_at_random(np.random.default_rng(2), 400, 4)
    log = tmp_path / "log.jsonl"
    rows = [
        {"timestamp": at, "input_length": 100, "output_length": 10, "session_id": f"s{of}"}
        for at, of in sorted(zip(start_s.tolist(), session.tolist(), strict=True))
    ]
    log.write_text("\n".join(map(json.dumps, rows)))
    asked = ["workload=request_log", f"workload.path={log}", "policy=lor"]
    (said,) = by_chance(configure.cells([*asked, "rps=8.9"]))
    of = re.search(r"laid over itself 20 times, its busiest minute has ([\d.]+) times .* about ([\d.]+) times", said)
    assert of is not None, said
    copied, told = map(float, of.groups())
    assert copied > 1.4 > 1.25 > told
    assert "workload.shift_s=600 or more lays copies further apart, which evens out chance" in said
    further = configure.cells([*asked, "rps=8.9", "workload.shift_s=3600"])
    assert not by_chance(further)
    assert busiest_minute(runs.draw(further[0]).arrival_s) < 1.25
    assert not by_chance(configure.cells([*asked, "rps=0.6"])), "little more than its own"
    assert not by_chance(configure.cells(asked))


def test_a_log_whose_busy_hours_are_no_chance_is_not_doubted(tmp_path: Path) -> None:
    """Ten thousand requests, four times as many a second in the second half hour."""
    times = [*np.arange(0, 1800, 0.9), *np.arange(1800, 3600, 0.225)]
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps({"timestamp": at, "input_length": 9, "output_length": 1}) for at in times))
    assert not by_chance(configure.cells(["workload=request_log", f"workload.path={log}", "rps=50", "policy=lor"]))


def test_starts_at_random_are_said_to_even_out_a_busy_minute(tmp_path: Path) -> None:
    """`workload.load=poisson` on a log flattened it, and said nothing."""
    times = sorted([*range(0, 3600, 30), *[1800 + i / 4 for i in range(240)]])
    usual = {"input_length": 100, "output_length": 10}
    rows = [{"timestamp": float(at), **usual, "hash_ids": [i]} for i, at in enumerate(times)]
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(map(json.dumps, rows)))
    asked = ["workload=request_log", f"workload.path={log}", "rps=1", "policy=lor"]
    (said,) = flattened(configure.cells([*asked, "workload.load=poisson", "duration_s=600"]))
    assert "workload.load=poisson begins its sessions at random times, which serves the average; leave it out" in said
    assert not flattened(configure.cells(asked))


def test_seeds_that_draw_from_one_log_say_how_much_of_it_they_have_in_common(tmp_path: Path) -> None:
    """Eight seeds at nine times the rate of a log of half an hour had nearly all of it each, and said nothing."""
    log = tmp_path / "log.jsonl"
    usual = {"input_length": 9, "output_length": 1}
    log.write_text("\n".join(json.dumps({"timestamp": float(at), **usual}) for at in range(0, 1801)))
    asked = ["workload=request_log", f"workload.path={log}", "policy=lor"]
    (said,) = one_recording(configure.cells([*asked, "rps=9", "duration_s=300"]))
    # of nine copies a sixth each: a session is in none with a probability of (5/6)⁹ = 0.194
    assert "all seeds draw from this one recording, and a run has up to 81 % of its sessions" in said
    assert said.endswith("intervals say how much draws of it differ, not how much days do")
    (said,) = one_recording(configure.cells([*asked, "rps=0.5", "duration_s=300"]))
    assert "all seeds draw from this one recording: intervals say" in said
    assert not one_recording(configure.cells(asked)), "as it came, nothing is drawn"


def test_windows_of_a_log_say_what_they_lack_of_its_caches(tmp_path: Path) -> None:
    """In windows of two minutes routers found 4.8 % cached of a log of which they find 40 %, and nothing said why."""
    path = tmp_path / "log.jsonl"
    rows = []
    for turn in range(10):  # ten sessions, a turn of each in a minute, with all turns before it in its prompt
        rows += [
            {"timestamp": turn * 60_000 + i * 1000, "input_length": 500 * (turn + 1), "output_length": 2,
             "hash_ids": [1000 * i + block for block in range(turn + 1)]}
            for i in range(10)
        ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = ["workload=mooncake", f"workload.path={path}", "workload.block_tokens=500", "rps=0.1"]
    (said,) = cut(configure.cells([*asked, "duration_s=120"]))
    # of 1 + … + 10 blocks of a session the recording finds all but the ten new ones, 45 of 55; in a window each has two
    # turns, the first of them cold
    whole, window = 45 / 55, re.search(r"finds (\d+) % of the prompts' tokens in such windows", said)
    assert f"and {whole * 100:.0f} % in the recording as it came" in said
    assert window is not None
    assert 35 < int(window[1]) < 55
    assert not cut(configure.cells([*asked])), "all of it"
    assert not cut(configure.cells([*asked, "duration_s=120", "warm=first", "warm.first_s=60"]))
    alone = [row | {"hash_ids": [100_000 + 20 * i + block for block in range(10)][: row["input_length"] // 500]}
             for i, row in enumerate(rows)]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in alone))
    assert not cut(configure.cells([*asked, "duration_s=120"])), "nothing is shared"
