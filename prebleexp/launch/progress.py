"""One progress bar, on a terminal's standard error or in a notebook, if there is something to wait for."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Protocol

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
