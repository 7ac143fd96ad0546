"""Loads that change: gaps of other laws, and rates that change over time, for every workload that can have them."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.__main__ import main
from prebleexp.errors import InvalidInput
from prebleexp.experiment.key import key
from prebleexp.experiment.runs import draw, requests_columns, run
from prebleexp.launch import configure
from prebleexp.sim.types import Workload
from prebleexp.stages import of_requests
from prebleexp.workloads.arrivals import Arrivals, Constant, Gamma, Poisson, Weibull
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.profiles import Diurnal, Flat, Knots, OnOff, Profile, Ramp, Spikes, Stages, inverse, played
from prebleexp.workloads.recorded import Recorded, save
from tests.support.places import ROOT

PROFILES = sorted(file.stem for file in (ROOT / "conf" / "profile").glob("*.yaml"))
LAWS = sorted(file.stem for file in (ROOT / "conf" / "arrivals").glob("*.yaml"))
THREE = "profile.stages=[{rate: 2, duration: 100}, {rate: 8, duration: 50}, {rate: 1, duration: 100}]"
STAGES = ("profile=stages", THREE)
MADE_UP: dict[str, tuple[str, ...]] = {
    "react": (),
    "instructions": (),
    "azure_lengths": (),
    "chats": ("workload.turns=2",),
}


def drawn(*words: str) -> Workload:
    return draw(configure.cells([*words])[0])


def integral(curve: Knots, at: float) -> float:
    """By trapezoids of a fine grid that has all knots."""
    times = np.concatenate(
        [np.linspace(one, other, 33) for one, other in zip(curve.times, curve.times[1:], strict=False)]
    )
    total = 0.0
    for i, (one, other) in enumerate(zip(curve.times, curve.times[1:], strict=False)):
        grid = np.minimum(times[33 * i : 33 * i + 33], at)
        if other > one:
            slope = (curve.rates[i + 1] - curve.rates[i]) / (other - one)
            rates = curve.rates[i] + slope * (grid - one)
            total += float((np.diff(grid) * (rates[1:] + rates[:-1])).sum() / 2)
    return total


# ---------------------------------------------------------------- gaps
@pytest.mark.parametrize("law", LAWS)
def test_gaps_of_every_law_have_mean_1(law: str) -> None:
    arrivals: Any = configure.cells([f"arrivals={law}"])[0].arrivals
    gaps = arrivals.gaps(np.random.default_rng(1), 200_000)
    assert gaps.shape == (200_000,)
    assert (gaps >= 0).all()
    assert gaps.mean() == pytest.approx(1, abs=4 * gaps.std() / math.sqrt(200_000) + 1e-12)


@pytest.mark.parametrize("kind", [Gamma, Weibull])
@pytest.mark.parametrize("cv", [0.1, 0.5, 1.0, 2.0, 3.0])
def test_gaps_have_the_cv_that_was_asked_for(kind: Callable[[float], Arrivals], cv: float) -> None:
    gaps = kind(cv).gaps(np.random.default_rng(2), 1_000_000)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.03)


@pytest.mark.parametrize("kind", [Gamma, Weibull])
def test_gaps_of_cv_1_are_exponential(kind: Callable[[float], Arrivals]) -> None:
    gaps = np.sort(kind(1.0).gaps(np.random.default_rng(3), 20_000))
    assert farthest(1 - np.exp(-gaps)) < 1.63 / math.sqrt(20_000)  # Kolmogorov and Smirnov's, at 1 %


def farthest(sorted_uniform: Any) -> float:
    """Of an empirical distribution from the uniform one."""
    n = len(sorted_uniform)
    steps = np.arange(n + 1) / n
    return float(max((steps[1:] - sorted_uniform).max(), (sorted_uniform - steps[:-1]).max()))


@pytest.mark.parametrize("name", MADE_UP)
@pytest.mark.parametrize("law", LAWS)
def test_every_made_up_workload_takes_every_law(name: str, law: str) -> None:
    words = (f"workload={name}", *MADE_UP[name], "rps=20", "duration_s=100")
    usual, made = drawn(*words), drawn(*words, f"arrivals={law}")
    assert len(made) == len(usual) == 2000
    first = made.waits == 0
    starts = made.arrival_s[first]
    if law != "poisson":
        assert starts[0] == 0
        cv = float(getattr(configure.cells([f"arrivals={law}"])[0].arrivals, "cv", 0.0))
        gaps = np.diff(starts)
        assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.25, abs=1e-6)
        assert 1 / gaps.mean() == pytest.approx(20 * first.mean(), rel=0.2 if cv else 0.01)
    for column in ("prompt_tokens", "output_tokens", "delay_s", "after_ids", "session", "segment_ids"):
        assert getattr(made, column).tolist() == getattr(usual, column).tolist(), column


def test_prompts_stay_with_their_requests_where_sessions_overtake_each_other(tmp_path: Path) -> None:
    """Of a trace whose turns come when they were recorded, starts are moved, and what lies behind them is not."""
    rows = [
        {"timestamp": 10 * s + t, "session_id": f"s{s}", "prompt_tokens": 100 * s + t + 1, "completion_tokens": 3}
        for s in range(40)
        for t in (0, 7, 30)
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in sorted(rows, key=lambda row: float(row["timestamp"]))))
    words = ("workload=request_log", f"workload.path={path}", "workload.load=poisson", "workload.mode=open")
    usual, made = (drawn(*words, "rps=0.5", "duration_s=400", law) for law in ("arrivals=poisson", "arrivals=constant"))
    assert (np.diff(made.arrival_s) >= 0).all()
    Workload(**{one.name: getattr(made, one.name) for one in fields(Workload)})  # is valid
    for workload in (usual, made):
        for session in np.unique(workload.session):
            of = workload.session == session
            assert np.diff(workload.arrival_s[of]).tolist() == pytest.approx([7, 23])

    def told(workload: Workload) -> list[tuple[int, int, int]]:
        columns = (workload.session, workload.turn, workload.prompt_tokens)
        return sorted(zip(*(column.tolist() for column in columns), strict=True))

    assert told(usual) == told(made)
    assert np.diff(made.arrival_s[made.turn == 0]).std() < 1e-9
    starts = made.segment_offsets[:-1]
    assert np.add.reduceat(made.segment_tokens, starts).tolist() == made.prompt_tokens.tolist()


# ---------------------------------------------------------------- profiles
some = st.floats(0.05, 20.0)
profiles = st.one_of(
    st.builds(Flat),
    st.lists(st.tuples(st.sampled_from([0.0, 0.5, 3.0, 8.0]), some), min_size=1, max_size=5)
    .filter(lambda stages: any(rate for rate, _ in stages))
    .map(lambda stages: Stages(stages)),
    st.builds(Ramp, st.sampled_from([0.0, 0.3, 2.0]), st.sampled_from([0.1, 4.0])),
    st.builds(Ramp, some, some, st.just("exponential")),
    st.builds(Diurnal, st.floats(0, 1), st.one_of(st.none(), st.floats(1.0, 40.0)), st.floats(0, 1)),
    st.builds(Spikes, some, st.just(5.0), st.floats(0.1, 4.9), st.floats(0, 9.0)),
    st.builds(OnOff, some, some, st.sampled_from([0.0, 0.25])),
)


@settings(deadline=None)
@given(profiles, st.lists(st.floats(0, 15), min_size=1, max_size=20))
def test_what_comes_when_is_the_inverse_of_the_integral(profile: Profile, at: list[float]) -> None:
    duration_s = profile.duration_s or 12.0
    curve = profile.curve(duration_s)
    assert integral(curve, duration_s) == pytest.approx(duration_s, rel=1e-9)
    asked = np.sort(np.array(at))
    found = inverse(curve, asked)
    assert (np.diff(found) >= -1e-9).all()
    for one, moment in zip(asked, found, strict=True):
        if one < duration_s:
            assert integral(curve, moment) == pytest.approx(one, abs=1e-7 * duration_s)
        else:
            assert moment == one


@pytest.mark.parametrize("name", PROFILES)
def test_a_poisson_process_stays_one_of_the_changing_rate(name: str) -> None:
    """Time rescaled by the integral of the rate, gaps are exponential of mean 1."""
    words = ("workload=azure_lengths", "seed=3", "profile.relative=true" if name == "stages" else "rps=400")
    words = (*words, "rps=400", "duration_s=30", f"profile={name}")
    made, (cell,) = drawn(*words), configure.cells([*words])
    assert len(made) == 12_000
    times, rates = cell.profile.curve(30.0)
    edges = np.concatenate(([0.0], np.cumsum(np.diff(times) * (rates[1:] + rates[:-1]) / 2)))
    piece = np.clip(np.searchsorted(times, made.arrival_s, side="right") - 1, 0, len(times) - 2)
    into = made.arrival_s - times[piece]
    slope = np.divide(np.diff(rates), np.diff(times), out=np.zeros(len(rates) - 1), where=np.diff(times) > 0)[piece]
    rescaled = 400 * (edges[piece] + into * (rates[piece] + slope * into / 2))
    gaps = np.diff(rescaled[made.arrival_s < 29.9])
    assert farthest(np.sort(1 - np.exp(-gaps))) < 1.63 / math.sqrt(len(gaps))


@pytest.mark.thorough
def test_counts_of_stages_are_poisson() -> None:
    """But for the first request, which comes at 0, and the last stage, which has what is left."""
    counts = np.array(
        [
            np.bincount(drawn("workload=azure_lengths", *STAGES, f"seed={seed}").stage, minlength=3)
            for seed in range(100)
        ]
    )
    assert (counts.sum(axis=1) == 700).all()
    for column, mean in ((counts[:, 0] - 1, 200), (counts[:, 1], 400)):
        assert column.mean() == pytest.approx(mean, abs=4 * math.sqrt(mean / 100))
        assert column.var() / mean == pytest.approx(1, abs=4 * math.sqrt(2 / 100))


@pytest.mark.parametrize("name", [*MADE_UP, "request_log"])
@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_keeps_requests_their_order_and_their_number(name: str, profile: str, tmp_path: Path) -> None:
    if name == "request_log":
        path = tmp_path / "log.jsonl"
        rows = [{"timestamp": i / 4, "prompt_tokens": 9 + i, "completion_tokens": 4} for i in range(400)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        words: tuple[str, ...] = (f"workload={name}", f"workload.path={path}", "duration_s=40")
    else:
        words = (f"workload={name}", *MADE_UP[name], "rps=20", "duration_s=40")
    more = ("profile.stages=[[1, 10], [3, 30]]", "profile.relative=true") if profile == "stages" else ()
    usual, made = drawn(*words), drawn(*words, f"profile={profile}", *more)
    assert made.prompt_tokens.tolist() == usual.prompt_tokens.tolist()
    assert (np.diff(made.arrival_s[made.dated]) >= 0).all()
    assert (made.arrival_s == usual.arrival_s).all() == (profile == "flat")
    Workload(**{one.name: getattr(made, one.name) for one in fields(Workload)})  # is valid


def test_a_recording_is_played_faster_and_slower_by_turns(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = [{"timestamp": i, "prompt_tokens": 9, "completion_tokens": 4} for i in range(101)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("workload=request_log", f"workload.path={path}", "profile=on_off", "profile.on_s=10", "profile.off_s=10")
    made = drawn(*words)
    assert made.arrival_s[:22].tolist() == pytest.approx([*(i / 2 for i in range(20)), 20, 20.5])
    assert made.arrival_s[-1] == pytest.approx(100)
    assert configure.cells([*words])[0].load.words == "at 2.02 requests/s on, 0 off for 100 s"


# ---------------------------------------------------------------- stages
@pytest.mark.thorough
def test_stages_do_not_wait_for_each_other_and_have_the_rows_of_others() -> None:
    (cell,) = configure.cells(["workload=react", "gpus=1", *STAGES])
    made = run(cell)
    found = of_requests(requests_columns(made))
    assert [one.stage for one in found] == [0, 1, 2]
    assert sum(one.n_requests for one in found) == 700
    for one, rate in zip(found, (2, 8, 1), strict=True):
        assert one.offered_rps == pytest.approx(rate, rel=4 / math.sqrt(one.n_requests))
    assert (made.outcome.due_s == made.workload.arrival_s).all()
    stage = made.workload.stage
    assert made.outcome.due_s[stage == 2].min() < made.outcome.finish_s[stage == 1].max()


def test_turns_of_a_session_are_of_the_stage_in_which_it_begins() -> None:
    made = drawn("workload=chats", *STAGES)
    for session in np.unique(made.session)[:40]:
        assert len(set(made.stage[made.session == session])) == 1
    assert made.dated.tolist() == (made.waits == 0).tolist()


@pytest.mark.thorough
def test_a_stage_in_which_nothing_comes_is_none() -> None:
    words = ("workload=react", "profile=stages", "profile.stages=[[0, 10], [4, 10], [0, 10], [4, 10]]", "gpus=1")
    (cell,) = configure.cells([*words])
    assert [one.stage for one in of_requests(requests_columns(run(cell)))] == [1, 3]
    assert drawn(*words).arrival_s[0] == 10


def test_overlapping_stages_are_read_back_from_a_file(tmp_path: Path) -> None:
    made = drawn("workload=react", *STAGES)
    save(made, tmp_path / "staged.parquet")
    again = Recorded(str(tmp_path / "staged.parquet")).draw(
        rps=1, duration_s=1, seed=0, output_length=OutputLength((7,), (1.0,))
    )
    assert again.stage.tolist() == made.stage.tolist()
    assert again.overlaps.tolist() == made.overlaps.tolist()
    assert not again.staged
    assert again.is_open


# ---------------------------------------------------------------- what is said, and refused
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "at 64 requests/s for 30 s"),
        (STAGES, "at 2 → 8 → 1 requests/s in 3 stages for 250 s"),
        (("profile=stages", "profile.stages=[[2, 9], [4, 9], [8, 9]]"), "at 2 → 8 requests/s in 3 stages for 27 s"),
        (("profile=ramp", "profile.start=2", "profile.end=8", "rps=5"), "at 2 → 8 requests/s in a ramp for 30 s"),
        (("profile=diurnal", "rps=4"), "at 2 to 6 requests/s, diurnal for 30 s"),
        (("profile=on_off", "rps=4", "duration_s=40"), "at 8 requests/s on, 0 off for 40 s"),
        (("profile=spikes", "rps=10", "duration_s=120"), "at 7.5 requests/s with spikes of 37.5 for 120 s"),
        (("arrivals=gamma", "arrivals.cv=.5", "rps=4"), "at 4 requests/s for 30 s, gamma gaps of CV 0.5"),
        (
            ("workload=chats", "arrivals=constant"),
            "at 64 requests/s for 30 s, constant gaps, sessions are what starts so",
        ),
    ],
)
def test_the_load_that_was_names_its_profile(words: tuple[str, ...], said: str) -> None:
    assert configure.cells([*words])[0].load.words == said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            (*STAGES, "rps=9"),
            r"rps=9 is not valid; it must be 2\.8, the mean of profile\.stages; leave it out",
        ),
        ((*STAGES, "duration_s=30"), r"duration_s=30 is not valid; it must be 250, the sum of profile\.stages; leave"),
        (("profile=stages", "profile.stages=[]"), r"profile\.stages=\(\) is not valid; it must be a list of stages"),
        (("profile=stages", "profile.stages=[[0, 3]]"), r"profile\.stages=.* is not valid; it must be stages of which"),
        (("profile=stages", "profile.stages=[[1, 0]]"), r"profile\.stages\[0\]=.* is not valid; it must be {rate: …"),
        (("arrivals=gamma", "arrivals.cv=0"), r"arrivals\.cv=0 is not valid; it must be a number from 0\.01 to 100"),
        (("profile=ramp", "profile.ramp_s=99"), r"profile\.ramp_s=99 is not valid; it must be at most duration_s=30"),
        (("profile=spikes", "duration_s=9"), r"profile\.first_s=10\.0 is not valid; it must be below duration_s=9"),
        (
            ("profile=on_off", "profile.on_s=1e-7", "profile.off_s=1e-7"),
            r"profile\.on_s=2e-07 is not valid",
        ),
        (("profile=on_off", "profile.low=2"), r"profile\.low=2 is not valid; it must be a number from 0 to 1"),
        (
            ("workload=inference_perf", "profile=ramp"),
            r"profile=ramp is not valid with workload=inference_perf; it has stages of its own: workload\.stages=",
        ),
        (
            ("workload=chats", "workload.load=population", "arrivals=gamma"),
            r"arrivals=gamma is not valid with workload=chats; its load is users",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{said}"):
        configure.cells([*words])


def test_a_recording_has_gaps_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        "".join(json.dumps({"timestamp": i, "prompt_tokens": 9, "completion_tokens": 4}) + "\n" for i in range(9))
    )
    words = ["workload=request_log", f"workload.path={path}"]
    with pytest.raises(
        InvalidInput, match=r"^arrivals=gamma is not valid with workload=request_log; its requests have gap"
    ):
        configure.cells([*words, "arrivals=gamma"])
    with pytest.raises(InvalidInput, match=r"^profile=stages is not valid with workload.load=recorded"):
        configure.cells([*words, "workload.load=recorded", "profile=stages"])


def test_where_all_come_at_once_a_profile_is_refused() -> None:
    one = np.ones(3, np.int32)
    workload = Workload(np.zeros(3), one, one, one, -one, np.arange(4), np.arange(3), one)
    with pytest.raises(InvalidInput, match=r"^profile= does nothing where all come at one moment"):
        played(workload, Ramp(), 10.0)


# ---------------------------------------------------------------- keys
def test_only_what_changes_a_load_is_part_of_a_key() -> None:
    usual = configure.cells(["rps=4"])[0]
    assert "arrivals" not in usual.identity()
    assert "profile" not in usual.identity()
    others = [
        configure.cells(["rps=4", *words])[0]
        for words in (["arrivals=gamma"], ["arrivals=gamma", "arrivals.cv=3"], ["arrivals=weibull"], ["profile=ramp"])
    ]
    assert len({key(one) for one in (usual, *others)}) == 5
    assert len({one.stream for one in (usual, *others)}) == 5
    same = configure.cells(["rps=4", "arrivals=gamma", "policy=random"])[0]
    assert same.stream == others[0].stream
    assert asdict(usual.profile) == {}
    assert isinstance(usual.arrivals, Poisson)
    assert not isinstance(usual.arrivals, Constant)


@pytest.mark.slow
def test_a_sweep_over_cv_and_its_rerun_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["gpus=1", "rps=4", "duration_s=10", "arrivals=gamma", "report=none"]
    assert main(["-m", *words, "arrivals.cv=.5,1,2", "output=csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["arrivals.cv"] for row in rows] == ["0.5", "1", "2"]
    assert main([*words, *STAGES[:1], "profile.stages=[[2, 5], [6, 5]]", "output=json"]) == 0
    row = json.loads(capsys.readouterr().out)[0]
    assert (row["profile"], row["rps"], row["arrivals"]) == ("stages", 4, "gamma")
    assert main(["trace", row["key"]]) == 0
    (page,) = tmp_path.glob("reports/trace-*/index.html")
    text = page.read_text(encoding="utf-8")
    assert "at 2 → 6 requests/s in 2 stages for 10 s, gamma gaps of CV 2" in text
    assert "What became of each stage of the load" in text
