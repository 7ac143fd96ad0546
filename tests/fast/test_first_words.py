"""Within a second of any command standard error says what will be done, and what is waited for."""

from __future__ import annotations

import itertools
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prebleexp.__main__ import main
from prebleexp.experiment import compiling
from prebleexp.launch import configure
from tests.recordings import ROOT
from tests.yardstick import slowness_compiled


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
    monkeypatch.setattr("prebleexp.machine_code._base", lambda: tmp_path)
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
def test_on_a_terminal_something_is_said_within_a_second_and_compiling_counts_its_seconds(tmp_path: Path) -> None:
    """On a pseudo-terminal, nothing compiled yet. The bound is for the machine of docs/performance.md."""
    slower = slowness_compiled()
    said, code = _on_a_terminal(tmp_path)
    silences = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(said)]
    first = min([said[0][0], *(_on_a_terminal(tmp_path, f"seed={seed}")[0][0][0] for seed in (1, 2))])
    print(f"first words after {first:.2f} s, longest silence {max(silences):.2f} s, slowness {slower:.2f}")
    assert code == 0
    assert "runs are in the cache" in said[0][1]
    assert first < 1 * slower
    whole = "".join(text for _, text in said)
    assert len(set(re.findall(r"compiling [^\r\n]*?(\d+:\d\d:\d\d)", whole))) >= 3
    assert max(silences) < 2 * slower


def _on_a_terminal(folder: Path, *arguments: str) -> tuple[list[tuple[float, str]], int]:
    """What a run says on standard error, with the seconds after which it came; and its exit code."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(folder / "numba"), "TERM": "xterm"}
    command = [sys.executable, "-m", "prebleexp", "gpus=2", "rps=1", "duration_s=3", *arguments]
    start = time.perf_counter()
    said: list[tuple[float, str]] = []
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=theirs, stdin=theirs
    ) as process:
        os.close(theirs)
        while True:
            try:
                text = os.read(ours, 65536)
            except OSError:  # the other side has closed
                break
            if not text:
                break
            said.append((time.perf_counter() - start, text.decode()))
    os.close(ours)
    return said, process.returncode
