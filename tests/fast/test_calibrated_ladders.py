"""A ladder of one's own: made by the simulator under other costs, and found again; one of the same changes nothing."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from prebleexp.__main__ import main
from prebleexp.calibration import benchmarks, factors, ladder
from prebleexp.calibration.factors import FACTORS
from prebleexp.calibration.fit import Fitted, fit
from prebleexp.calibration.ladder import Arm, Play
from prebleexp.calibration.simulated import Simulated
from prebleexp.commands import ladder_arms
from prebleexp.commands.calibrated import Stage, worst
from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.hardware import verdict
from prebleexp.launch import configure
from prebleexp.stages import of_requests, whole

Capture = pytest.CaptureFixture[str]
OF = ["hardware/gpu=b200", "hardware/model=llama_3_1_8b", "hardware.precision=fp8", "engine=vllm", "horizon=drain"]
SAID = ["gpu=b200", "model=llama-3.1-8b", "precision=fp8", "engine=vllm"]
RATES = (1, 4, 16, 48, 80, 110)
TRUE = {"fixed": 1.4, "prefill": 0.8}
STREAM = 999
"""a seed that no fit draws"""


def cell(true: Mapping[str, float], *overrides: str) -> Cell:
    made = configure.cells([*OF, "policy=round_robin", "gpus=1", *overrides])[0]
    logs = [math.log(true.get(one.name, 1.0)) for one in FACTORS]
    return replace(made, hardware=factors.applied(made.hardware, logs))  # type: ignore[arg-type]


def results(true: Mapping[str, float], rates: Sequence[float] = RATES) -> list[dict[str, Any]]:
    """As `vllm bench serve` writes them."""
    found = []
    for i, rate in enumerate(rates):
        n = max(100, int(6 * rate))
        one: dict[str, Any] = {"num_prompts": n, "completed": n, "request_rate": float(rate), "max_concurrency": None}
        one |= {"total_input_tokens": 2000 * n, "total_output_tokens": 200 * n, "burstiness": 1.0}
        stage = whole(runs.requests_columns(runs.run(cell(true), benchmarks.stream(("", one), STREAM + i))))
        times = {"mean_ttft_ms": stage.ttft_mean_s, "mean_tpot_ms": stage.tpot_mean_s}
        one |= {name: 1e3 * float(seconds or "nan") for name, seconds in times.items()}
        found.append(one | {"output_throughput": stage.output_tokens_per_s})
    return found


def fitted(true: Mapping[str, float]) -> Fitted:
    given = [(f"result {i}", one) for i, one in enumerate(results(true))]
    plays = [
        Play(cell({}), lambda seed, one=one: benchmarks.stream(one, seed), (benchmarks.rung(one),)) for one in given
    ]  # type: ignore[misc]
    return fit(Simulated(Arm("round_robin", tuple(plays)), 3))


def written(folder: Path, given: Sequence[Mapping[str, Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    for i, one in enumerate(given):
        (folder / f"r{i}.json").write_text(json.dumps(one))
    return folder


# ---------------------------------------------------------------- made-up truths
@pytest.mark.slow
def test_costs_that_made_a_ladder_are_found_again() -> None:
    found = fitted(TRUE)
    for i, one in enumerate(FACTORS):
        truth = math.log(TRUE.get(one.name, 1.0))
        print(f"{one.name}: true {math.exp(truth):.2f}, fitted {np.exp(found.logs[i]):.2f} ± {found.spread[i]:.2f}")
        assert abs(found.logs[i] - truth) <= 1.96 * found.spread[i], one.name
        assert found.spread[i] <= 1.001 * found.prior[i], one.name
    named = {one.name: i for i, one in enumerate(FACTORS)}
    for name in TRUE:
        assert found.told[named[name]]
        assert found.spread[named[name]] < 0.7 * found.prior[named[name]]
    assert found.score > verdict.SURE
    again = fitted(TRUE)
    assert (again.logs == found.logs).all()
    assert (again.left_out == found.left_out).all()


@pytest.mark.slow
def test_a_ladder_of_what_ships_changes_nothing() -> None:
    found = fitted({})
    assert found.score < verdict.SURE
    assert (np.abs(found.logs) <= 1.96 * found.spread).all()


def test_no_factor_makes_a_kernel_faster_than_the_gpu_or_changes_anything_at_one() -> None:
    one: Any = cell({}).hardware
    assert factors.applied(one, np.zeros(len(FACTORS))) == one
    fast = factors.parameters(one, np.full(len(FACTORS), -2.0))
    assert fast.e_m <= 0.92 * fast.v + 1e-12
    assert fast.e_c <= 0.95 * fast.v + 1e-12
    assert fast.e_kv * one.gpu.reading(one.kv_precision)[0] <= one.gpu.hbm_gb_s * 1e9 * (1 + 1e-12)


# ---------------------------------------------------------------- the command
@pytest.mark.slow
def test_a_better_fit_is_written_and_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "slow", results(TRUE))
    assert main(["calibrate", "hardware", "data=slow", *SAID]) == 0
    said = capsys.readouterr()
    assert "better than what ships by more than noise" in said.out
    assert "error by what ships → by a fit to the other stages" in said.out
    file = tmp_path / "conf/hardware/b200_llama_3_1_8b_fp8_tp1_vllm.yaml"
    assert yaml.safe_load(file.read_text())["evidence"]["level"] == "ladder measured"
    one = configure.cells([f"hardware={file.stem}", "engine=vllm"])[0].hardware
    assert one.support.startswith("measured against 6 stages of a ladder of one's own, TPOT, each by a fit to the")
    ships = cell({}).hardware
    assert one.parameters.f > 1.1 * ships.parameters.f  # type: ignore[attr-defined]


def test_what_became_worse_is_said_however_good_the_median_is() -> None:
    better = [Stage("rr", f"{rate}/s", "TTFT", 1.0, 0.30, 0.02) for rate in (2, 4, 8)]
    assert worst(better) == (
        "the largest error is 30.0 % (TTFT of 2/s) by what ships, 2.0 % (TTFT of 2/s) after; none of 3 is farther off "
        "than before"
    )
    one = Stage("rr", "16/s", "tokens/s", 900.0, -0.05, 0.40)
    assert worst([*better, one]) == (
        "the largest error is 30.0 % (TTFT of 2/s) by what ships, 40.0 % (tokens/s of 16/s) after; 1 of 4 are farther "
        "off than before, by most tokens/s of 16/s, -5.0 → +40.0 %"
    )


@pytest.mark.slow
def test_all_that_a_ladder_tells_is_a_document_for_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "slow", results(TRUE))
    assert main(["calibrate", "hardware", "data=slow", *SAID, "output=json", "to=own.yaml"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert "better than what ships by more than noise" in printed.err
    assert (found["file"], found["verdict"]) == ("own.yaml", verdict.said(found["score"]))
    assert found["score"] > verdict.SURE
    assert {row["name"] for row in found["factors"]} == {factor.name for factor in FACTORS}
    told = [row for row in found["factors"] if row["told"]]
    assert told
    assert all(row["low"] < row["factor"] < row["high"] for row in told)
    assert {one["metric"] for one in found["stages"]} == {"tokens/s", "TTFT", "TPOT"}
    before, after = ([abs(one[of]) for one in found["stages"]] for of in ("before", "after"))
    assert np.median(after) < np.median(before)


@pytest.mark.slow
def test_what_ships_is_kept_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "same", results({}))
    assert main(["calibrate", "hardware", "data=same", *SAID]) == 0
    assert "nothing is written; write=always" in capsys.readouterr().out
    assert not (tmp_path / "conf").exists()
    assert main(["calibrate", "hardware", "data=same", *SAID, "write=always", "to=own.yaml"]) == 0
    assert (tmp_path / "own.yaml").exists()
    capsys.readouterr()
    assert main(["calibrate", "hardware", "data=same", *SAID, "write=always", "to=own.yaml"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""  # before anything is fitted
    assert "own.yaml exists; give another name with to=" in printed.err


STAGED = ["workload=inference_perf", "workload.num_groups=8", "workload.system_prompt_len=3000"]
STAGED += ["workload.question_len=300", "workload.output_len=100"]
STAGES = ((8, 10), (60, 10), (120, 8), (180, 8))


def table(path: Path, true: Mapping[str, float], arms: Sequence[str]) -> Path:
    """A router A/B as llm-d's guides have theirs."""
    rows = []
    for arm in arms:
        stages = f"workload.stages=[{', '.join(f'[{rate}, {s}]' for rate, s in STAGES)}]"
        of = cell(true, *STAGED, stages, "gpus=2", f"policy={arm}", f"seed={STREAM}")
        for (rate, lasted), one in zip(STAGES, of_requests(runs.requests_columns(runs.run(of))), strict=True):
            row = {"arm": arm, "rate_rps": rate, "duration_s": lasted, "ttft_mean_s": one.ttft_mean_s}
            rows.append(row | {"output_tokens_per_s": one.output_tokens_per_s, "tpot_mean_s": one.tpot_mean_s})
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.mark.slow
def test_a_router_ab_is_fitted_on_one_arm_and_judged_on_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "ab.csv", {"fixed": 1.8, "prefill": 1.3}, ("round_robin", "llmd_precise"))
    line = ["calibrate", "hardware", "data=ab.csv", *SAID, *STAGED, "gpus=2"]
    assert main(line) == 2
    assert "fit=round_robin or llmd_precise" in capsys.readouterr().err
    assert main([*line, "fit=round_robin", "to=own.yaml"]) == 0
    said = capsys.readouterr().out
    assert "4 stages of round_robin: llama-3.1-8b in fp8 on b200, vllm on 2 replicas behind round_robin" in said
    assert "llmd_precise, to which nothing was fitted" in said
    assert "llmd_precise has" in said
    assert "times the tokens/s of round_robin; simulated by what ships" in said
    judged = said.split("llmd_precise, to which nothing was fitted")[1]
    medians = re.findall(r"([\d.]+) → ([\d.]+) %", judged.split("median error")[1].splitlines()[0])
    assert len(medians) == 3
    before, after = map(float, medians[-1])
    assert after < before / 2  # TPOT of an arm that was never fitted


def test_arms_may_be_folders_of_results(tmp_path: Path) -> None:
    for arm in ("lor", "round_robin"):
        written(tmp_path / arm, results({}, (1, 2, 4)))
    assert ladder_arms.takes(tmp_path)


# ---------------------------------------------------------------- what is taken for what
PLAIN = {
    "num_prompts": 100, "completed": 100, "request_rate": 4.0, "total_input_tokens": 9000, "total_output_tokens": 900,
    "mean_ttft_ms": 30, "mean_tpot_ms": 7,
}  # fmt: skip


def test_a_cap_that_was_not_reached_does_not_matter(tmp_path: Path) -> None:
    """The public case: rates under a cap of 256 that is never reached were taken for 256 clients."""
    one = PLAIN | {"max_concurrency": 256, "request_throughput": 3.9}
    assert benchmarks.rung(("r", one)).rate == 4.0
    assert ladder_arms.takes(written(tmp_path / "caps", [one]))
    held = benchmarks.rung(("r", one | {"request_throughput": 2.0, "concurrency": 240}))
    assert (held.name, held.rate) == ("256 clients", math.inf)
    assert benchmarks.rung(("r", one | {"request_throughput": 2.0})).rate == 4.0  # few were there: it is the end
    assert not ladder_arms.takes(written(tmp_path / "loops", [PLAIN | {"max_concurrency": 8, "request_rate": "inf"}]))


def test_what_was_asked_is_simulated() -> None:
    listed = PLAIN | {"input_lens": [10, 20, 30], "output_lens": [5, 0, 7], "start_times": [9.0, 8.0, 7.5]}
    of = benchmarks.stream(("r", listed), 0)
    assert (of.prompt_tokens.tolist(), of.output_tokens.tolist()) == ([30, 10], [7, 5])
    assert of.arrival_s.tolist() == [0.0, 1.5]
    plain = benchmarks.stream(("r", PLAIN), 0)
    assert set(plain.prompt_tokens) == {90}
    assert len(plain) / plain.arrival_s[-1] == pytest.approx(4, rel=0.3)
    drawn = benchmarks.stream(("r", PLAIN | {"dataset_name": "random", "random_range_ratio": 0.0}), 0)
    assert drawn.prompt_tokens.max() > 150
    clients = benchmarks.stream(("r", PLAIN | {"request_rate": "inf", "max_concurrency": 10}), 0)
    assert (clients.waits == 0).sum() == 10
    assert (benchmarks.stream(("r", PLAIN | {"request_rate": "inf"}), 0).arrival_s == 0).all()


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"failed": 50}, "50 of 100 requests failed"),
        ({"request_rate": -1.0}, "request_rate=-1 is not valid"),
        ({"request_rate": None}, "neither request_rate nor max_concurrency"),
        ({"max_concurrency": 4, "concurrency": 3.5, "request_throughput": 4.0}, "run it without --max-concurrency"),
        ({"mean_ttft_ms": 0}, "mean_ttft_ms=0 is not valid"),
    ],
)
def test_a_result_that_says_not_what_was_asked_is_refused(other: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        benchmarks.rung(("r.json, result 1", PLAIN | other))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("rate_rps\n4\n", "it must have one of output_tokens_per_s"),
        ("rate_rps,ttft_mean_s\n", "has no rows"),
        ("rate_rps,ttft_mean_s\n4,0.1\n4,0.2\n", "rate_rps=4 is there twice"),
        ("rate_rps,ttft_mean_s\n-4,0.1\n", "rate_rps=-4 is not valid"),
        ("rate_rps,ttft_mean_s\n4,nan\n", "ttft_mean_s=nan is not valid"),
        ("experiment,rate_rps,ttft_mean_s\na,4,1\nb,4,1\n", "choose one: experiment=a or b"),
    ],
)
def test_a_table_that_is_none_is_refused_in_a_line(text: str, why: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "l.csv").write_text(text)
    assert main(["calibrate", "hardware", f"data={tmp_path / 'l.csv'}", *SAID, *STAGED]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line


def test_what_is_lacking_is_said_with_the_way_out(tmp_path: Path, capsys: Capture) -> None:
    folder = written(tmp_path / "few", [PLAIN, PLAIN | {"request_rate": 8.0}])
    (tmp_path / "l.csv").write_text("rate_rps,ttft_mean_s\n4,0.1\n")

    def said(*line: str) -> str:
        assert main(["calibrate", "hardware", *line]) == 2
        (one,) = capsys.readouterr().err.splitlines()
        return one

    assert "2 stages are too few to fit: give 3 or more" in said(f"data={folder}", *SAID)
    assert "set gpu=, model=, engine=" in said(f"data={folder}")
    assert "add the workload, as workload=inference_perf" in said(f"data={tmp_path / 'l.csv'}", *SAID)
    assert "unknown model 'nope'" in said(f"data={folder}", "gpu=b200", "model=nope")
    assert "unknown setting 'gpus'" in said(f"data={tmp_path / 'no.csv'}", *SAID, "gpus=2")
    assert "workload=react is not valid with results" in said(f"data={folder}", *SAID, "workload=react")
    ladder.check(Arm("a", (Play(cell({}), runs.draw, tuple(benchmarks.rung(("r", PLAIN)) for _ in range(3))),)))  # type: ignore[arg-type]
