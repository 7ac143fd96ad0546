"""What has to be compiled before a run, and the words that go with the wait."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from prebleexp import machine_code
from prebleexp.experiment.cell import Cell

CORE = "prebleexp.sim.loop"


def missing(cells: Iterable[Cell], check: bool) -> list[str]:
    """Names of what these cells need and was never compiled as it is."""
    wanted = {"the core": (_file(CORE), CORE)}
    for cell in cells:
        for plug in (cell.engine, cell.hardware):
            wanted[type(plug).__name__] = (_file(plug.compiles), plug.compiles)
        if cell.policy.compiled:
            kind = type(cell.policy)
            wanted[cell.names.get("policy", kind.__name__)] = (inspect.getsourcefile(kind) or "", kind.__module__)
    return [name for name, (file, module) in wanted.items() if file and machine_code.is_missing(file, module, check)]


def _file(module: str) -> str:
    found = importlib.util.find_spec(module)
    return (found and found.origin) or ""


@contextmanager
def compiling(names: list[str]) -> Iterator[None]:
    """Says on standard error what is compiled: on a terminal for how long so far, elsewhere once."""
    what = f"compiling {', '.join(names)}, once"
    if not names:
        yield
    elif not sys.stderr.isatty():
        print(f"prebleexp: {what}: some seconds each", file=sys.stderr, flush=True)
        yield
    else:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            progress.add_task(what, total=None)
            yield
