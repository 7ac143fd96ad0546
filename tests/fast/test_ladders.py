"""Published routing ladders: what ships, what is refused, and how far off the simulated stages are."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from prebleexp.__main__ import main
from prebleexp.commands import published as command
from prebleexp.errors import InvalidInput
from prebleexp.launch import configure
from prebleexp.published import carried, ladders
from prebleexp.report import ladders as page
from prebleexp.stages import Stage
from tests.support.places import ROOT

SWEEP = yaml.safe_load((ROOT / "sweeps" / "published_llmd.yaml").read_text(encoding="utf-8"))["sweep"]["parts"]
A = "A_vllm_qwen3_32b"
ROWS = [
    "experiment,arm,rate_rps,output_tokens_per_s,ttft_mean_s,ttft_p90_s",
    f"{A},precise,3,100,,0.5",
    f"{A},precise,40,200,0.1,",
]


def written(tmp_path: Path, rows: list[str]) -> Path:
    (tmp_path / ladders.FILE).write_text("\n".join(rows) + "\n", encoding="utf-8")
    return tmp_path


def stage(number: int, tokens: float, ttft_s: float) -> Stage:
    return Stage(number, 10, 10, 1.0, tokens, ttft_s, 2 * ttft_s, 0.01, 1.0)


# ---------------------------------------------------------------- figures
def test_four_ladders_of_sixteen_stages_ship() -> None:
    found = ladders.read()
    assert {key: len(of) for key, of in found.items()} == {
        (A, "round_robin"): 16,
        (A, "precise"): 16,
        ("B_sglang_qwen3_32b", "round_robin"): 16,
        ("C_vllm_gpt_oss_120b", "round_robin"): 16,
    }
    assert found[A, "precise"][60] == {"output_tokens_per_s": 15733, "ttft_mean_s": 0.214, "ttft_p90_s": 0.3}
    assert set(found["B_sglang_qwen3_32b", "round_robin"][3]) == {"output_tokens_per_s", "ttft_p90_s"}


def test_the_sweep_has_the_stages_and_arms_of_the_ladders() -> None:
    measured = ladders.read()
    assert set(SWEEP) == set(ladders.COUNTED)
    for experiment, part in SWEEP.items():
        assert set(part["lines"]) == {"service", *(line for lines in ladders.ARMS.values() for line in lines)}
        for line in part["lines"].values():
            cell = configure.cells([*part["overrides"], *line])[0]
            assert cell.workload.rates == tuple(measured[experiment, "round_robin"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda rows: [rows[0].replace("arm", "router"), *rows[1:]],
            "there is no column arm; it must have experiment, arm",
        ),
        (
            lambda rows: [*rows, "D,precise,3,1,1,1"],
            "line 4: experiment=D is not valid; it must be one of A_vllm_qwen3",
        ),
        (
            lambda rows: [*rows, f"{A},best,3,1,1,1"],
            "line 4: arm=best is not valid; it must be one of round_robin, pre",
        ),
        (lambda rows: [*rows, f"{A},precise,3,1,1,1"], "line 4: rate_rps=3 is there twice"),
        (lambda rows: [*rows, f"{A},precise,x,1,1,1"], "line 4: rate_rps=x is not valid; it must be a number > 0"),
        (
            lambda rows: [*rows, f"{A},precise,5,-1,1,1"],
            "line 4: output_tokens_per_s=-1 is not valid; it must be a number",
        ),
        (lambda rows: rows[:1], "there are no rows"),
    ],
)
def test_figures_that_are_not_valid_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[list[str]], list[str]], said: str
) -> None:
    folder = written(tmp_path, change(list(ROWS)))
    assert main(["published", f"data={folder}"]) == 2
    printed = capsys.readouterr()
    assert said in printed.err.splitlines()[-1]
    assert printed.out == ""


def test_a_folder_without_figures_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["published", f"data={tmp_path}"]) == 2
    assert f"{tmp_path / ladders.FILE} cannot be read: No such file" in capsys.readouterr().err


# ---------------------------------------------------------------- errors
def test_an_error_is_of_the_mean_of_streams_and_tokens_are_those_the_client_counts(tmp_path: Path) -> None:
    measured = ladders.read(written(tmp_path, ROWS))
    streams = [([3.0, 40.0], [stage(0, tokens, 0.2), stage(1, 2 * tokens, 0.15)]) for tokens in (100.0, 120.0)]
    made = ladders.simulated(A, streams)
    tokens, mean, p90 = ladders.errors(A, "precise", measured[A, "precise"], made)
    assert (tokens.n, mean.n, p90.n) == (2, 1, 1)
    assert tokens.median_error == pytest.approx(0.937 * 1.1 - 1)
    assert mean.median_error == mean.p90_error == pytest.approx(0.5)
    assert p90.median_error == pytest.approx(0.2)


def test_the_percentile_is_over_stages() -> None:
    published = {float(rate): {"ttft_mean_s": 1.0} for rate in range(1, 12)}
    made = {rate: {name: [1 + rate / 100] for name in ladders.METRICS} for rate in published}
    (error,) = ladders.errors(A, "precise", published, made)
    assert (error.median_error, error.p90_error) == (pytest.approx(0.06), pytest.approx(0.10))


def test_a_stage_that_is_not_simulated_is_refused_before_anything_is(tmp_path: Path) -> None:
    measured = ladders.read(written(tmp_path, [*ROWS, f"{A},precise,4,1,1,1"]))
    with pytest.raises(InvalidInput, match=rf"^{A}, precise: rate_rps=4 is not valid; it must be one of 3, 10, 15, 20"):
        command.of_ladders(measured, 1, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_gain_is_of_each_stream_from_40_a_second_on() -> None:
    routed = {3.0: {ladders.TOKENS: [9.0, 9.0]}, 40.0: {ladders.TOKENS: [4.0, 6.0]}, 60.0: {ladders.TOKENS: [8.0, 6.0]}}
    other = {rate: {ladders.TOKENS: [2.0, 2.0]} for rate in routed}
    assert ladders.gains(routed, other) == [3.0, 3.0]


def test_what_clusters_carry_is_compared_as_ratios_and_by_gpu() -> None:
    (row,) = carried.errors("distserve", {("DistServe's check (200 ms to the first token)", "P TP 2 + D TP 1"): 3.12})
    assert (row.metric, row.n, row.median_error) == ("requests_per_gpu_s", 1, pytest.approx(1 / 3))
    loads = {
        (one.variant, line): {"AA": 2.8, "H100": 2.0, "A100": 1.0}[line]
        for one in carried.CLAIMS["splitwise"]
        for line in ("AA", "H100", "A100")
    }
    rows = carried.errors("splitwise", loads)
    assert [row.median_error for row in rows] == pytest.approx([0.0, 2.8 / 2.35 - 1] * 4)


@pytest.mark.parametrize("experiment", carried.CLAIMS)
def test_claims_are_of_lines_of_the_sweep(experiment: str) -> None:
    parts = yaml.safe_load((ROOT / "sweeps" / f"published_{experiment}.yaml").read_text(encoding="utf-8"))["sweep"][
        "parts"
    ]
    lines = {part["variant"]: set(part["lines"]) for part in parts.values()}
    for one in carried.CLAIMS[experiment]:
        assert {one.line, *filter(None, [one.over])} <= lines[one.variant]


# ---------------------------------------------------------------- page and command
def test_a_page_has_each_stage_beside_what_was_measured() -> None:
    cell = configure.cells([*SWEEP[A]["overrides"], "policy=round_robin"])[0]
    rates = cell.workload.rates
    runs = {
        (A, line): [(cell, [stage(i, tokens + seed, 1.0) for i in range(len(rates))]) for seed in (0, 1)]
        for line, tokens in (("round_robin", 5000.0), ("precise", 15000.0))
    }
    (finding,) = page.findings(runs)
    assert finding.sentences[1].startswith(
        "From 40 requests/s on precise makes 3.00 ± 0.00 times the tokens/s of round"
    )
    assert "measured were 2.46" in finding.sentences[1]
    heads = [one.name for one in finding.effects.columns]
    assert heads[:3] == ["requests/s", "round_robin, tokens/s: published", "round_robin, tokens/s"]
    assert finding.effects.rows[0][:3] == ("3", "1,797", "4,685 (+161 %)")
    assert len(finding.effects.rows) == 16
    assert {row[0] for row in finding.causes.rows} == {"round_robin", "precise"}


def test_where_costs_are_drawn_it_is_said_how_many_stages_lie_within() -> None:
    """By hand: 4,000 and 6,000 tokens/s of which 937 of 1,000 count: 4,685 ± 12.706 · 1,325 · √1.5 has all; with the
    second stream at 4,001 none."""
    words = [*SWEEP[A]["overrides"], "policy=round_robin", "hardware.uncertainty=true"]
    cell = configure.cells(words)[0]
    rates = cell.workload.rates

    def said(*tokens: float) -> str:
        streams = [(cell, [stage(i, each, 1.0) for i in range(len(rates))]) for each in tokens]
        (finding,) = page.findings({(A, "round_robin"): streams})
        return finding.sentences[1]

    within = "Published tokens/s lie in the interval of one draw of step times in "
    assert said(4000.0, 6000.0) == f"{within}16 of 16 stages of round_robin."
    assert said(4000.0, 4001.0) == f"{within}0 of 16 stages of round_robin."


def test_the_command_prints_rows_for_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = ladders.Error(A, "precise", "ttft_p90_s", 1, 0.25, 0.5)
    monkeypatch.setattr(command, "of_ladders", lambda *_: [error])
    arguments = ["published", f"data={written(tmp_path, ROWS)}"]
    assert main([*arguments, "output=json"]) == 0
    assert json.loads(capsys.readouterr().out) == [vars(error)]
    assert main([*arguments, "output=csv"]) == 0
    (row,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert row == {name: str(value) for name, value in vars(error).items()}
    assert main(arguments) == 0
    assert capsys.readouterr().out.split()[-3:] == ["1", "25.0%", "50.0%"]


@pytest.mark.slow
def test_the_shipped_model_is_as_far_off_as_the_page_says(tmp_path: Path) -> None:
    """docs/validation.md: of tokens/s in the median 4.7, 11.6, 4.5 and 3.8 %."""
    rows = command.of_ladders(ladders.read(), 3, tmp_path)
    tokens = {(one.experiment[0], one.arm): one.median_error for one in rows if one.metric == ladders.TOKENS}
    assert tokens["A", "round_robin"] < 0.06
    assert tokens["A", "precise"] < 0.13
    assert tokens["B", "round_robin"] < 0.07
    assert tokens["C", "round_robin"] < 0.07
