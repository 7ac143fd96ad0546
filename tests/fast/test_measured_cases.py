"""Published runs of real engines: which numbers are as near to the simulated ones as the support sentence states."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml

from prebleexp.commands import published as command
from prebleexp.hardware.parameters import Support
from prebleexp.launch import configure
from prebleexp.published import cases
from prebleexp.published.cases import Number
from prebleexp.report import cases as page
from tests.support.places import ROOT

SWEEP = yaml.safe_load((ROOT / "sweeps" / "measured_cases.yaml").read_text(encoding="utf-8"))["sweep"]["parts"]
KNOWN = Support("measured", "runs", 9, 0.02, 0.06, ttft_n=5, ttft_median=0.1, ttft_p90=0.2)
THEORY = Support("theory", "nothing", 0, math.nan, math.nan)


def test_every_number_is_of_a_line_of_the_sweep_and_each_once() -> None:
    numbers = cases.read()
    assert {one.part for one in numbers} == set(SWEEP)
    for one in numbers:
        assert one.line in SWEEP[one.part]["lines"]
        assert not one.over or one.over in SWEEP[one.part]["lines"]
        assert one.measured > 0
    assert len({(one.part, one.line, one.metric, one.over) for one in numbers}) == len(numbers) == 43


@pytest.mark.parametrize(
    ("support", "metric", "stated"),
    [
        (KNOWN, "ttft_mean_s", 0.2),
        (KNOWN, "ttft_p99_s", 0.2),
        (KNOWN, "tpot_mean_s", 0.06),
        (KNOWN, "latency_mean_s", 0.06),
        (KNOWN, "output_tokens_per_s", 0.06),
        (THEORY, "tpot_mean_s", 0.345),
        (THEORY, "ttft_mean_s", 0.345),
        (None, "requests_per_s", 0.345),
    ],
)
def test_first_tokens_have_the_error_of_first_tokens(support: Support | None, metric: str, stated: float) -> None:
    assert cases.stated(support, metric) == pytest.approx(stated, abs=1e-3)


def test_nothing_is_stated_of_counts_nor_where_first_tokens_were_never_compared() -> None:
    assert math.isnan(cases.stated(KNOWN, "retracted"))
    assert math.isnan(cases.stated(Support("measured", "runs", 9, 0.02, 0.06), "ttft_mean_s"))


def test_a_number_is_within_as_far_as_it_is_stated_and_a_ratio_is_of_two_lines() -> None:
    numbers = [
        Number("a", "x", "tpot_mean_s", 0.010),
        Number("a", "y", "tpot_mean_s", 0.010),
        Number("a", "y", "output_tokens_per_s", 2.0, "x"),
        Number("a", "z", "tpot_mean_s", 0.010),
    ]
    runs = {
        ("a", "x"): (KNOWN, {"tpot_mean_s": 0.0105, "output_tokens_per_s": 100.0}),
        ("a", "y"): (KNOWN, {"tpot_mean_s": 0.0093, "output_tokens_per_s": 150.0}),
    }
    near, far, ratio = cases.compared(numbers, runs)
    assert (near.within, far.within, ratio.within) == (True, False, None)
    assert near.off == pytest.approx(0.05)
    assert ratio.off == pytest.approx(-0.25)
    tpot, tokens = cases.errors([near, far, ratio])
    assert (tpot.experiment, tpot.arm, tpot.metric, tpot.n) == ("cases", "a", "tpot_mean_s", 2)
    assert (tpot.median_error, tokens.median_error) == (pytest.approx(0.06), pytest.approx(0.25))


def test_a_sweep_may_name_a_file_of_the_package() -> None:
    path = "${package:published/runs/sharegpt_300.csv}"
    cell = configure.cells(["workload=request_log", f"workload.path={path}", "workload.load=recorded"])[0]
    assert str(cell.workload.path) == str(ROOT / "prebleexp" / "published" / "runs" / "sharegpt_300.csv")


def test_a_configuration_was_measured_by_one_source_with_four_clients_or_more() -> None:
    """As docs/hardware.md says; so errors say nothing of servers of others, and of one client."""
    import pandas as pd

    loops = pd.read_csv(ROOT / "prebleexp" / "hardware" / "measured" / "closed_loop.csv.gz")
    assert set(loops.groupby(["gpu", "engine", "model", "weights"]).origin.nunique()) == {1}
    assert loops.concurrency.min() == 4
    said = (ROOT / "docs" / "hardware.md").read_text(encoding="utf-8")
    rows = loops[(loops.gpu == "h200") & (loops.engine == "sglang") & (loops.model == "deepseek-r1")]
    (four,) = rows[(rows.isl == 1024) & (rows.osl == 1024) & (rows.concurrency == 4)].ttft_ms
    assert f"takes {four / 1000:.2f} s there with four clients".replace("0.", ".") in said
    (other,) = (one.measured for one in cases.read() if one.part == "disaggregated_h200")
    assert f"and {other:.2f} s elsewhere with one".replace("0.", ".") in said


@pytest.mark.slow
def test_all_timed_numbers_are_as_near_as_is_stated_but_one(tmp_path: Path) -> None:
    """DeepSeek on H200 under SGLang: measured at four clients elsewhere its first tokens take 260 ms, here one client's
    100; the step times are fitted to the former."""
    lines = command.session_of(command.MEASURED_CASES, tmp_path).by_line
    found = page.compared(lines)
    for one in found:
        print(one.of.part, *page.cells(one), sep=" | ")
    assert len(found) == 43
    timed = [one for one in found if one.within is not None]
    assert len(timed) == 28
    assert [(one.of.part, one.of.metric) for one in timed if not one.within] == [("disaggregated_h200", "ttft_mean_s")]
    short = next(one for one in found if (one.of.line, one.of.metric) == ("31/s without caching", "ttft_mean_s"))
    assert 0.3 < short.off < 0.45  # .6 to 1.0 before waits of benchmarks were kept apart from the frontend
    for one in found:
        if one.of.metric in ("found_ratio", "n_requests") or one.of.part == "overcommitted_kv":
            assert one.off == pytest.approx(0, abs=1e-9), one
        if one.of.metric == "retracted":
            assert abs(one.off) < 0.15, one
    longer, shorter = (one for one in found if one.of.part == "long_prefill_rtx_3090" and one.of.over)
    # measured: 1.45; without a threshold steps of 512 tokens are 27 % too long here. It was 1.11 before linear layers
    # turned from reading to computing as suddenly as tables of other GPUs say (docs/validation.md)
    assert longer.simulated == pytest.approx(1.06, abs=0.01)
    assert abs(shorter.off) < 0.2
    said = {one.name: one.sentences for one in page.findings(lines)}
    assert said["prompts_of_200_h100"] == ("8 of 8 numbers are as near as is stated.",)
    assert said["disaggregated_h200"][0] == "0 of 1 numbers are as near as is stated."
    assert said["disaggregated_h200"][1].startswith("Not so: 1 client, ttft_mean_s: +12")
    assert said["chunked_hits"] == ()
