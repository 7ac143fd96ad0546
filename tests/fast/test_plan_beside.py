"""What a plan says besides its answer: numbers against runs of one's own, names, sentences and caveats by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import prebleexp
from prebleexp.__main__ import main
from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.faults.timeline import Timeline
from prebleexp.launch import configure, plan_progress
from prebleexp.launch.narrow import narrowed
from prebleexp.planning import contender_names
from prebleexp.planning.answer import Alone, Answer, Spot, Verdict
from prebleexp.planning.beside import Grown, beyond, strained
from prebleexp.planning.contender import Contender
from prebleexp.planning.loss import Bereft, Lost, bereft
from prebleexp.planning.planned import Planned
from prebleexp.planning.prices import Prices
from prebleexp.planning.trials import Bracket
from prebleexp.recommending import words
from prebleexp.report import beside, contenders, monthly, plan_bars, planned
from prebleexp.report.crowded import crowded
from prebleexp.report.plan_figure import _apart
from tests.support import answers
from tests.support.pages.parsed import Page

MADE = ("engine=vllm", "hardware/gpu=h100", "hardware/model=llama_3_1_8b", "hardware.tensor_parallel=2")
PROMISE = ("slo.ttft_s=0.3", "slo.tpot_s=30ms", "slo.target=0.9")
PLAN = ("requests=600", "seeds=3", "most_seeds=3", "tol=0.2")
AFTER_LOSS = "after_loss_attainment"


# ---------------------------------------------------------------- numbers against runs of one's own
@pytest.mark.slow
@pytest.mark.parametrize("searched", ["gpus", "rps"])
def test_what_is_said_besides_is_what_runs_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, searched: str) -> None:
    monkeypatch.chdir(tmp_path)
    given = "rps=600" if searched == "gpus" else "gpus=4"
    made = prebleexp.plan(given, *MADE, *PROMISE, policy="lor", requests=600, seeds=3, most_seeds=3, tol=0.2)
    of, (best,) = made.beside, made.found
    assert of is not None
    base = configure.cells([given, "policy=lor", *MADE, *PROMISE])[0]
    gpus, rps = int(best.gpus or 0), float(best.load or 0)
    assert gpus > 2

    def mean(metric: str, gpus: int, rps: float, requests: int, down_s: float | None = None) -> float:
        faults = (
            Timeline(detect_ms=1000, happen=({"at_s": down_s, "gpu": 0, "event": "down"},)) if down_s else base.faults
        )
        cells = [
            replace(base, gpus=gpus, rps=rps, duration_s=requests / rps, seed=seed, faults=faults) for seed in range(3)
        ]
        return float(np.mean([runs.run(cell).metrics[metric] for cell in cells]))

    requests = best.answer.requests
    at = rps if searched == "gpus" else of.size
    assert of.size == (gpus if searched == "gpus" else best.answer.bracket and best.answer.bracket.low)
    assert of.seen["ttft_p95_s"][0] == pytest.approx(mean("ttft_p95_s", gpus, at, requests))
    assert of.grown is not None
    assert of.grown[0] == pytest.approx(mean("slo_attainment", gpus, float(f"{1.2 * rps:.4g}"), requests))
    long = max(requests, int(np.ceil(rps * 180)))
    down_s = float(f"{long / rps / 2:.6g}")
    assert of.lost is not None
    assert of.lost[0] == pytest.approx(mean("after_loss_attainment", gpus, rps, long, down_s))
    if searched == "gpus":
        assert of.enough is not None
        enough = int(of.enough.likely or 0)
        assert mean("after_loss_attainment", enough, rps, long, down_s) >= 0.9
        assert mean("after_loss_attainment", enough - 2, rps, long, down_s) < 0.9
        assert gpus <= enough <= (of.enough.size or 0)
        sure = int(of.enough.size or 0)
        more = f" (N + {(sure - gpus) // 2})" if sure > gpus else "is kept in that minute, too"
        assert any(more in line for line in beside.loss(of))
    else:
        assert of.enough is None
    assert of.seen["slo_attainment"][0] == pytest.approx(mean("slo_attainment", gpus, at, requests))
    assert of.seen["itl_p95_s"][0] == pytest.approx(mean("itl_p95_s", gpus, at, requests))
    assert [row[0] for row in beside.seen(of)][2:] == [
        "inter-token latency",
        "latency",
        "requests within all limits",
    ]
    assert of.off is not None
    assert of.slower is not None and of.faster is not None  # noqa: PT018
    sizes = [of.faster.size or 0, best.answer.size or 0, of.slower.size or 0]
    assert sizes == sorted(sizes, reverse=searched == "rps")
    slow = replace(base, hardware=base.hardware.slowed(1 + of.off))
    again = Contender(slow, searched)
    kept = [
        again.to_keep.kept(runs.run(replace(again.cell, gpus=g, rps=r, duration_s=requests / r, seed=seed)).metrics)
        for g, r in [(int(of.slower.size or 0), rps) if searched == "gpus" else (gpus, of.slower.bracket.low)]  # type: ignore[union-attr]
        for seed in range(3)
    ]
    assert np.mean(kept) >= 0.9
    if searched == "gpus":
        assert of.most is not None
        assert (of.most.size or 0) >= rps * 0.95


def test_how_long_a_log_says_that_requests_took_stands_beside_what_they_take_here(tmp_path: Path) -> None:
    usual = {"prompt_tokens": 9, "completion_tokens": 100, "request_duration_ms": 2000}
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"ts": float(i), **usual}) + "\n" for i in range(40)))
    (cell,) = configure.cells(["workload=request_log", f"workload.path={path}", *MADE, *PROMISE, "gpus=2"])
    seen = {"latency_mean_s": (0.512, None), "latency_p95_s": (1.5, None)}
    of = beside.Beside(Planned("lor", {}, Contender(cell, "gpus"), answer(2)), 2, seen, *[None] * 8, ())
    said = beside.believe(of)
    assert (
        "The log's own latency, request_duration_ms, is 2.00 s (mean) and 2.00 s (p95); here it is 512 ms and 1.50 s. "
        "What it was served with, and how busy that was, the log does not say."
    ) in said
    assert not any("The log's own" in one for one in beside.believe(replace(of, seen={})))
    times = [f"2026-11-24 13:00:{one}" for one in ("01", "01.250", "03")]
    litellm = dict(zip(("startTime", "completionStartTime", "endTime"), times, strict=True)) | usual
    litellm.pop("request_duration_ms")
    path.write_text("".join(json.dumps(litellm) + "\n" for _ in range(40)))
    (cell,) = configure.cells(["workload=request_log", f"workload.path={path}", *MADE, *PROMISE, "gpus=2"])
    seen |= {"ttft_mean_s": (0.1, None), "ttft_p95_s": (0.3, None)}
    assert (
        "The log's own latency, startTime to endTime, is 2.00 s (mean) and 2.00 s (p95); here it is 512 ms and 1.50 s. "
        "The log's own time to first token, startTime to completionStartTime, is 250 ms (mean) and 250 ms (p95); here "
        "it is 100 ms and 300 ms. What it was served with, and how busy that was, the log does not say."
    ) in beside.believe(replace(of, of=Planned("lor", {}, Contender(cell, "gpus"), answer(2)), seen=seen))


def test_steps_are_slower_by_just_so_much() -> None:
    """Between a lone request's first and last token there are steps alone."""
    base = configure.cells(["gpus=2", "rps=0.2", "duration_s=20", *MADE])[0]
    slow = replace(base, hardware=base.hardware.slowed(1.25))
    times = []
    for cell in (base, slow):
        made = runs.run(cell).outcome
        times.append(float(made.latency_s[0] - made.ttft_s[0]))
    assert times[1] == pytest.approx(1.25 * times[0], rel=1e-9)


def test_attainment_after_a_loss_is_of_its_minute() -> None:
    happen = "faults.happen=[{at_s: 40, gpu: 0, event: down}]"
    lines = ["gpus=2", "rps=20", "duration_s=120", "policy=lor", "faults=timeline", happen, "slo.ttft_s=0.3"]
    made = runs.run(configure.cells([*lines, "slo.target=0.9", "engine=vllm"])[0])
    due_s = made.outcome.due_s
    minute = (due_s >= 40) & (due_s < 100)
    good = made.outcome.ttft_s <= 0.3
    assert made.metrics["after_loss_attainment"] == good[minute].mean()
    assert runs.run(configure.cells(["gpus=2", "rps=2", "slo.ttft_s=1"])[0]).metrics["after_loss_attainment"] is None


# ---------------------------------------------------------------- names
def test_contenders_are_called_what_they_differ_by() -> None:
    def named(*jobs: list[str], axes: list[str]) -> list[str]:
        cells = [configure.cells([*job, "slo.ttft_s=1"])[0] for job in jobs]
        return contender_names.names(contender_names.places(cells, axes))

    assert named(["policy=lor"], axes=["policy"]) == ["lor"]
    assert named(["policy=lor"], ["policy=e2"], axes=["policy"]) == ["lor", "e2"]
    of = [[f"hardware.tensor_parallel={each}", *MADE[:3]] for each in (1, 2)]
    assert named(*of, axes=["hardware.tensor_parallel"]) == [f"tensor_parallel={each}" for each in (1, 2)]
    split = "cluster.groups=[{{gpus: {},role: prefill}},{{gpus: {},role: decode}}]"
    clusters = [[split.format(1, 2)], [split.format(2, 1)], ["cluster.groups=[{gpus: 3}]"]]
    found = [["policy=lor", *MADE[:3], *one] for one in clusters]
    assert named(*found, axes=["cluster.groups"]) == ["1P 2D", "2P 1D", "3 whole"]


# ---------------------------------------------------------------- sentences and caveats, by hand
def answer(size: float, likely: float | None = None, **changed: object) -> Answer:
    bracket = Bracket(size - 1, size, (0.89,) * 4, (0.93,) * 4)
    return answers.answer(size, **{"likely": size if likely is None else likely, "bracket": bracket} | changed)


def found(of: dict[str, Answer], rps: float = 12) -> list[Planned]:
    cell = configure.cells([f"rps={rps}", *MADE[:3], "gpus=2", "slo.ttft_s=0.5", "slo.target=0.9"])[0]
    return [Planned(name, {"policy": name}, Contender(cell, "gpus"), one) for name, one in of.items()]


def test_who_needs_as_many_is_said_once() -> None:
    """It was: 2 GPUs with llmd; 2 GPUs with vllm_cache_aware; 2 GPUs with e2, and 1 more are in the table; and who of
    them cannot be told apart."""
    said = planned.sentence(found(dict.fromkeys(("lor", "e2", "llmd", "vllm_cache_aware"), answer(2))))
    assert said == "To keep 90 % of requests within ttft 0.5 s, 12 requests/s need 2 H100 with all 4 routers."


def test_the_interval_of_a_recording_is_in_the_sentence_of_those_that_need_as_many_too(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f'{{"timestamp": {i}, "input_length": 9, "output_length": 2}}\n' for i in range(9)))
    ends = {"low": 2.0, "high": 3.0, "alone": Alone(0.96, (0.9, 0.98), 20, 0.1)}
    alike = {"lor": answer(2, **ends), "llmd": answer(2, **ends | {"high": None}), "e2": answer(3, **ends)}
    cell = configure.cells(
        ["workload=mooncake", f"workload.path={path}", *MADE[:3], "slo.ttft_s=0.5", "slo.target=0.9"]
    )[0]
    of = [Planned(name, {"policy": name}, Contender(cell, "gpus"), one) for name, one in alike.items()]
    said = planned.sentence(of)
    assert "2 H100 with lor (2 to 3 for others like it) and llmd (2 or more for others like it); 3 H100 with e2" in said
    ends = [re.search(r"2 \([^)]*\)", line) for line in figure_texts(of)]
    assert [one and one.group() for one in ends[:2]] == ["2 (2 to 3)", "2 (2 or more)"], "the figure says the same"


def figure_texts(of: list[Planned]) -> list[str]:
    """What stands beside the bars."""
    return [plan_bars.said(one) for one in of]


def test_of_one_replica_it_is_said_that_routers_were_not_tested() -> None:
    """They all do the same there, and "with lor and llmd" was read as a test of both."""
    cell = configure.cells(["rps=1", *MADE[:3], "gpus=1", "slo.ttft_s=0.5", "slo.target=0.9"])[0]
    one = replace(answer(1), bracket=None)
    alone = [Planned(name, {"policy": name}, Contender(cell, "gpus"), one) for name in ("lor", "llmd")]
    said = planned.sentence(alone)
    assert said.endswith(
        "One replica leaves nothing to route, so lor and llmd do the same: which is better was not tested."
    )
    assert "nothing to route" not in planned.sentence(alone[:1])
    assert "nothing to route" not in planned.sentence(found({"lor": answer(2), "llmd": answer(2)}))


def test_what_step_times_do_where_no_number_is_enough_is_a_sentence() -> None:
    """It was "2 to no number H100 if steps are 9 % slower or faster"."""
    one = found({"lor": answer(2)})[0]
    never = replace(answer(2), size=None, verdict=Verdict.NEVER, every=64)
    of = beside.Beside(one, 2, {}, 0.09, never, answer(2), *[None] * 4, None, (), "")
    assert beside.believe(of)[-1] == (
        "No number of GPUs up to 64 is enough if steps are 9 % slower than the model says; 2 H100 if steps are 9 % "
        "faster."
    )
    same = replace(of, slower=answer(2))
    (a100,) = configure.cells(["hardware/gpu=a100", "hardware/model=llama_3_1_8b"])
    unmeasured = replace(one, contender=replace(one.contender, cell=a100))
    assert beside.believe(replace(same, of=unmeasured, off=0.41))[-1] == (
        "These 41 % are the known error of step times (p90) of other models, each left out of the fit, as none was "
        "measured here."
    )
    assert beside.believe(same)[-1] == "Still 2 H100 if steps are 9 % slower or faster than the model says."


def test_who_is_alone_in_the_table_is_in_it() -> None:
    said = planned.sentence(found({f"r{gpus}": answer(gpus) for gpus in range(2, 6)}))
    assert said.endswith("4 H100 with r4, and 1 more is in the table.")


def test_steps_beyond_what_was_measured_are_said_before_how_well_it_is_known() -> None:
    one = found({"lor": answer(2)})[0]
    measured = one.cell.hardware.domain.requests
    runs = [{"peak_running": measured * count, "peak_context_tokens": 5, "prompt_tokens_max": 5} for count in (1, 3)]
    beyond_it = beyond(one.cell, runs)
    assert beyond_it.startswith("1 of 2 runs; the farthest: a step made a token of")
    of = beside.Beside(one, 2, {}, *[None] * 6, None, None, (), beyond_it)
    first, *_ = beside.believe(of)
    assert first == f"Beyond what was measured, where step times are extrapolated: {beyond_it}."
    assert beyond(one.cell, runs[:1]) == ""


def test_what_does_not_fit_is_left_out_as_long_as_there_is_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    of = ["plan", "rps=7", *MADE[:2], "hardware/model=llama_3_1_70b", "slo.ttft_s=1", "slo.target=0.9", "--dry"]
    assert main([*of, "hardware.tensor_parallel=1,2", "policy=lor,e2"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["lor", "e2", "besides"]
    assert err.startswith("left out, 2 contenders: llama-3.1-70b in bf16 does not fit on 1 h100")
    assert main([*of, "hardware.tensor_parallel=1", "policy=lor,e2"]) == 2
    assert "llama-3.1-70b in bf16 does not fit on 1 h100" in capsys.readouterr().err


@pytest.mark.parametrize("width", [80, 120])
def test_progress_says_how_far_it_is_in_a_line_that_fits(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    what = [f"rps={38 + i} (lor hardware.tensor_parallel={i})" for i in range(6)]
    said = plan_progress.line(plan_progress.Stage(what, 1, 64), 7, 480, 96, 12, (8, 64))
    assert said.startswith("prebleexp: 1 of 7 found, 480 runs done; 12 of 96 to compute, 64 of 64 seeds: r")
    assert len(said) <= width
    said = plan_progress.line(plan_progress.Stage(["rps=38 (lor)"], 0, 8, 118), 2, 2, 16, 16, (8, 64))
    assert said == "prebleexp: 0 of 2 found, 2 of about 120 runs done; 16 to compute: rps=38 (lor)"


@pytest.mark.parametrize(("width", "gone"), [(80, []), (20, ["runs"]), (12, ["GPUs", "runs"])])
def test_a_table_spares_what_there_is_no_room_for(width: int, gone: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    heads, lines, left_out = narrowed(["policy", "GPUs", "runs"], [["round_robin", "12", "120"]], ["runs", "GPUs"])
    assert left_out == gone
    assert heads == [one for one in ("policy", "GPUs", "runs") if one not in gone]
    assert [len(line) for line in lines] == [len(heads)]


def test_money_is_in_the_sentence_where_there_are_prices() -> None:
    (one,) = found({"lor": answer(2)})
    priced = replace(one, prices=Prices({"h100": 2.5}))
    assert planned.sentence([priced]).endswith("12 requests/s need 2 H100 at 5.00 an hour with lor.")
    assert monthly.said([priced]) == ["at 730 hours a month, 5.00 an hour are 3,650"]
    assert monthly.said([one]) == []
    (line,) = planned.lines([priced])
    assert line[planned.heads([priced]).index("price/h")] == "5.00"


def test_contenders_of_several_loads_are_not_compared() -> None:
    both = found({"rps=12": answer(2)}) + found({"rps=14.4": answer(3)}, 14.4)
    said = planned.sentence(both)
    assert said.startswith("To keep 90 % of requests within ttft 0.5 s, the load needs ")
    assert "times" not in said
    assert "apart" not in said


def test_a_caveat_is_there_once_with_those_that_it_is_of() -> None:
    few = {name: answer(2, misses=misses, grows=0.02) for name, misses in (("lor", 20.0), ("e2", 37.0))}
    said = planned.warnings(found(few | {"llmd": answer(3)}))
    assert len(said) == 2
    assert said[0].startswith("with lor and e2, no more than 20 to 37 requests of a run miss")
    assert said[1].startswith("with lor and e2, requests in the system still grow there, by 2.0 % of the arrivals")


def test_limits_in_the_wrong_unit_are_among_the_caveats() -> None:
    cell = configure.cells(["rps=12", *MADE[:3], "slo.ttft_s=500", "slo.target=0.9"])[0]
    (said,) = planned.warnings([Planned("lor", {"policy": "lor"}, Contender(cell, "gpus"), answer(2))])
    assert "if milliseconds are meant, say slo.ttft_s=500ms" in said


def test_a_log_whose_prompts_share_nothing_is_a_caveat_of_plans_and_recommendations(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    row = {"session_id": "a", "prompt_tokens": 100, "cached_tokens": 50, "completion_tokens": 9}
    log.write_text("".join(json.dumps({"timestamp": at} | row) + "\n" for at in range(3)))
    asked = ["workload=request_log", f"workload.path={log}", *MADE[:3], "slo.ttft_s=500ms", "slo.target=0.9"]

    def said(*more: str) -> list[str]:
        cell = configure.cells([*asked, *more])[0]
        of = [Planned(name, {"policy": name}, Contender(cell, "gpus"), answer(2)) for name in ("lor", "e2")]
        return [one for one in planned.warnings(of) if "share nothing" in one]

    (one,) = said()
    assert one.startswith("here prompts share nothing, though the recorder's cache found 50.0% of their tokens and 1 ")
    assert "routers that follow prefixes, have nothing to find; workload.growth=accumulate" in one
    assert not said("workload.growth=accumulate")
    cell = configure.cells(asked)[0]
    design = SimpleNamespace(model="", at={"gpu": "h100"}, cell=cell)
    point = SimpleNamespace(beyond="")
    best = SimpleNamespace(cell=cell, twins=(), design=design, ends=(1.0, 1.0), price=1.0, point=point)
    models = SimpleNamespace(models=("",), left_out=(), designs=[design])
    made = SimpleNamespace(candidates=[best], space=models, failures={}, strain=None)
    assert words.caveats(made)[0] == f"{one[0].upper()}{one[1:]}."  # type: ignore[arg-type]


def test_ticks_are_numbers_that_were_tried_with_room_between_them() -> None:
    assert _apart([2, 4], (1.8, 4.4)) == (2, 4)
    ticks = _apart(list(range(80, 100)), (40.0, 100.0))
    assert len(ticks) <= 10
    assert set(ticks) <= set(range(80, 100))
    assert all(b / a > 1.09 for a, b in pairwise(ticks))


# ---------------------------------------------------------------- the command and its page
@pytest.mark.slow
def test_a_page_says_all_of_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "rps=600", *MADE, *PROMISE, "policy=lor,e2", *PLAN]) == 0
    out, err = capsys.readouterr()
    assert "What will be seen with " in out
    assert {"p50", "p95", "p99"} <= set(out.split())
    for said in ("\nStep times: ", " slower or faster than the model says.", "Holds to ", "is lost, "):
        assert said in out, said
    assert out.splitlines()[-1].count(". ") <= 2, "one sentence, and comparisons"
    folder = next((tmp_path / "reports").glob("plan-*"))
    page = Page((folder / "index.html").read_text(encoding="utf-8"))
    for said in (
        "GPUs that each needs",
        "What will be seen with",
        "How far to believe it",
        "Headroom",
        "The loss of a GPU",
        "runs of the search",
    ):
        assert said in page.text, said
    for line in err.splitlines():
        if line.startswith("prebleexp: With "):
            assert page.text.count(line.removeprefix("prebleexp: ")) == 1
    rows = (folder / "figures" / "answers.csv").read_text().splitlines()
    assert rows[0] == "contender,gpus,low,high,verdict"
    assert len(rows) == 3
    assert main(["plan", "rps=600", *MADE, *PROMISE, "policy=lor,e2", *PLAN, "--dry"]) == 0
    assert "all that this plan needs is in the cache" in capsys.readouterr().err
    assert main(["plan", "rps=600", *MADE, *PROMISE, "policy=lor,e2", *PLAN, "answer_only=true"]) == 0
    out, err = capsys.readouterr()
    assert "What will be seen with " not in out
    assert ", all from the cache" in err
    assert "Holds to " not in out + err
    assert "is lost" not in out + err


@pytest.mark.slow
def test_what_cannot_be_said_is_said_to_be_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One replica has none to lose; and there is no figure of how far a table of one measured GPU is off."""
    monkeypatch.chdir(tmp_path)
    old = ("engine=sglang_2024", "hardware=a6000_mistral_7b")
    limits = ["slo.ttft_s=1", "slo.target=0.9"]
    made = prebleexp.plan("gpus=1", "policy=lor", *old, *limits, requests=300, seeds=2, most_seeds=2, tol=0.3)
    of = made.beside
    assert of is not None
    assert (of.off, of.slower, of.lost) == (None, None, None)
    said = json.dumps(beside.sections(of))
    assert "There is one replica: without it the service is down." in said
    assert "there is no figure of how far they may be" in said
    assert of.spare is not None
    assert all(one[1:] in made._repr_html_() for one in made.caveats)


def test_more_gpus_do_not_help_is_no_word_of_idle_ones() -> None:
    """A router that sends all to the owner of a shared prefix leaves GPUs idle: limits may be wide."""
    table = (Spot(7.0, 0.3, None, (0.3,)), Spot(4096.0, 0.62, None, (0.62,)))
    never = answer(2, verdict=Verdict.NEVER, curve=table)
    said = planned.sentence(found({"lor": answer(2), "sglang_cache_aware": never}))
    assert "no number is enough (4,096 GPUs keep 62.0 %) with sglang_cache_aware" in said
    most = found({"lor": answer(2), "e2": answer(3), "random": answer(4), "sglang_cache_aware": never})
    assert "no number of GPUs is enough with sglang_cache_aware: 4,096 GPUs keep 62.0 %" in planned.warnings(most)
    spread = replace(never, curve=(Spot(2.0, 0.88, None, (0.88,)), *table), every=64, rise=0.3)
    said = planned.sentence(found({"lor": answer(2), "sglang_cache_aware": spread}))
    assert "no number up to 64 is enough (4,096 GPUs keep 62.0 %, and at best 2 GPUs keep 88.0 %) with sglang" in said
    assert not any("the answer" in line for line in planned.warnings(found({"lor": replace(spread, size=None)}))), (
        "it has none"
    )
    risen = planned.warnings(found({"lor": replace(answer(2), rise=0.079)}))
    assert any(line.startswith("with lor, more GPUs kept up to 7.9 points less") for line in risen)
    assert "idle" not in said
    assert planned.sentence(found({"lor": never})).startswith("No number of GPUs keeps 90 % of requests within")


def test_what_contenders_share_is_said_once() -> None:
    first = found({"lor": answer(2)})[0]
    routers = ["lor", "e2", "llmd", "random"]
    every = [
        replace(first, name=f"{router} rps={rps}", at={"policy": router, "rps": rps})
        for rps in (1, 2)
        for router in routers
    ]
    assert contenders.named(every[:4], every) == "all 4 routers (rps=1)"
    assert contenders.named([*every[:2], every[5]], every) == "lor and e2 (both rps=1) and e2 rps=2"
    assert contenders.named(every, every) == "all 8 contenders"
    assert contenders.named(every[:3], every) == "lor, e2 and llmd (all rps=1)"
    alone = [replace(one, name=str(one.at["policy"]), at={"policy": one.at["policy"]}) for one in every[:4]]
    assert (contenders.named(alone, alone), contenders.named(alone[:2], alone)) == ("all 4 routers", "lor and e2")
    split = replace(first, name="1P 2D", at={"cluster.groups": "…"})
    assert contenders.named([split], [split]) == "1P 2D"


def of_kinds() -> list[Planned]:
    """Two routers on two kinds of GPU, in replicas of 1 and of 2: those of 2 need as many GPUs."""
    made = []
    for kind in ("h100", "h200"):
        for each in (1, 2):
            of = ["rps=12", MADE[0], f"hardware/gpu={kind}", MADE[2], f"hardware.tensor_parallel={each}"]
            one = Contender(configure.cells([*of, "slo.ttft_s=0.5", "slo.target=0.9"])[0], "gpus")
            at = {"hardware.gpu": kind, "hardware.tensor_parallel": each}
            made += [
                Planned(f"{router} gpu={kind} tensor_parallel={each}", {"policy": router} | at, one, answer(4))
                for router in ("lor", "llmd")
            ]
    return made


def test_contenders_are_called_by_the_value_that_they_have_in_common() -> None:
    """It was: lor and llmd (both hardware.gpu=h100 hardware.tensor_parallel=2) and lor and llmd (both …)."""
    every = of_kinds()
    large = [one for one in every if one.at["hardware.tensor_parallel"] == 2]
    assert contenders.named(large, every) == "lor and llmd (all 4 with tensor_parallel=2)"
    assert contenders.named(large[::2], every) == "lor (both with tensor_parallel=2)"
    assert contenders.named(every[:2], every) == "lor and llmd (both gpu=h100 tensor_parallel=1)"
    assert contenders.named([every[0], every[3], every[6]], every) == (
        "lor gpu=h100 tensor_parallel=1, llmd gpu=h100 tensor_parallel=2 and lor gpu=h200 tensor_parallel=2"
    ), "which have nothing in common"
    assert contenders.named([*every[::2], every[1]], every) == "lor everywhere and llmd gpu=h100 tensor_parallel=1"


def test_a_number_of_gpus_says_what_their_replicas_are_once() -> None:
    """It was: 4 H100 (2 replicas of 2) with llmd hardware.gpu=h100 hardware.tensor_parallel=2."""
    said = planned.sentence(of_kinds())
    known = "with lor and llmd (step times: not measured itself, other models were)"
    assert f"4 H100 {known}; 4 H100 (2 replicas of 2) {known}; 4 H200 {known}" in said
    assert "tensor_parallel" not in said


def test_weights_that_fill_a_gpu_call_for_larger_replicas() -> None:
    model = ["rps=7", *MADE[:2], "hardware/model=llama_3_1_70b", "hardware.precision=fp8", "slo.ttft_s=1"]
    one, two = (configure.cells([*model, f"hardware.tensor_parallel={each}"])[0] for each in (1, 2))
    each = [Planned(str(at), {}, Contender(cell, "gpus"), answer(2)) for at, cell in ((1, one), (2, two))]
    (said,) = crowded(each[:1])
    assert said.startswith("weights take 85.5 % of each GPU's memory with hardware.tensor_parallel=1")
    assert said.endswith("hardware.tensor_parallel=1,2,4 compares them")
    assert crowded(each) == crowded(each[1:]) == []
    roomy = configure.cells([*model, "hardware/gpu=b200"])[0]
    kinds = [
        Planned(gpu, {"hardware/gpu": gpu}, Contender(cell, "gpus"), answer(2))
        for gpu, cell in (("h100", one), ("b200", roomy))
    ]
    (said,) = crowded(kinds)
    assert said.startswith("weights take 85.5 % of the memory of each H100 with hardware.tensor_parallel=1")


def test_a_kv_cache_in_fp8_is_a_caveat_as_engines_keep_it_in_bf16() -> None:
    """FP8 weights bring it, as in benchmarks; a plan for 4 GPUs needed 6 with a cache as vLLM has it by itself."""

    def cell(*more: str) -> Cell:
        own = ["rps=7", *MADE[:2], "hardware/model=llama_3_1_70b", "hardware.tensor_parallel=2", "slo.ttft_s=1"]
        return configure.cells([*own, "slo.target=0.9", *more])[0]

    def said(**cells: Cell) -> list[str]:
        of = [Planned(name, {"policy": name}, Contender(one, "gpus"), answer(4)) for name, one in cells.items()]
        return [one for one in planned.warnings(of) if "KV cache" in one]

    both, fp8 = cell("hardware.precision=fp8"), "hardware.precision=fp8"
    words = (
        "weights in FP8; KV cache in FP8; an engine left to itself keeps the cache in BF16, unless the checkpoint says "
        "FP8: start vLLM with --kv-cache-dtype fp8, or take hardware.kv_precision=bf16, with half as many tokens"
    )
    assert said(lor=both, e2=both) == [words]
    half = cell(fp8, "hardware.kv_precision=bf16")
    assert half.hardware.kv_tokens == both.hardware.kv_tokens // 2
    assert said(lor=both, e2=half) == [f"with lor, {words}"]
    assert not said(lor=half)
    assert not said(lor=cell("hardware.tensor_parallel=4"))
    ampere = cell("hardware/gpu=a100", "hardware.tensor_parallel=4", "hardware.kv_precision=fp8")
    (one,) = said(lor=ampere)
    assert ": --kv-cache-dtype fp8 needs a GPU of compute capability 8.9 or more, or take hardware.kv_prec" in one


def test_a_single_replica_has_none_to_lose() -> None:
    one = found({"lor": answer(2)})[0]
    of = beside.Beside(one, 2, {}, *[None] * 6, Lost(0.98, 0.004, 336, busiest=False), None, ())
    (said,) = beside.loss(replace(of, lost=None))
    good = "of the 336 requests of the minute after are within all limits"
    assert said == f"If 1 H100 is lost, 98.0 ± 0.4 % {good} where there were 3 H100, which keeps the promise."
    (said,) = beside.loss(replace(of, lost=Lost(0.226, 0.258, 814, busiest=True, streams=3)))
    assert said.startswith(
        "If 1 H100 is lost as the busiest minute begins, 22.6 % (0.0 % to 48.4 %) of the 814 requests"
    )
    assert "of that minute in 3 streams are within all limits" in said
    of = replace(of, of=found({"lor": answer(1)})[0])
    assert beside.loss(of)[0] == "There is one replica: without it the service is down."


def never_at(every: int) -> Answer:
    return replace(answer(2), size=None, verdict=Verdict.NEVER, every=every)


def test_whom_no_number_of_gpus_helps_after_a_loss_is_said_once() -> None:
    one, *others = found({name: answer(2) for name in ("lor", "e2", "llmd", "random")})
    kept = zip(others, (never_at(64), answer(4), never_at(64)), strict=True)
    lost = Lost(0.98, 0.004, 336, busiest=False)
    of = beside.Beside(one, 2, {}, *[None] * 5, lost, lost, None, (), others=tuple(kept))
    assert beside.loss(of)[-1] == (
        "To survive such a loss, llmd takes 4 H100 (N + 2); no number of GPUs up to 64 is enough with e2 and random."
    )


def test_what_survives_a_loss_is_said_once_and_on_what_other_gpus_rest() -> None:
    """6 L40S of which nothing was measured stood beside H100 as if they were as sure."""
    one, e2, llmd, random = found({name: answer(2) for name in ("lor", "e2", "llmd", "random")})
    l40s = configure.cells(["hardware/gpu=l40s", "hardware/model=llama_3_1_8b", "slo.ttft_s=1", "rps=5"])[0]
    other = replace(llmd, name="llmd gpu=l40s", contender=Contender(l40s, "gpus"))
    lost = Lost(0.98, 0.004, 336, busiest=False)
    kept = ((other, answer(6)), (e2, answer(4)), (llmd, answer(5)), (random, answer(5)))
    of = beside.Beside(one, 2, {}, *[None] * 5, lost, lost, answer(4), (), others=kept)
    assert beside.loss(of)[-1] == (
        "To survive such a loss, e2 takes the same; llmd gpu=l40s takes 6 L40S (N + 4) (step times: theory only, "
        "nothing like it was measured); llmd and random take 5 H100 (N + 3)."
    )


def test_a_loss_of_a_stream_that_comes_and_goes_is_where_most_come(tmp_path: Path) -> None:
    """Two come half way; of the two minutes in which 60 come the one nearer to half way is judged."""
    arrivals = [*[i / 2 for i in range(60)], 500.0, 501.0, *[700 + i / 2 for i in range(60)], 1000.0]
    rows = [{"timestamp": round(at * 1000), "input_length": 2000, "output_length": 2} for at in arrivals]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = ["workload=mooncake", f"workload.path={path}", *MADE[:3], "gpus=2", "slo.ttft_s=1", "slo.target=0.9"]
    cell = configure.cells([*lines, "workload.load=recorded"])[0]
    one = Planned("lor", {}, Contender(cell, "gpus"), answer(2))
    contender, first = bereft(one, 0)
    lossy = contender.cell_of(first)
    assert isinstance(lossy.faults, Timeline)
    assert 700 in lossy.faults.happen[0]
    assert lossy.columns()["faults"] == "timeline"
    nowhere = {f"{AFTER_LOSS}_low": None, f"{AFTER_LOSS}_high": None}
    assert contender.lost([first], [{AFTER_LOSS: None, **nowhere}]) is None, "nothing is due in that minute"
    lost = contender.lost([first], [{AFTER_LOSS: 0.75, **nowhere}])
    assert lost is not None
    assert lost == Lost(0.75, None, 60, busiest=True)
    between = {f"{AFTER_LOSS}_low": 0.6, f"{AFTER_LOSS}_high": 0.85}
    sure = contender.lost([first], [{AFTER_LOSS: 0.75, **between}])
    assert sure is not None
    assert sure.ends == (0.6, 0.85)
    rest = {"slo_margin": None, "slo_attainment": 0.97, "slo_attainment_low": 0.9, "slo_attainment_high": 0.99}
    due = {"due_requests": 122, AFTER_LOSS: 0.95, f"{AFTER_LOSS}_low": 0.8, f"{AFTER_LOSS}_high": 0.98}
    made = contender.sample(rest | due)
    assert (made.kept, made.alone) == (0.95, (0.8, 0.98))
    spread = rest | due | {"slo_attainment": 0.85, "slo_attainment_low": 0.7, "slo_attainment_high": 0.9}
    made = contender.sample(spread)
    assert (made.kept, made.alone) == (0.85, (0.7, 0.9)), "what breaks the promise before is no N + 1"
    kept = rest | {"slo_attainment": 0.999, "slo_attainment_low": 0.997, "slo_attainment_high": 0.999}
    made = contender.sample(kept | due | {AFTER_LOSS: 1.0, f"{AFTER_LOSS}_low": 0.94, f"{AFTER_LOSS}_high": 1.0})
    assert (made.alone, made.of_both) == ((0.94, 0.999), (1.0, 0.999)), "each end is the lesser of both"
    strict = Bereft(replace(cell, slo=replace(cell.slo, target=0.95)), "gpus")
    strict.cell_of(first)
    made = strict.sample(kept | due | {AFTER_LOSS: 1.0, f"{AFTER_LOSS}_low": 0.94, f"{AFTER_LOSS}_high": 1.0})
    assert made.alone == (0.997, 0.999), "of 60 requests a share of 95 % is never sure"
    of = beside.Beside(one, 2, {}, *[None] * 5, lost, None, None, ())
    enough = replace(answer(4), low=3, high=None, alone=Alone(0.96, (0.9, 0.99), 3, 0.1, of_both=(0.96, 0.99)))
    (said,) = beside.loss(of)
    good = "75.0 % of the 60 requests of that minute are within all limits"
    assert said == f"If 1 H100 is lost as the busiest minute begins, {good}, which breaks the promise."
    grown = replace(of, grown=Grown(0.845, None, (0.8, 0.91)), more=replace(enough, alone=None))
    (said,) = beside.headroom(grown)
    kept = "it breaks the promise: 84.5 % (80.0 % to 91.0 %) of requests are within all limits"
    assert said.endswith(f"{kept}; that load takes 4 H100 (3 or more for others like it).")
    (said,) = beside.headroom(replace(grown, more=never_at(32)))
    assert said.endswith("; no number of GPUs up to 32 is enough for that load.")
    (said,) = beside.headroom(replace(grown, grown=Grown(0.95, 0.01)))
    assert said.endswith("it keeps the promise: 95.0 % of requests are within all limits.")
    (said,) = beside.loss(replace(of, lost=lost._replace(ends=(0.6, 0.85))))
    assert "75.0 % (60.0 % to 85.0 %) of the 60 requests" in said
    llmd = replace(one, name="llmd", answer=answer(3))
    never = never_at(32)
    said = beside.loss(replace(of, enough=enough, others=((llmd, replace(enough, alone=None)), (one, never))))
    ends = "96.0 % of that minute and 99.0 % of all, the lesser 90.0 % to 99.0 %; 3 or more for others like it"
    assert said[0].endswith(f"the promise is kept in that minute, too, with 4 H100 (N + 2; {ends}).")
    hard = Planned("lor", {}, strict, answer(2))
    strictly = beside.loss(replace(of, of=hard, enough=enough))
    assert strictly[0].endswith("of all, that of all 90.0 % to 99.0 %; 3 or more for others like it over all).")
    assert strictly[1] == (
        "Whether such a minute of others like it keeps 95 % cannot be told from 60 requests, however many GPUs there "
        "are: that takes 72, and none that misses."
    )
    open_ended = replace(of, enough=replace(answer(4), verdict=Verdict.AT_LEAST))
    assert beside.loss(open_ended)[0].endswith("is kept in that minute, too, with more than 4 H100 (N + 2).")
    saying = [beside.loss(replace(of, spare=lost, enough=answer(size)))[0] for size in (3, 4)]
    assert ["; with one more, 3 H100, 75.0 %;" in line for line in saying] == [False, True], "said once"
    assert said[1] == (
        "To survive such a loss, llmd takes 4 H100 (N + 1; 3 or more for others like it); "
        "no number of GPUs up to 32 is enough with lor."
    )
    (said,) = beside.loss(replace(of, lost=lost._replace(requests=2)))
    assert said.endswith("is not known: the busiest minute has 2 requests, and 50 is the least that says something.")


def test_what_the_busiest_minute_keeps_without_the_loss_stands_beside_what_it_keeps_with_it(tmp_path: Path) -> None:
    """Of the 60 requests of that minute 6 make 400 tokens, which takes longer than a second with all GPUs, too; so do
    all 40 outside it."""
    long, brief = 400, 2
    rows = [(i, long) for i in range(20)]
    rows += [(100 + i, long if i % 10 == 0 else brief) for i in range(60)]
    rows += [(200 + i, long) for i in range(20)]
    made = [{"timestamp": 1000 * at, "input_length": 100, "output_length": tokens} for at, tokens in rows]
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    whole.write_text("".join(json.dumps(row) + "\n" for row in made))
    cut.write_text("".join(json.dumps(row) + "\n" for row in made[:80]))
    lines = ["workload=mooncake", "workload.load=recorded", *MADE[:3], "gpus=2", "policy=round_robin"]

    def held(gpus: int, *level: str, path: Path = whole) -> tuple[beside.Beside, list[float]]:
        cell = configure.cells([*lines, f"workload.path={path}", *level])[0]
        of = Planned("round_robin", {}, Contender(cell, "gpus"), answer(gpus))
        counted = []

        def metrics(name: str, cells: Sequence[Cell]) -> list[Mapping[str, Any]]:
            known = [runs.run(one).metrics for one in cells]
            if name == "round_robin, the busiest minute without a loss":
                assert [one.gpus for one in cells] == [max(gpus, 2)] * 2
                counted.extend(one["due_requests"] for one in known)
            return known

        found = strained(of, 1, metrics)
        assert not found.unknown
        rest = {"off": None, "slower": None, "faster": None, "most": None, "enough": None}
        return beside.Beside(of=of, size=gpus, seen={}, **rest, **found._asdict()), counted

    for level in (["slo.latency_s=1", "slo.target=0.95"], ["slo.latency_s={p95: 1}"]):
        of, counted = held(2, *level)
        assert counted == [80, 20], "of 100 those due from the minute on, and those due after it"
        assert of.lost is not None
        assert (of.lost.requests, of.lost.unharmed) == (60, 0.9)
        assert of.lost.kept <= 0.9
        (said, *_) = beside.loss(of)
        assert "of the 60 requests of that minute are within all limits (90.0 % without the loss), which breaks" in said
        assert said.count("without the loss") == 1, "of the answer, and not of one more"
    of, counted = held(2, *level, path=cut)
    assert of.lost is not None
    assert (of.lost.unharmed, counted) == (0.9, [60, 0]), "nothing comes after it"
    (alone, said, *_) = beside.loss(held(1, *level)[0])
    assert alone == "There is one replica: without it the service is down."
    assert "are within all limits (90.0 % without the loss) where there were 2 H100, which breaks the promise" in said
    for level in (["slo.latency_s=60", "slo.target=0.5"], ["slo.latency_s={p50: 1, p95: 1}"]):
        of, counted = held(2, *level)
        assert of.lost is not None
        assert (counted, of.lost.unharmed) == ([], None), "none misses, or no share says which promise is nearest"
