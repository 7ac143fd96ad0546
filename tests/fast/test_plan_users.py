"""Plans of users: how many a cluster bears, and how many GPUs so many need."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.__main__ import main
from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.planning import load
from prebleexp.planning.answer import Verdict
from prebleexp.planning.trials import Question
from tests.support.curves import falling, solved

QUESTION = Question(target=0.9, strictest=0.9, requests=1, most_requests=1, whole=True)
USERS = [
    *("workload=chats", "workload.load=population", "duration_s=60", "horizon=stop", "slo.warmup_s=20"),
    *("slo.ttft_s=1", "slo.target=0.9", "hardware=a6000_mistral_7b", "engine=sglang_2024"),
]


# ---------------------------------------------------------------- the search
@settings(max_examples=100, deadline=None)
@given(st.floats(1.01, 3000), st.integers(1, 2000))
def test_where_nothing_is_by_chance_it_is_the_most_who_can_be_borne(capacity: float, guess: int) -> None:
    found = solved(load.largest(QUESTION, float(guess), float(guess)), falling(capacity))
    assert found.verdict is Verdict.FOUND
    assert found.size == int(found.size or 0)
    assert found.size == pytest.approx(capacity, rel=0.002, abs=1)
    assert found.size <= capacity * 1.002


def test_only_whole_numbers_of_users_are_tried() -> None:
    tried = set()

    def noted(size: float, seed: int) -> float:
        tried.add(size)
        return falling(37.5, spread=0.01)(size, seed)

    found = solved(load.largest(QUESTION, 64.0, 64.0), noted)
    assert all(size == int(size) >= 1 for size in tried)
    low, high = found.low or 0, found.high or 0
    assert (low, high) == (int(low), int(high))
    assert low <= (found.size or 0) <= high


def test_not_even_one_user_is_borne() -> None:
    found = solved(load.largest(QUESTION, 64.0, 64.0), falling(0.2))
    assert found.verdict is Verdict.NEVER


def test_users_without_end() -> None:
    assert solved(load.largest(QUESTION, 64.0, 64.0), falling(1e30)).verdict is Verdict.AT_LEAST


# ---------------------------------------------------------------- the command
def kept(policy: str, gpus: int, users: int) -> float:
    cell = configure.cells([f"policy={policy}", f"gpus={gpus}", f"workload.lanes={users}", *USERS])[0]
    return float(np.mean([runs.run(replace(cell, seed=seed)).metrics["slo_attainment"] for seed in range(4)]))


@pytest.mark.slow
def test_a_plan_of_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    plan = ["plan", "gpus=1", "policy=lor", *USERS, "tol=0.2", "seeds=4", "most_seeds=4"]
    assert main([*plan, "output=csv", "report=none"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    users = int(float(row["users"]))
    assert float(row["users_low"]) <= users <= float(row["users_high"])
    assert row["gpu_hours_per_million"] == ""
    assert kept("lor", 1, round(0.7 * users)) >= 0.9 > kept("lor", 1, round(1.5 * users))

    assert main(plan) == 0
    out, _ = capsys.readouterr()
    assert out.split()[:2] == ["policy", "users"]
    assert "GPU-hours" not in out
    assert f"1 A6000 bears {users} (" in out
    page = next((tmp_path / "reports").glob("plan-*/index.html")).read_text()
    assert "How many users does 1 A6000 bear?" in page


@pytest.mark.slow
def test_the_fewest_gpus_for_so_many_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = ["plan", "workload.lanes=60", "policy=lor", *USERS, "seeds=4", "most_seeds=4", "output=csv", "report=none"]
    assert main(plan) == 0
    out, err = capsys.readouterr()
    (row,) = csv.DictReader(io.StringIO(out))
    count, likely = int(row["gpus"]), int(row["gpus_likely"])
    assert row["users"] == "60"
    assert "60 users need" in err
    assert kept("lor", likely, 60) >= 0.9
    assert likely == 1 or kept("lor", likely - 1, 60) < 0.9
    assert count >= likely


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "gpus and workload.lanes: neither given"),
        (["gpus=1", "workload.lanes=3"], "gpus and workload.lanes: both given"),
        (["gpus=1", "rps=3"], "rps: the load of workload.load=population is users: workload.lanes"),
    ],
)
def test_what_cannot_be_planned_is_said_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plan", *USERS, *arguments]) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]
