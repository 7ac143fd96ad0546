"""One progress bar on standard error, if that is a terminal and there is something to wait for."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import rich.progress


class Progress:
    """Appears with the first `advance`, so that a fully cached sweep does not even import it."""

    def __init__(self, total: int, unit: str = "runs") -> None:
        self.done = 0
        self._total, self._unit = total, unit
        self._bar: rich.progress.Progress | None = None

    def advance(self, count: int = 1) -> None:
        self.done += count
        if not sys.stderr.isatty():
            return
        if self._bar is None:
            self._bar = _bar()
            self._bar.add_task("", total=self._total, rate="")
            self._bar.start()
        task = self._bar.tasks[0]
        speed = task.finished_speed or task.speed
        self._bar.update(task.id, advance=count, rate=f"{speed:,.0f} {self._unit}/s" if speed else "")

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def _bar() -> rich.progress.Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
