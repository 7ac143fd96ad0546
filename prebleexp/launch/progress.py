"""How far a command is: one progress bar, on a terminal's standard error or in a notebook, and what is kept if it is
interrupted."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol

Plan = Callable[[int, int], object]
REFRESH_S = 0.1
"""in a notebook, where each change is a message to the browser"""


class _Bar(Protocol):
    def advance(self, count: int) -> None: ...

    def stop(self) -> None: ...


class Progress:
    """Appears with the first `advance`, so that a fully cached sweep does not even import it."""

    def __init__(self, total: int, unit: str = "runs") -> None:
        self.done = 0
        self._total, self._unit = total, unit
        self._bar: _Bar | None = None

    def advance(self, count: int = 1) -> None:
        self.done += count
        if self._bar is None:
            if sys.stderr.isatty():
                self._bar = _OnTerminal(self._total, self._unit)
            elif _in_notebook():
                self._bar = _InNotebook(self._total, self._unit)
            else:
                return
        self._bar.advance(count)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def runs_of(count: int) -> str:
    """A number of runs in words: "1 run", "2,000 runs"."""
    return f"{count:,} run" if count == 1 else f"{count:,} runs"


class Kept:
    """Counts over all that a command asks for at a time. `asks_on`: what runs say decides which others are asked for,
    so that nobody knows how many there will be."""

    def __init__(self, asks_on: bool) -> None:
        self._asks_on = asks_on
        self._computed = 0

    @contextmanager
    def batch(self, total: int, progress: Progress, say: Plan) -> Iterator[Plan]:
        """Around the runs of a batch, which tells what it gives how many there are and are missing; an interruption
        says what is kept."""
        there = missing = 0

        def planned(runs: int, left: int) -> None:
            nonlocal there, missing
            there, missing = runs - left, left
            say(runs, left)

        try:
            yield planned
        except KeyboardInterrupt as stop:
            said = f"{progress.done:,} of {runs_of(total)} are done, and kept"
            if self._asks_on or self._computed:
                computed = runs_of(self._computed + max(progress.done - there, 0))
                said = f"{computed} were computed and are kept; the same command goes on from there"
            stop.args = (said,)
            raise
        self._computed += missing


class _OnTerminal:
    def __init__(self, total: int, unit: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
        self._unit = unit
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar.add_task("", total=total, rate="")
        self._bar.start()

    def advance(self, count: int) -> None:
        task = self._bar.tasks[0]
        speed = task.finished_speed or task.speed
        self._bar.update(task.id, advance=count, rate=f"{speed:,.0f} {self._unit}/s" if speed else "")

    def stop(self) -> None:
        self._bar.stop()


class _InNotebook:
    """Plain HTML that is replaced: it needs no widgets, which rich does."""

    def __init__(self, total: int, unit: str) -> None:
        from IPython.display import HTML, display

        self._html, self._total, self._unit = HTML, total, unit
        self._done, self._shown_at = 0, time.monotonic()
        self._handle = display(self._drawn(), display_id=True)

    def advance(self, count: int) -> None:
        self._done += count
        if time.monotonic() - self._shown_at >= REFRESH_S:
            self._handle.update(self._drawn())
            self._shown_at = time.monotonic()

    def stop(self) -> None:
        self._handle.update(self._html(""))

    def _drawn(self) -> object:
        bar = f'<progress value="{self._done}" max="{self._total}"></progress>'
        return self._html(f"{bar} {self._done:,} of {self._total:,} {self._unit}")


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
