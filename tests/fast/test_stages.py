"""Loads that come in stages: what inference-perf asks, when a stage begins, and what is said of each."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prebleexp import store
from prebleexp.__main__ import main
from prebleexp.errors import InvalidInput
from prebleexp.experiment.key import key
from prebleexp.experiment.runs import Run, draw, requests_columns, run
from prebleexp.launch import configure
from prebleexp.metrics import measure
from prebleexp.sim.types import State, Workload
from prebleexp.stages import Stage, of_requests
from prebleexp.workloads.inference_perf import InferencePerf
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.recorded import Recorded, save

UNASKED = OutputLength((7,), (1.0,))
STAGES = ({"rate": 4.0, "duration": 5.0}, {"rate": 30.0, "duration": 10.0}, {"rate": 8.0, "duration": 2.6})
SMALL = ["workload=inference_perf", "gpus=2", "policy=lor"]
STAGED = [*SMALL, "workload.stages=[{rate: 20, duration: 2}, {rate: 60, duration: 1}]"]
WARM = [*STAGED, "workload.warmup={rate: 10, duration: 3}"]


def drawn(seed: int = 0, **fields: Any) -> Workload:
    source = InferencePerf(**{"num_groups": 3, "num_prompts_per_group": 4, "stages": STAGES} | fields)
    return source.draw(rps=64, duration_s=30, seed=seed, output_length=UNASKED)


def computed(overrides: list[str], **columns: Any) -> Run:
    cell = configure.cells(overrides)[0]
    return run(cell, replace(draw(cell), **columns) if columns else None)


# ---------------------------------------------------------------- the workload
def test_a_stage_has_rate_times_duration_requests_of_one_size() -> None:
    made = drawn(system_prompt_len=70, question_len=9, output_len=5)
    assert np.bincount(made.stage).tolist() == [20, 300, 20]
    assert set(made.prompt_tokens) == {79}
    assert set(made.output_tokens) == set(made.max_new_tokens) == {5}
    assert made.segment_tokens.tolist() == [70, 9] * 340


def test_each_stage_asks_all_prompts_in_one_shuffled_order_again_and_again() -> None:
    made = drawn()
    group, prompt = made.segment_ids[::2], made.segment_ids[1::2] - 3
    assert (group == prompt // 4).all()
    assert (made.prefix_group == group).all()
    order = prompt[:12]
    assert sorted(order) == list(range(12))
    assert order.tolist() != list(range(12))
    for stage in range(3):
        asked = prompt[made.stage == stage]
        assert (asked == order[np.arange(len(asked)) % 12]).all()
    other = drawn(seed=1).segment_ids[1::2] - 3
    assert sorted(other[:12]) == list(range(12))
    assert other[:12].tolist() != order.tolist()


def test_as_many_come_in_each_second_as_a_poisson_process_has() -> None:
    made = drawn(stages=({"rate": 7.0, "duration": 4000.0},))
    second = np.ceil(np.round(made.arrival_s, 9)).astype(int)
    counts = np.bincount(second, minlength=second.max() + 1)[1:-1]  # the last second is cut short
    assert abs(counts.mean() - 7) < 4 * np.sqrt(7 / len(counts))
    assert abs(counts.var() / 7 - 1) < 4 * np.sqrt(2 / len(counts) + 1 / (7 * len(counts)))
    last = np.maximum.reduceat(made.arrival_s, np.unique(second, return_index=True)[1])[:-1]
    assert last == pytest.approx(np.round(last), abs=1e-9)


def test_a_warm_up_is_a_stage_before_the_others_and_moves_none_of_their_prompts() -> None:
    without, made = drawn(), drawn(warmup={"rate": 2, "duration": 4})
    assert made.stage[:9].tolist() == [-1] * 8 + [0]
    assert made.dated.tolist() == [True] * 8 + [False] * 340
    assert made.segment_ids[16:].tolist() == without.segment_ids.tolist()


def test_its_rates_are_its_own() -> None:
    first, other = (configure.cells([*STAGED, f"rps={rps}"])[0] for rps in (3, 9))
    assert key(first) == key(other)
    assert draw(first).arrival_s.tolist() == draw(other).arrival_s.tolist()


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("workload.num_groups=0", "workload.num_groups=0 is not valid; it must be an integer from 1 to"),
        ("workload.stages=[]", r"workload.stages=\(\) is not valid; it must be a list of stages"),
        ("workload.stages=3", "workload.stages=3 is not valid; it must be a list of stages"),
        (
            "workload.stages=[{rate: 3}]",
            r"workload.stages\[0\]={'rate': 3} is not valid; it must be {rate: …, duration",
        ),
        (
            "workload.stages=[{rate: 1, duration: 1}, {rate: 0.5, duration: 1}]",
            r"workload.stages\[1\]=.*a request or more",
        ),
        ("workload.warmup={rate: -1, duration: 1}", "workload.warmup=.* is not valid"),
        ("workload.stages=[{rate: 1e9, duration: 1}]", "workload.stages: 1,000,000,100 prompts and requests; at most"),
    ],
)
def test_what_is_no_load_is_refused(override: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{said}"):
        configure.cells([*SMALL, override])


# ---------------------------------------------------------------- when a stage begins
def test_a_stage_begins_when_all_of_the_one_before_is_answered() -> None:
    made = computed(WARM)
    stage, outcome = made.workload.stage, made.outcome
    for number in (0, 1):
        before_s = outcome.finish_s[stage == number - 1].max()
        here = stage == number
        assert outcome.due_s[here].tolist() == (before_s + made.workload.delay_s[here]).tolist()
    assert (outcome.state == State.FINISHED).all()


def test_a_request_that_fails_has_ended() -> None:
    """One gives up at once, of the first stage and the last of it."""
    n = 100
    made = computed(STAGED, patience_s=np.where(np.arange(n) == 39, 1e-6, np.nan))
    assert made.outcome.state[39] == State.CANCELLED
    assert (made.outcome.state[40:] == State.FINISHED).all()


def test_caches_are_kept_from_stage_to_stage() -> None:
    made = computed(
        [
            "workload=inference_perf",
            "gpus=1",
            "engine.block_size=16",
            "workload.stages=[{rate: 50, duration: 2}, {rate: 50, duration: 2}]",
        ]
    )
    first, second = (made.outcome.hit_tokens[made.workload.stage == stage] for stage in (0, 1))
    assert first[0] == 0
    assert second.min() == 144  # whole blocks of a prompt that was asked before, 150 tokens


@pytest.mark.parametrize(
    ("stage", "said"),
    [([1, 1, 1], "row 0: 1"), ([-2, -1, 0], "row 0: -2"), ([0, 2, 2], "row 1: 2"), ([0, 1, 0], "row 2: 0")],
)
def test_stages_that_cannot_be_are_refused(stage: list[int], said: str) -> None:
    one = np.ones(3, np.int32)
    with pytest.raises(InvalidInput, match=f"^workload column stage, {said} is not valid"):
        Workload(np.zeros(3), one, one, one, -one, np.arange(4), np.arange(3), one, stage=np.array(stage))


def test_stages_are_read_back_from_a_file(tmp_path: Path) -> None:
    made = drawn(warmup={"rate": 2, "duration": 4})
    save(made, tmp_path / "staged.parquet")
    again = Recorded(str(tmp_path / "staged.parquet")).draw(rps=1, duration_s=1, seed=0, output_length=UNASKED)
    assert again.stage.tolist() == made.stage.tolist()
    assert again.delay_s.tolist() == made.delay_s.tolist()


@pytest.mark.parametrize("engine", ["released", "dynamo_replay", "splitwise"])
def test_engines_without_sessions_have_no_stages(engine: str) -> None:
    with pytest.raises(
        InvalidInput, match=f"^engine={engine} is not valid with requests that come after others, in st"
    ):
        computed(["replicas=2" if one == "gpus=2" else one for one in STAGED] + [f"engine={engine}", "reports_ms=0"])


# ---------------------------------------------------------------- what is said of each
def test_a_stage_is_measured_from_its_first_arrival_to_its_last_finish() -> None:
    made = computed(WARM)
    columns = requests_columns(made)
    found = of_requests(columns)
    assert [one.stage for one in found] == [0, 1]
    for one in found:
        of = {name: column[made.workload.stage == one.stage] for name, column in columns.items()}
        span_s = of["finish_s"].max() - of["due_s"].min()
        assert (one.n_requests, one.n_finished) == ((40, 40), (60, 60))[one.stage]
        assert one.output_tokens_per_s == pytest.approx(50 * one.n_requests / span_s, rel=1e-12)
        assert one.offered_rps == pytest.approx((one.n_requests - 1) / np.ptp(of["due_s"]), rel=1e-12)
        assert one.ttft_p90_s == pytest.approx(np.percentile(of["ttft_s"], 90), rel=1e-12)
        assert one.tpot_mean_s == pytest.approx(of["tpot_s"].mean(), rel=1e-12)


def test_of_a_load_without_stages_nothing_is_said() -> None:
    assert of_requests(requests_columns(computed([*SMALL]))) == []
    nothing = {name: np.full(2, np.nan) for name in ("due_s", "finish_s", "ttft_s", "tpot_s", "latency_s")}
    of = nothing | {"stage": [0, 1], "state": [State.NOT_DUE] * 2, "output_seen": [0, 0]}
    assert of_requests(of) == [Stage(stage, 1, 0, None, None, None, None, None, None) for stage in (0, 1)]


def test_averages_leave_a_warm_up_out() -> None:
    made = computed(WARM)
    columns = requests_columns(made)
    counted = made.workload.stage >= 0
    assert made.metrics["ttft_mean_s"] == pytest.approx(columns["ttft_s"][counted].mean(), rel=1e-12)
    assert measure(made.workload, made.outcome)["n_requests"] == 130


def test_the_view_says_what_the_terminal_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(WARM) == 0
    shown = capsys.readouterr().out
    assert "stages of the first seed whose requests are kept" in shown
    names = list(asdict(of_requests(requests_columns(computed(WARM)))[0]))
    with closing(store.connect(tmp_path / "cache" / "prebleexp.duckdb", read_only=True)) as database:
        rows = database.execute(f"SELECT {', '.join(names)} FROM stages ORDER BY stage").fetchall()
    expected = [tuple(asdict(one).values()) for one in of_requests(requests_columns(computed(WARM)))]
    assert rows == [pytest.approx(row, rel=1e-9) for row in expected]


def test_a_runs_page_has_a_row_for_each_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["trace", *WARM]) == 0
    (page,) = tmp_path.glob("reports/trace-*/index.html")
    text = page.read_text(encoding="utf-8")
    assert "What became of each stage of the load" in text
    assert "offered_rps" in text
