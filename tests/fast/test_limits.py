"""A run is ended where nothing is left half done, and nothing else is ended."""

from __future__ import annotations

import importlib
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prebleexp.experiment.limits import TimeLimitExceeded, limited


def busy(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_plain_python_that_never_calls_is_interrupted() -> None:
    def endless(check: Callable[[], None]) -> None:
        while True:
            pass

    with pytest.raises(TimeLimitExceeded, match=r"longer than time_limit_s=0\.05"):
        limited(endless, 0.05)


def test_a_module_is_loaded_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_to_load.py").write_text(
        "import time\nend = time.monotonic() + 0.5\nwhile time.monotonic() < end:\n    pass\nlast = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def load(check: Callable[[], None]) -> None:
        importlib.import_module("slow_to_load")
        busy(60)

    try:
        with pytest.raises(TimeLimitExceeded):
            limited(load, 0.05)
        assert sys.modules["slow_to_load"].last == 1
    finally:
        sys.modules.pop("slow_to_load", None)


@pytest.mark.parametrize("end", ["returns", "raises"])
def test_nothing_rings_after_the_end(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst moment: the time is over when the run is, and the alarm rings before it is off."""
    set_timer = signal.setitimer

    def late(which: signal.ItimerSignal, seconds: float, *again: float) -> Any:
        if seconds == 0:
            signal.raise_signal(signal.SIGALRM)
        return set_timer(which, seconds, *again)

    def just_too_long(check: Callable[[], None]) -> str:
        over = time.monotonic() + 3600
        monkeypatch.setattr(time, "monotonic", lambda: over)
        if end == "raises":
            check()
        return "done"

    monkeypatch.setattr(signal, "setitimer", late)
    if end == "raises":
        with pytest.raises(TimeLimitExceeded):
            limited(just_too_long, 3600)
    else:
        assert limited(just_too_long, 3600) == "done"
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
