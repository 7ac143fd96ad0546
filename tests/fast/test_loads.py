"""The load that was: what headings, tables and sentences say came, and what a setting that does nothing is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prebleexp.__main__ import main
from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.sim.types import Setup
from tests.support.places import names

Command = Callable[..., tuple[int, str, str]]
LOG = ("workload=request_log", "workload.path=log.jsonl", "gpus=2", "policy=lor")
USERS = ("workload=chats", "workload.load=population", "workload.lanes=4", "duration_s=20", "horizon=stop", "gpus=1")


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line in a folder with a log of 3 requests/s for 20 s."""
    rows = [{"ts_ms": 1000 * i / 3, "prompt_tokens": 90, "completion_tokens": 4} for i in range(61)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        return (code, *capsys.readouterr())

    return run


def metrics(out: str) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(out)[0]
    return row


def test_a_trace_comes_at_its_own_times_and_is_headed_by_its_own_rate(command: Command) -> None:
    code, out, err = command(*LOG)
    assert code == 0
    assert out.startswith("lor on 2 GPUs at 3.05 requests/s for 20 s (request_log, ")
    assert "log.jsonl: 61 requests in 20 s (3.05 requests/s); time: ts_ms, milliseconds, as its name says" in err
    row = metrics(command(*LOG, "output=json")[1])
    assert (row["rps"], row["duration_s"]) == (pytest.approx(3.05), pytest.approx(20))
    assert (row["offered_per_s"], row["offered_s"]) == (pytest.approx(3.05), pytest.approx(20))


def test_a_rate_that_is_asked_for_is_that_of_the_trace_and_by_how_much_is_said(command: Command) -> None:
    code, out, err = command(*LOG, "rps=6.1")
    assert code == 0
    assert out.startswith("lor on 2 GPUs at 6.1 requests/s for 20 s")
    assert "6.1 requests/s are 2 times the recording's 3.05" in err


def test_users_are_the_load_of_a_population_and_what_is_not_due_is_no_loss(command: Command) -> None:
    code, out, err = command(*USERS)
    assert code == 0
    assert out.startswith("lor on 1 GPU with 4 users for 20 s (chats, ")
    assert "not due" not in err
    row = metrics(command(*USERS, "output=json")[1])
    assert row["n_not_due"] > 0
    assert row["rps"] is None


def test_a_request_is_played_by_as_many_clients_as_a_benchmark_has(command: Command) -> None:
    row = {"timestamp": 0, "prompt_tokens": 256, "completion_tokens": 64}
    Path("one.jsonl").write_text(json.dumps(row) + "\n")
    words = ("workload=request_log", "workload.path=one.jsonl", "workload.load=population", "workload.lanes=8")
    found = metrics(command(*words, "duration_s=60", "horizon=stop", "gpus=1", "policy=lor", "output=json")[1])
    clients = found["requests_per_s"] * found["latency_mean_s"]
    assert clients == pytest.approx(8, rel=0.02)  # Little's law, but for those under way at the end


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((*LOG, "workload.load=recorded", "rps=1,4"), "rps=1,4 does nothing here: workload=request_log comes when"),
        ((*LOG, "workload.load=recorded", "duration_s=5,9"), "duration_s=5,9 does nothing here: all of the recording"),
        ((*LOG, "seed=1,2"), "seed=1,2 does nothing here: nothing is drawn"),
        ((*USERS, "rps=1,4"), "rps=1,4 does nothing here: the load is users; say workload.lanes="),
        ((*LOG, "workload.lanes=1,4"), "workload.lanes=1,4 does nothing here: all its values make the same runs"),
    ],
)
def test_a_sweep_over_what_does_nothing_is_refused(words: tuple[str, ...], why: str, command: Command) -> None:
    code, _, err = command("-m", *words)
    assert code == 2
    assert f"prebleexp: {why}" in err


def test_what_does_something_in_some_cells_is_swept(command: Command) -> None:
    code, out, _ = command("-m", *LOG[:-1], "policy=lor,random", "seed=1,2", "report=none", "output=csv")
    assert code == 0
    assert len(out.splitlines()) == 1 + 3


def test_a_single_run_says_what_does_nothing(command: Command) -> None:
    _, out, err = command(*LOG, "workload.load=recorded", "rps=16")
    assert out.startswith("lor on 2 GPUs at 3.05 requests/s for 20 s")
    assert "prebleexp: rps does nothing here: workload=request_log comes when it was recorded" in err


def test_where_nothing_is_drawn_all_seeds_are_one_run(command: Command) -> None:
    code, out, err = command(*LOG, "replications=5")
    assert code == 0
    assert "± 95 %" not in out
    assert "1 run: 1 computed" in err
    assert "all seeds are one run: there are no intervals" in err
    _, out, _ = command(*LOG[:-1], "policy=random", "replications=2")
    assert "mean of 2 seeds" in out


SERVED = ("workload.recorder_ttft_s=0", "workload.recorder_tpot_s=0")
KINDS_OF_LOAD = (
    ("workload.load=recorded",),
    ("rps=2",),
    ("rps=2", "duration_s=5"),
    ("workload.load=poisson", "rps=2", "duration_s=5"),
    ("workload.load=population", "workload.lanes=2", "duration_s=5", "horizon=stop", *SERVED),
    ("workload.load=recorded", "workload.mode=closed", *SERVED),
)
SAYING = {"role": "user", "content": "What may a router know of a session? " * 9}
KINDS_OF_LOG = {
    "sessions": [{"session_id": f"s{i % 3}"} for i in range(12)],
    "messages": [{"messages": [SAYING] * (1 + i // 3) + [{"role": "user", "content": f"{i % 3}"}]} for i in range(12)],
    "hashes": [
        {"hash_ids": [i % 3, *range(10 * i, 10 * i + i // 3)], "prompt_tokens": 16 * (1 + i // 3)} for i in range(12)
    ],
    "nobody": [{} for _ in range(12)],
}


@pytest.mark.parametrize("log", KINDS_OF_LOG)
def test_every_router_takes_every_load_of_every_log(command: Command, log: str) -> None:
    """Whether a run draws anything is asked before it is drawn; then the router is told of the log itself."""
    rows = [
        {"ts_ms": 1000 * i, "prompt_tokens": 90, "completion_tokens": 4} | one
        for i, one in enumerate(KINDS_OF_LOG[log])
    ]
    Path("log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    block = ["workload.block_tokens=16"] if log == "hashes" else []
    routers = {name: configure.cells([f"policy={name}"])[0].policy for name in names("policy") if name != "replay"}
    for load in KINDS_OF_LOAD:
        (cell,) = configure.cells([*LOG, *block, *load])
        workload, hardware = runs.draw(cell), cell.hardware
        setup = Setup(2, 0, len(workload), hardware.kv_tokens, hardware.context_length, workload)
        for name, policy in routers.items():
            assert isinstance(replace(cell, policy=policy).draws, bool), name
            policy.start(setup)


def test_a_router_by_session_is_refused_where_there_are_none(command: Command) -> None:
    code, _, err = command("policy=sglang_manual", "gpus=2", "rps=2", "duration_s=2")
    assert code == 2
    assert "routes by session, and no request of this workload is of one" in err


def test_seeds_matter_only_where_something_is_drawn(command: Command) -> None:
    for policy, drawn in (("lor", False), ("round_robin", False), ("random", True), ("vllm_power_of_two", True)):
        (cell,) = configure.cells([*LOG[:-1], f"policy={policy}"])
        assert cell.draws is drawn, policy
        assert ("seed" in cell.identity()) is drawn
    (cell,) = configure.cells(["gpus=2", "rps=2"])
    assert cell.draws
