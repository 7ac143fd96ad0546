"""Before anything takes long, standard error says what will be done, and what is waited for."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from prebleexp.__main__ import main
from prebleexp.experiment import compiling
from prebleexp.launch import configure
from tests.support.places import ROOT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "first"),
    [
        (["gpus=2", "rps=1", "duration_s=3"], "prebleexp: 0 of 1 runs are in the cache, 1 to compute"),
        (["-m", "gpus=1,2", "rps=1", "duration_s=3", "report=none"], "prebleexp: composing the jobs of sweep sweep"),
    ],
)
def test_the_first_line_says_what_will_be_done(
    line: list[str], first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(line) == 0
    assert capsys.readouterr().err.splitlines()[0] == first
    assert main(line) == 0  # all of it is in the cache: nothing is waited for
    assert "to compute" not in capsys.readouterr().err


def test_what_is_compiled_is_said_once_and_only_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = configure.cells(["policy=lor", "engine=sglang_2024", "hardware=a6000_mistral_7b"])
    monkeypatch.setattr("prebleexp.machine_code.home", lambda: tmp_path)
    names = compiling.missing(cells, check=True)
    assert names == ["the core", "sglang_2024", "a6000_mistral_7b", "lor"], "as people choose them"
    with compiling.compiling(names):
        pass
    said = "prebleexp: compiling the core, sglang_2024, a6000_mistral_7b, lor, once: some seconds each\n"
    assert capsys.readouterr().err == said
    two = [*cells, *configure.cells(["policy=lor", "engine=preble", "hardware=a100_mistral_7b"])]
    assert compiling.missing(two, check=True) == names, "what is compiled together is named once"
    with compiling.compiling([]):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_on_a_terminal_the_first_words_come_before_anything_is_compiled_and_seconds_are_counted(tmp_path: Path) -> None:
    """On a pseudo-terminal. What takes long says so before it begins."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path / "numba"), "TERM": "xterm"}
    command = [sys.executable, "-m", "prebleexp", "gpus=2", "rps=1", "duration_s=3"]
    said: list[str] = []
    compiled: list[int] = []
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=theirs, stdin=theirs
    ) as process:
        os.close(theirs)
        while words := read(ours):
            compiled.append(len(list((tmp_path / "numba").rglob("*.nbc"))))
            said.append(words)
    os.close(ours)
    assert process.returncode == 0
    assert "0 of 1 runs are in the cache" in said[0]
    assert compiled[0] == 0
    whole = "".join(said)
    begun = next(i for i, count in enumerate(compiled) if count)
    assert "compiling the core, " in "".join(said[: begun + 1])
    assert len(set(re.findall(r"compiling [^\r\n]*?(\d+:\d\d:\d\d)", whole))) >= 2


def read(terminal: int) -> str:
    """The next words; none once the other side has closed it."""
    try:
        return os.read(terminal, 65536).decode()
    except OSError:
        return ""
