"""What has to be compiled before a run, and the words that go with the wait."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

from prebleexp import machine_code
from prebleexp.experiment.cell import Cell
from prebleexp.waiting import waiting

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


def compiling(names: list[str]) -> AbstractContextManager[None]:
    """Says on standard error what is compiled: on a terminal for how long so far, elsewhere once."""
    what = f"compiling {', '.join(names)}, once"
    return waiting(what, f"{what}: some seconds each") if names else nullcontext()
