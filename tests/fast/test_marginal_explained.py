"""What is kept of each decision of `marginal_delay`, and how traces and `why` say it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from prebleexp.__main__ import main
from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.policies.decisions import Decision, watched

CLOSE = 1e-9
"""prices, relative: what is kept as a sum was added in another order"""
SMALL = ["gpus=3", "rps=20", "duration_s=5", "policy=marginal_delay"]


def test_a_trace_says_why_each_request_went_where_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [f"reports_dir={tmp_path}", f"cache_dir={tmp_path}/cache"]
    assert main(["trace", *SMALL, *folders, "why=17"]) == 0
    said = capsys.readouterr()
    page = Path(said.out.splitlines()[0])
    kept = json.loads((page.parent / "decisions.json").read_text(encoding="utf-8"))
    run = runs.run(configure.cells([*SMALL, "policy.explain=true"])[0])
    assert [one["gpu"] for one in kept] == run.outcome.gpu.tolist()
    assert all(sum(one["terms"].values()) <= sum(one["next_terms"].values()) * (1 + CLOSE) for one in kept)
    assert kept[17]["why"] in said.err
    assert "Why requests went where they did" in page.read_text(encoding="utf-8")


def test_to_explain_changes_nothing_and_without_it_nothing_is_kept() -> None:
    (plain,), (explained,) = (configure.cells([*SMALL, *more]) for more in ([], ["policy.explain=true"]))
    assert runs.run(plain).metrics == runs.run(explained).metrics
    policy, decided = watched(plain.policy)
    runs.run(replace(plain, policy=policy))
    assert list(decided()) == []


def test_each_of_several_routers_explains_its_own_decisions() -> None:
    (cell,) = configure.cells([*SMALL, "policy.explain=true", "gateway.replicas=2"])
    policy, decided = watched(cell.policy)
    run = runs.run(replace(cell, policy=policy))
    assert [one.gpu for one in decided()] == run.outcome.gpu.tolist()


def test_why_names_a_request_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", *SMALL, f"reports_dir={tmp_path}", "why=9999"]) == 2
    assert "why=9999 is not valid; it must be a request of this run, from 0 to" in capsys.readouterr().err


def test_a_policy_that_keeps_no_reasons_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who asks never typed policy.explain."""
    assert main(["trace", "gpus=2", "policy=lor", f"reports_dir={tmp_path}", "why=5"]) == 2
    assert "why is not valid with policy=lor, which keeps no reasons" in capsys.readouterr().err


def test_the_only_gpu_has_no_next() -> None:
    one = Decision(3, 1.0, 0, {"own_wait": 0.5, "coming": 0.25}, None, {}, ("own_wait",))
    assert one.sentence == (
        "request 3 was sent to GPU 0 at 1.000 s: its own delay 0.5, others' 0.25; there was no other"
    )
