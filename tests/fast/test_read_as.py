"""How a log was read, and what of that is doubtful, stands beside every answer that depends on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prebleexp.__main__ import main
from prebleexp.experiment.understood import doubted, taken_for
from prebleexp.launch import configure
from prebleexp.report.wording import as_sentence
from tests.support.pages.parsed import Page

HERE = ("engine=sglang_2024", "hardware=a6000_mistral_7b")
PROMISE = ("slo.ttft_s=2", "slo.target=0.9")
FILE = ("workload=request_log", "workload.path=log.jsonl")
LOG = (*FILE, "workload.columns={prefix: app}", "workload.prefix_tokens=200")
READ = "prebleexp: log.jsonl: 40 requests in 78 s (0.5128 requests/s); time: timestamp, "
DOUBTS = (
    "log.jsonl: timestamp is taken for when requests came; if it is when they were answered, latency_ms (median 2.5 s) "
    "earlier they came: workload.columns={end: timestamp, took: latency_ms}",
    "log.jsonl: 10 prompts are no longer than their prefix by app, and are taken for others",
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    of = {"app": "a", "output_tokens": 5}
    rows = (
        {**of, "timestamp": 2 * at, "latency_ms": 4000 * (at % 2) + 500, "input_tokens": 300 if at % 4 else 150}
        for at in range(40)
    )
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def test_a_plan_says_it_once_and_its_page_among_the_caveats(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *LOG, *HERE, *PROMISE, "policy=lor,random", "answer_only=true", "sweep.name=it"]) == 0
    err = capsys.readouterr().err
    assert err.count(READ) == 1
    page = Page((here / "reports" / "it" / "index.html").read_text(encoding="utf-8")).text
    for doubt in DOUBTS:
        assert err.count(f"prebleexp: {doubt}.") == 1
        assert page.index("To know before this is used") < page.index(f"{doubt}.")


SWEEP = f"""
# @package _global_
keep_requests: none
sweep:
  name: mine
  title: Mine
  plan: {{against: LOR, tol: 0.3, seeds: 2, most_seeds: 2, requests: 40, most_requests: 40}}
  parts:
    log:
      variant: log
      overrides: [{", ".join((*HERE, *PROMISE, *FILE))}, workload.load=window, duration_s=60,
        workload.prefix_tokens=200, "workload.columns={{prefix: app}}"]
      params: {{gpus: "1"}}
      lines: {{LOR: [policy=lor], random: [policy=random]}}
hydra:
  mode: MULTIRUN
"""


def test_a_sweep_of_plans_says_it_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "sweeps").mkdir()
    (here / "sweeps" / "mine.yaml").write_text(SWEEP)
    assert main(["+sweeps=mine", "report=none"]) == 0
    err = capsys.readouterr().err
    assert err.count(READ) == 1
    assert [err.count(f"prebleexp: {doubt}\n") for doubt in DOUBTS] == [1, 1]


def test_hindsight_says_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hindsight", *LOG, *HERE, "gpus=2", "policy=lor,round_robin", "runs=3", "metric=ttft_p99_s"]) == 0
    err = capsys.readouterr().err
    assert err.count(READ) == 1
    assert [err.count(f"prebleexp: {doubt}\n") for doubt in DOUBTS] == [1, 1]


def test_each_file_is_said_once_and_what_is_not_shared_first(here: Path) -> None:
    cells = [configure.cells([*LOG, *HERE, f"policy={name}"])[0] for name in ("lor", "e2")]
    assert [line.partition(";")[0] for line in taken_for(cells)] == [READ.removeprefix("prebleexp: ").partition(";")[0]]
    assert doubted(cells) == list(DOUBTS)
    alone = configure.cells([*FILE, *HERE])[0]
    assert doubted([alone]) == [DOUBTS[0]], "nobody says that they shared anything"
    assert not doubted(configure.cells(["gpus=2"]))
    assert not taken_for(configure.cells(["gpus=2"]))


def test_a_sentence_that_begins_with_a_name_keeps_it() -> None:
    assert as_sentence("two models were taken for one") == "Two models were taken for one."
    assert as_sentence("slo.tpot_s=50 is long") == "slo.tpot_s=50 is long."
    assert as_sentence("log.jsonl: it is odd") == "log.jsonl: it is odd."
