"""A promise of several limits is held to one measure everywhere: in the minute after a loss, in tables and figures."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from prebleexp.__main__ import main
from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.launch.asked_plan import asked_by
from prebleexp.launch.multirun import Multirun
from prebleexp.launch.plans import Plans
from prebleexp.planning.contender import Contender
from prebleexp.planning.loss import Lost, bereft
from prebleexp.planning.planned import Planned
from prebleexp.planning.promise import ToKeep, refuse_target
from prebleexp.recommending import page, table, words
from prebleexp.recommending.candidates import Candidate
from prebleexp.recommending.designs import Design
from prebleexp.recommending.recommender import Recommender
from prebleexp.report import beside
from prebleexp.service import batches
from prebleexp.service.level import ServiceLevel
from tests.support import answers


def test_the_minute_after_a_loss_is_held_to_each_limit_by_itself() -> None:
    """It was held to all limits at once, so that two more GPUs were said to be needed."""
    happen = "faults.happen=[{at_s: 40, gpu: 0, event: down}]"
    lines = ["gpus=2", "rps=20", "duration_s=120", "policy=lor", "faults=timeline", happen, "engine=vllm"]
    cell = configure.cells([*lines, "slo.ttft_s={p95: 0.3}", "slo.tpot_s={p95: 10ms}"])[0]
    made = runs.run(cell)
    of = made.outcome
    minute = np.flatnonzero((of.due_s >= 40) & (of.due_s < 100))
    minute = minute[np.argsort(of.due_s[minute], kind="stable")]
    several = of.output_seen > 1
    each = [of.ttft_s <= 0.3, ~several | ((of.latency_s - of.ttft_s) <= 0.01 * (of.output_seen - 1))]
    shares = [float(one[minute].mean()) for one in each]
    both = float((each[0] & each[1])[minute].mean())
    assert both < min(shares) < 1
    metrics = made.metrics
    assert metrics["after_loss_attainment"] == both
    assert metrics["after_loss_margin"] == min(shares) - 0.95
    ends = [batches.between(one[minute]) for one in each]
    assert metrics["after_loss_margin_low"] == min(one.low for one in ends if one) - 0.95
    assert metrics["after_loss_margin_high"] == min(one.high for one in ends if one) - 0.95


def test_a_plan_holds_that_minute_to_the_measure_of_its_answer() -> None:
    """Each of two limits is kept for 96 %, both at once for 94 %."""
    base = configure.cells(["rps=12", "gpus=2", "hardware/gpu=h100", "slo.ttft_s=0.5", "slo.target=0.9"])[0]
    of = Planned("lor", {"policy": "lor"}, Contender(base, "gpus"), answers.answer(2))
    minute = {"after_loss_attainment": 0.94, "after_loss_margin": 0.96 - 0.95, "due_requests": 500}
    minute |= {"after_loss_attainment_low": 0.9, "after_loss_attainment_high": 0.95}
    minute |= {"after_loss_margin_low": 0.93 - 0.95, "after_loss_margin_high": 0.98 - 0.95}
    whole = {"slo_attainment": 0.99, "slo_margin": 0.04, "offered_per_s": 5.0}

    def held(**limits: object) -> tuple[float, Lost, str]:
        cell = replace(of.contender.cell, slo=ServiceLevel(**limits))  # type: ignore[arg-type]
        one = replace(of, contender=replace(of.contender, cell=cell))
        contender, first = bereft(one, 1)
        lost = contender.lost([first], [minute | whole])
        assert lost is not None
        said = beside.loss(beside.Beside(one, 2, {}, *[None] * 6, lost, None, ()))
        return contender.sample(minute | whole).kept, lost, said[-1]

    p95 = {"p95": 1.0}
    kept, lost, said = held(ttft_s=p95, tpot_s=p95)
    assert (kept, lost.kept, lost.ends) == (pytest.approx(0.96), pytest.approx(0.96), pytest.approx((0.93, 0.98)))
    assert "96.0 % (93.0 % to 98.0 %) of the" in said
    assert said.endswith(
        "requests of the minute after are within the worst limit where there were 3 H100, which keeps the promise."
    )
    kept, lost, said = held(ttft_s=1.0, tpot_s=1.0, target=0.95)
    assert (kept, lost.kept) == (0.94, pytest.approx(0.94))
    assert said.endswith("are within all limits where there were 3 H100, which breaks the promise.")
    kept, lost, said = held(ttft_s={"p50": 0.5, "p95": 1.0})
    assert (kept, lost.kept) == (pytest.approx(0.01), pytest.approx(0.01))
    assert said.startswith("If 1 H100 is lost, +1.0 (−2.0 to +3.0) points is the margin of the")


def test_a_share_that_misses_the_target_is_not_said_to_reach_it() -> None:
    """414 of 436 were "95.0 %" of a promise of 95 %, and not enough."""
    to_keep = ToKeep.of(ServiceLevel(ttft_s=1.0, target=0.95))
    assert [to_keep.said(one) for one in (414 / 436, 0.95, 0.9503, 0.94, 0.949999, 0.9996, 1.0)] == [
        *("94.95 %", "95.0 %", "95.0 %", "94.0 %", "94.9999 %", "99.9 %", "100.0 %")
    ]
    assert ToKeep.of(ServiceLevel(ttft_s=1.0, target=0.9995)).said(0.99952) == "99.95 %"
    assert to_keep.said(414 / 436, 0.004) == "94.95 ± 0.40 %"
    margin = ToKeep.of(ServiceLevel(ttft_s={"p50": 0.5, "p95": 1.0}))  # type: ignore[arg-type]
    assert [margin.said(one) for one in (0.012, -0.0004, 0.0, 1.0)] == ["+1.2", "−0.04", "+0.0", "+100.0"]
    assert margin.verdict(-0.0004) == "breaks the promise by 0.04 points"
    assert to_keep.verdict(414 / 436).startswith("breaks the promise: 94.95 % of requests")


# ---------------------------------------------------------------- recommendations
def test_a_recommendation_shows_what_it_judges_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its column "kept" was of all limits at once: 94.6 % of a promise of 95 % that was kept."""
    lines = ["rps=8", "gpus=2", "hardware/gpu=h100", "policy=lor", "slo.ttft_s={p95: 1}", "slo.tpot_s={p95: 0.05}"]
    cell = configure.cells(lines)[0]
    design = Design({"gpu": "h100", "tensor_parallel": 1, "roles": "whole", "policy": "lor"}, cell, 2.5, 8)
    metrics = [{"slo_attainment": 0.946, "slo_margin": 0.012, "due_requests": 500, "ttft_p95_s": 0.7}]
    found = [SimpleNamespace(metrics=one) for one in metrics]
    point = Recommender._point(cast(Recommender, None), design, 2, found)  # type: ignore[arg-type]
    assert point.keeps
    one = Candidate(design, answers.answer(2, target=0.95), point)
    column = table.heads([one]).index("worst limit")
    assert table.lines([one], [one])[0][column] == "96.2 %"
    monkeypatch.setattr(words, "sentence", lambda made: "To keep it, buy it.")
    made = SimpleNamespace(candidates=[one], points=[point])
    shown = page.figure(made).data.rows  # type: ignore[arg-type]
    assert ("Share of requests within the worst limit, %", point.name, 5.0, pytest.approx(0.962)) == shown[0][:4]
    assert one.row()["kept"] == pytest.approx(0.962)


@pytest.mark.parametrize("command", [["plan"], ["recommend", "price_per_gpu_hour=2"]])
def test_a_target_beside_limits_that_have_shares_is_refused(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was ignored without a word."""
    monkeypatch.chdir(tmp_path)
    given = [*command, "rps=8", "policy=lor", "hardware/gpu=h100", "slo.ttft_s={p95: 1}", "slo.target=0.99"]
    assert main(given) == 2
    said = (
        "slo.target=0.99 does nothing here: each limit has a share of its own; say 'slo.ttft_s={p99: …}' in its place"
    )
    assert said in capsys.readouterr().err
    refuse_target([ToKeep(ServiceLevel(ttft_s={"p95": 1.0}, tpot_s=0.1, target=0.9))])  # type: ignore[arg-type]


@pytest.mark.slow
def test_what_a_plan_ran_besides_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs that had lost a GPU, or had 1.2 times the load, were in the average."""
    monkeypatch.chdir(tmp_path)
    model = ["hardware/gpu=h100", "hardware/model=llama_3_1_8b", "engine=vllm", "slo.ttft_s=0.3", "slo.target=0.9"]
    few = ["requests=300", "seeds=2", "most_seeds=2", "tol=0.3", "report=none"]
    assert main(["plan", "rps=60", "policy=lor,random", *model, *few, "sweep.name=mine"]) == 0
    capsys.readouterr()
    assert main(["compare", "lor", "random", "sweep=mine", "output=json", "report=none"]) == 0
    out, err = capsys.readouterr()
    cells = json.loads(out)["cells"]
    assert cells
    assert {*cells[0]} & {"faults", "faults.happen", "rps"} == set(), "numbers of GPUs alone tell them apart"
    of = "from results where sweep = 'mine' and metric = 'slo_attainment' group by all"
    assert main(["sql", f"select policy, gpus, duration_s, count(*) as n {of}", "output=json"]) == 0
    assert {row["n"] for row in json.loads(capsys.readouterr().out)} == {1}, "one row a cell"
    assert re.search(r"of the \d+ runs of mine, which is a search, \d+ are left out: those for headroom", err)


def test_a_target_in_a_sweeps_own_file_may_be_for_other_limits() -> None:
    part = SimpleNamespace(overrides=["gpus=2", "slo.target=0.9"], params={})
    multirun = cast(Multirun, SimpleNamespace(settings=SimpleNamespace(plans=Plans("lor"), parts=[part])))
    assert not asked_by(multirun, ["slo.ttft_s={p95: 1}"]).target_given
    assert asked_by(multirun, ["slo.ttft_s={p95: 1}", "slo.target=0.9"]).target_given
