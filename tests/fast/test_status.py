"""What is done, failed and missing, said without computing anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prebleexp.__main__ import main
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.results import look_up
from prebleexp.launch import configure, tables
from prebleexp.launch.survey import expected_s, known_of
from tests.support.stand_in import served

SWEEP = ("-m", "gpus=4,13", "rps=2,4", "policy=lor", "duration_s=5", "replications=2", "report=none")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a simulator that cannot do 13 GPUs is used."""
    monkeypatch.setattr("prebleexp.sim.simulate.simulate", lambda workload, on_pause, **rest: served(workload, **rest))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[Any, str]:
    assert main([*arguments]) == code
    out, err = capsys.readouterr()
    return (json.loads(out) if "output=json" in arguments else out), err


@pytest.mark.slow
def test_status_counts_and_computes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, says = said(capsys, "status", *SWEEP, "output=json")
    assert rows == [{"runs": 8, "done": 0, "failed": 0, "missing": 8}]
    assert says == "8 of 8 runs to compute; how long that takes is not known before the first\n"
    assert not (folder / "cache").exists(), "not even a folder is made"
    said(capsys, *SWEEP, code=1)
    rows, says = said(capsys, "status", *SWEEP, "output=json")
    assert rows == [{"runs": 8, "done": 4, "failed": 4, "missing": 0}]
    assert says.startswith("4 of 8 runs to compute: about ")
    rows, says = said(capsys, "status", *SWEEP, "retry=none", "output=json")
    assert says == "8 runs, nothing to compute\n"


@pytest.mark.slow
def test_dry_lists_what_would_be_computed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, *SWEEP[:2], "rps=2", *SWEEP[3:], code=1)
    rows, _ = said(capsys, "--dry", *SWEEP, "output=json")
    assert rows == [
        {"gpus": 4, "rps": 4, "runs": 2, "done": 0, "failed": 0, "missing": 2},
        {"gpus": 13, "rps": 2, "runs": 2, "done": 0, "failed": 2, "missing": 0},
        {"gpus": 13, "rps": 4, "runs": 2, "done": 0, "failed": 0, "missing": 2},
    ]
    table, _ = said(capsys, "--dry", *SWEEP)
    assert table.splitlines()[0].split() == ["gpus", "rps", "runs", "done", "failed", "missing"]


@pytest.mark.slow
def test_a_long_list_of_what_would_be_computed_ends_with_how_many_more(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = ("--dry", "-m", "gpus=1,2,4,8,16", "rps=range(1,101)", "duration_s=5")
    table, err = said(capsys, *many)
    lines = table.splitlines()
    assert len(lines) == 1 + tables.SHOWN + 1
    assert lines[-1] == "… 480 more: output=csv prints all"
    assert err.startswith("500 of 500 runs to compute")
    rows, _ = said(capsys, *many, "output=json")
    assert len(rows) == 500


def test_nothing_is_left_behind(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "--dry", *SWEEP, "job_dirs=true")
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_one_configuration_has_a_status_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, _ = said(capsys, "status", "gpus=4", "replications=3", "output=json")
    assert rows == [{"runs": 3, "done": 0, "failed": 0, "missing": 3}]
    said(capsys, "gpus=4", "replications=3")
    rows, says = said(capsys, "status", "gpus=4", "replications=4", "output=json")
    assert rows == [{"runs": 4, "done": 3, "failed": 0, "missing": 1}]
    assert "judged by 3 runs" in says


@pytest.mark.slow
def test_parts_are_told_apart(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, _ = said(capsys, "status", "+sweeps=fig1a", "output=json")
    assert [row["part"] for row in rows] == ["rates_released", "rates_described", "all"]
    assert rows[-1]["missing"] == 3200


@pytest.mark.slow
def test_a_job_of_slurm_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = said(capsys, "--dry", *SWEEP, "backend=slurm", "backend.queue=short")
    assert "would submit:\n#!/usr/bin/env bash" in out
    assert "#SBATCH -p short" in out


@pytest.mark.slow
def test_failures_are_reported_from_the_cache_or_tried_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, *SWEEP, code=1)
    _, says = said(capsys, *SWEEP, "retry=none", code=1)
    assert "13 GPUs bring bad luck" in says
    assert "8 runs: 0 computed, 4 from the cache, 4 failed" in says
    _, says = said(capsys, *SWEEP, "retry=never", code=2)
    assert says == "prebleexp: retry=never is not valid; it must be one of failed, none, all\n"


@pytest.mark.slow
def test_bad_limits_and_backends_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for setting, says in (
        ("time_limit_s=0", "time_limit_s=0 is not valid; it must be a number of seconds > 0"),
        ("time_limit_s=soon", "time_limit_s=soon is not valid"),
        ("backend=gpu", "unknown backend 'gpu'; valid: dask, loky, slurm, threads"),
        ("backend.adress=x", "unknown key 'backend.adress'"),
        ("+backend.jobs=3", "unknown key 'backend.jobs'"),
    ):
        _, err = said(capsys, setting, code=2)
        assert err.startswith(f"prebleexp: {says}"), err
        assert err.count("\n") == 1


@pytest.mark.slow
def test_runs_that_had_no_policy_tell_nothing_of_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of an engine that routes by itself, and of which the cache has the only run."""
    places = [f"cache_dir={tmp_path}", f"reports_dir={tmp_path}", "report=none"]
    said(capsys, "engine=splitwise", "replicas=3", "rps=2", "duration_s=2", *places)
    assert list(known_of([], Cache(tmp_path))) == []
    _, says = said(capsys, "-m", "policy=lor,random", "--dry", *places)
    assert "how long that takes is not known before the first" in says


def test_time_is_judged_by_runs_of_the_same_policy(tmp_path: Path) -> None:
    cells = [one for policy in ("lor", "random") for one in configure.cells([f"policy={policy}", "rps=10"])]
    tasks = look_up(cells, Cache(tmp_path)).missing
    names = [f"{type(task.cell.policy).__module__}.{type(task.cell.policy).__qualname__}" for task in tasks]
    known = [(names[0], 100.0, 1.1), (names[0], 200.0, 2.1), (names[1], 300.0, 30.0)]
    assert expected_s(tasks[:1], known) == pytest.approx(0.1 + 300 * 0.01, abs=0.01)
    assert expected_s(tasks[1:], known) == pytest.approx(30, abs=0.01)
    assert expected_s(tasks, []) is None
