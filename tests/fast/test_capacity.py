"""Sweeps of plans: ratios and sentences by hand, and the command."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from prebleexp.__main__ import main
from prebleexp.launch import configure
from prebleexp.planning.answer import Verdict
from prebleexp.planning.contender import Contender
from prebleexp.planning.planned import Planned
from prebleexp.planning.trials import Bracket
from prebleexp.report import capacity
from prebleexp.report.drawings import Drawings
from tests.support.answers import answer


@pytest.fixture(scope="module")
def contender() -> Contender:
    return Contender(configure.cells(["gpus=2", "slo.ttft_s=0.5", "slo.target=0.9"])[0], "rps")


def planned(
    contender: Contender, line: str, size: float, noise: float = 0.001, verdict: Verdict = Verdict.FOUND
) -> Planned:
    """One whose seeds cross the target at `size`, on average, in a bracket of 10 %."""
    shifts = [noise * shift for shift in (-1.5, -0.5, 0.5, 1.5)]
    low, high = size / 1.05, size * 1.05
    at_low, at_high = (tuple(0.9 - math.log(at / size) + shift for shift in shifts) for at in (low, high))
    bracket = Bracket(low, high, at_low, at_high) if verdict is Verdict.FOUND else None
    found = verdict is Verdict.FOUND
    made = answer(
        size,
        verdict=verdict,
        low=size * 0.99 if found else None,
        high=size * 1.01 if found else None,
        bracket=bracket,
    )
    return Planned(f"chats: {line}", {"variant": "chats", "line": line}, contender, made)


def answers(contender: Contender) -> dict[str, list[Planned]]:
    return capacity.by_workload(
        [
            planned(contender, "LOR", 10.0),
            planned(contender, "far", 15.0),
            planned(contender, "same", 10.01, noise=0.01),
            planned(contender, "slow", 8.0),
            planned(contender, "endless", 500.0, verdict=Verdict.AT_LEAST),
        ]
    )


def test_ratios_are_of_the_loads_that_are_carried(contender: Contender) -> None:
    of = capacity.ratios(answers(contender)["chats"], "LOR")
    assert list(of) == ["far", "same", "slow"], "who has no answer has no ratio"
    assert of["far"].times == pytest.approx(1.5)
    assert of["slow"].times == pytest.approx(0.8)
    assert of["far"].low == pytest.approx(of["far"].high), "what seeds differ by is the same for both"
    assert not of["same"].is_sure


def test_a_workload_has_a_sentence_and_a_table(contender: Contender) -> None:
    found = answers(contender)
    said = capacity.sentence("chats", found["chats"], "LOR")
    assert said == (
        "On chats, where LOR carries 10.0 (9.90 to 10.1) requests/s, far carries 1.50 (1.50 to 1.50) times LOR's load; "
        "same cannot be told apart from LOR; slow, the last, carries 0.800 (0.800 to 0.800) times as much."
    )
    (finding,) = capacity.findings(found, "LOR")
    assert finding.sentences[0].startswith("To keep 90 % of requests within ttft 0.5 s: On chats")
    assert [row[0] for row in finding.effects.rows] == ["endless", "far", "same", "LOR", "slow"]
    assert finding.effects.rows[0][3] == "–"
    rows = capacity.rows(found, "LOR")
    assert [row["ratio"] for row in rows if row["line"] == "far"] == [pytest.approx(1.5)]


@pytest.mark.slow
def test_the_figure_has_a_row_for_each_router(contender: Contender) -> None:
    made = capacity.figure(answers(contender), "LOR", Drawings())
    assert [line for line, _ in made.answer.rows] == ["far", "same", "slow"]
    assert [cell.word for _, (cell,) in made.answer.rows] == ["more", "as much", "less"]
    assert made.headline.startswith("On chats, where LOR carries 10.0")
    assert (len(made.panels), made.left_out) == (1, 0)
    assert "far" in made.panels[0].svg


def test_who_cannot_keep_the_promise_on_a_workload_is_told_apart_from_who_was_not_there(contender: Contender) -> None:
    tight = replace(planned(contender, "far", 15.0, verdict=Verdict.NEVER), at={"variant": "tight", "line": "far"})
    base = replace(planned(contender, "LOR", 10.0), at={"variant": "tight", "line": "LOR"})
    made = capacity.answer(answers(contender) | capacity.by_workload([base, tight]), "LOR")
    words = {line: [cell.word for cell in cells] for line, cells in made.rows}
    assert words["far"] == ["more", "cannot be met"]
    assert words["slow"] == ["less", "not measured"]


def test_nobody_is_compared_with_a_line_that_has_no_answer(contender: Contender) -> None:
    found = capacity.by_workload(
        [planned(contender, "LOR", 5.0, verdict=Verdict.AT_MOST), planned(contender, "far", 15.0)]
    )
    said = capacity.sentence("chats", found["chats"], "LOR")
    assert said == "On chats, no router can be compared: LOR carries at most 5.00 requests/s."


SWEEP = """
# @package _global_
keep_requests: none
sweep:
  name: mine
  title: Mine
  plan: {against: LOR, tol: 0.3, seeds: 2, most_seeds: 2, requests: 500, most_requests: 500}
  parts:
    prompts:
      variant: prompts
      overrides: [slo.ttft_s=0.3, slo.target=0.9, hardware=a6000_mistral_7b, engine=sglang_2024]
      params: {gpus: "2"}
      lines: {LOR: [policy=lor], round robin: [policy=round_robin]}
    chats:
      variant: chats
      overrides: [workload=chats, duration_s=30, horizon=stop, slo.ttft_s=0.3, slo.target=0.9, hardware=a6000_mistral_7b, engine=sglang_2024]
      params: {gpus: "2"}
      lines: {LOR: [policy=lor], round robin: [policy=round_robin]}
hydra:
  mode: MULTIRUN
"""  # noqa: E501


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "mine.yaml").write_text(SWEEP)
    return tmp_path


@pytest.mark.slow
def test_a_sweep_of_plans(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each line has an answer on each workload, and a sentence says of each who carries the most."""
    assert main(["+sweeps=mine", "--dry"]) == 0
    assert "not known before the first run" in capsys.readouterr().err
    assert main(["+sweeps=mine"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["workload", "prompts", "prompts", "chats", "chats"]
    assert [line.partition(",")[0] for line in err.splitlines()[-2:]] == ["On prompts", "On chats"]
    page = (here / "reports" / "mine" / "index.html").read_text(encoding="utf-8")
    assert err.splitlines()[-1].partition(";")[0].replace("'", "&#39;") in page
    assert 'id="explorer"' in page
    assert main(["+sweeps=mine", "output=json", "report=none"]) == 0
    out, err = capsys.readouterr()
    assert "all from the cache" in err
    rows = json.loads(out)
    assert {(row["workload"], row["line"]) for row in rows} == {
        (workload, line) for workload in ("prompts", "chats") for line in ("LOR", "round robin")
    }
    assert main(["+sweeps=mine", "--dry"]) == 0
    assert "all that this plan needs is in the cache" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("against: LOR", "against: LOX", "line of part prompts in sweep.plan.against: 'LOX'"),
        ("tol: 0.3", "tol: 3", "tol=3 is not valid"),
        ("tol: 0.3", "tolerance: 3", "field of sweep.plan 'tolerance'"),
        ("seeds: 2,", "seeds: 1,", "sweep.plan.seeds=1 is not valid"),
        ('params: {gpus: "2"}', 'params: {gpus: "2,4"}', "prompts: LOR is there twice"),
        ("duration_s=30, ", "", "workload=chats: how long are its runs?"),
        ("overrides: [slo.ttft_s=0.3", "overrides: [rps=3, slo.ttft_s=0.3", "gpus and rps: both given"),
    ],
)
def test_what_is_not_valid_is_said_in_a_line(
    here: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    file = here / "sweeps" / "mine.yaml"
    file.write_text(file.read_text().replace(old, new, 1))
    assert main(["+sweeps=mine"]) == 2
    assert said in capsys.readouterr().err
