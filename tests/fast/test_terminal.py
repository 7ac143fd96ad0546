"""What is drawn where somebody looks, and what is written where nobody does."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from prebleexp.launch import tables
from tests.support.places import ROOT

COMMAND = [
    sys.executable,
    "-m",
    "prebleexp",
    "-m",
    "gpus=2,3",
    "rps=4",
    "duration_s=5",
    "replications=300",
    "report=none",
]
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9](;[0-9;]*)?m")


def on_a_terminal(folder: Path, *more: str, **variables: str) -> str:
    """All that a command writes to a terminal of 100 columns."""
    parent, child = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    environment |= {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "100"} | variables
    process = subprocess.Popen([*COMMAND, *more], cwd=folder, env=environment, stdin=child, stdout=child, stderr=child)
    os.close(child)
    written = b""
    while True:
        try:
            read = os.read(parent, 65536)
        except OSError:  # the other end is closed
            break
        if not read:
            break
        written += read
    os.close(parent)
    assert process.wait() == 0
    return written.decode()


@pytest.mark.slow
def test_a_terminal_gets_a_drawn_table_and_a_bar_with_rate_and_time_left(tmp_path: Path) -> None:
    shown = on_a_terminal(tmp_path)
    assert "─" in shown
    assert "runs/s" in shown
    assert re.search(r"\d+/600", shown)
    assert re.search(r"0:0\d:\d\d", shown)
    assert COLOUR.search(shown)


@pytest.mark.slow
def test_no_color_means_none(tmp_path: Path) -> None:
    assert not COLOUR.search(on_a_terminal(tmp_path, NO_COLOR="1"))


@pytest.mark.slow
def test_what_is_not_a_terminal_gets_plain_text(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for output in ("table", "json", "csv"):  # after the first of them, runs are there
        command = [*COMMAND, f"output={output}"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        for text in (done.stdout, done.stderr):
            assert "\x1b" not in text
            assert "─" not in text


STYLE = re.compile(r"\x1b\[[0-9;]*m")
WIDE = ["policy", "GPUs", "replicas", "on average", "of the first", "GPU-hours/1M", "cost/1M", "verdict"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(width: int, lines: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    file = Terminal()
    tables.show(WIDE, lines, file=file)
    return STYLE.sub("", file.getvalue()).splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_no_number_and_no_word_is_broken(width: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is turned, with as many lines beside each other as there is room for."""
    lines = [[f"round_robin_{i}", "123,456", "8", "1.25", "–", "27.8", "55.6", "found"] for i in range(count)]
    shown = drawn(width, lines, monkeypatch)
    assert max(map(len, shown)) <= width
    words = " ".join(shown).split()
    for cell in {cell for line in (WIDE, *lines) for cell in line}:
        assert all(word in words for word in cell.split())
    assert words.count("123,456") == count
    assert any({"policy", "GPUs", "verdict"} <= set(line.split()) for line in shown) == (width == 200)


def test_a_narrow_interval_is_written_as_its_mean_is() -> None:
    """A table had 0.009549 ± 9e-05."""
    pairs = [(0.009549, 9.04e-5), (0.912425, 0.000034), (0.5, 0.0), (1.25, None), (2e-12, 1e-12)]
    shown = [tables._interval(pair) for pair in pairs]
    assert shown == ["0.009549 ± 0.000090", "0.9124 ± 0.000034", "0.5 ± 0", "1.25", "2e-12 ± 1e-12"]


@pytest.mark.parametrize("width", [80, 200])
def test_a_sentence_is_broken_between_words_and_in_no_number(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns broke "4.49 requests/s" wherever the line ended."""
    sentence = "To keep 95 % within ttft 1.25 s, this takes 12 H100, 0.246 ± 0.012 times 18.4 GB, with lor. " * 4
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    tables.say(sentence.strip())
    shown = terminal.getvalue().splitlines()
    assert max(map(len, shown)) <= width
    assert " ".join(shown) == sentence.strip()
    assert not [line for line in shown if re.search(r"[\d±]$", line) or line[0] in "%±"]
    monkeypatch.setattr(sys, "stderr", plain := io.StringIO())
    tables.say(sentence)
    assert plain.getvalue() == f"{sentence}\n", "what is no terminal gets one line"
