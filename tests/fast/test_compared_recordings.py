"""Comparisons of runs that serve a recording say what its sweep said of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prebleexp.__main__ import main

LOG = ("workload=request_log", "workload.path=log.jsonl", "gpus=2", "report=none")
BUSY, COLD, ONE = "its busiest minute is", "begins with empty caches and cuts sessions", "all seeds draw from this one"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of 20 minutes, the eleventh of them busy, with ten sessions whose prompts have all that was said before."""
    monkeypatch.chdir(tmp_path)
    times = sorted([*range(0, 1200, 20), *range(600, 660, 2)])
    rows = [
        {"timestamp": float(at), "input_length": 512 * (1 + i // 10), "output_length": 2, "session_id": f"s{i % 10}",
         "hash_ids": [1000 * (i % 10) + block for block in range(1 + i // 10)]}
        for i, at in enumerate(times)
    ]  # fmt: skip
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sentences(capsys: pytest.CaptureFixture[str]) -> set[str]:
    return {line.removeprefix("prebleexp: ") for line in capsys.readouterr().err.splitlines()}


def test_what_windows_lack_is_said_again(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`compare` had ± and better or worse, and not a line of what its sweep had said of them."""
    asked = ("rps=0.1", "duration_s=300", "replications=2")
    assert main(["-m", *LOG, *asked, "policy=lor,random", "sweep.name=windows"]) == 0
    swept = sentences(capsys)
    for words in (["lor", "random", "sweep=windows"], ["lor", "random"]):
        assert main(["compare", *words, "report=none"]) == 0
        said = sentences(capsys)
        for one in (BUSY, COLD, ONE):
            (line,) = [line for line in said if one in line]
            assert line.startswith("log.jsonl: ")
            assert line in swept
    assert main(["cache", "export", "windows.tar", "sweep=windows"]) == 0
    capsys.readouterr()
    assert main(["compare", "windows.tar", "windows.tar", "report=none"]) == 0
    assert any(ONE in line for line in sentences(capsys)), "its file is known by the hash of what is in it"
    log.write_text(log.read_text().replace("512", "513"))
    assert main(["compare", "lor", "random", "report=none"]) == 0
    said = sentences(capsys)
    assert not any(one in line for one in (BUSY, COLD, ONE) for line in said)
    assert any(line.startswith("log.jsonl is not there as it was read, so what its sweep said") for line in said)


def test_windows_of_one_seed_have_no_seeds_in_common(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", *LOG, "rps=0.1", "duration_s=300", "policy=lor,random", "sweep.name=windows"]) == 0
    assert main(["compare", "lor", "random", "report=none"]) == 0
    said = sentences(capsys)
    assert any(COLD in line for line in said)
    assert not any(ONE in line for line in said)
