"""What has to be compiled before a run, and the words that go with the wait."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

from prebleexp import machine_code
from prebleexp.experiment.cell import Cell
from prebleexp.waiting import waiting

CORE = "prebleexp.sim.loop"


def missing(cells: Iterable[Cell], check: bool) -> list[str]:
    """What these cells need and was never compiled as it is: as it is chosen, or by its class where it has no name. Of
    several options that are compiled together the first."""
    wanted = {CORE: "the core"}
    for cell in cells:
        modules = [("engine", cell.engine.compiles), *(("hardware", one.hardware.compiles) for one in cell.kinds)]
        if cell.policy.compiled:
            modules.append(("policy", type(cell.policy).__module__))
        for group, module in modules:
            if group not in cell.engine.brings:
                wanted.setdefault(module, cell.names.get(group, type(getattr(cell, group)).__name__))
    files = {module: _file(module) for module in wanted}
    return [
        name
        for module, name in wanted.items()
        if files[module] and machine_code.is_missing(files[module], module, check)
    ]


def _file(module: str) -> str:
    """Where it is, loaded or not; empty if it is in no file."""
    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None) or ""
    found = importlib.util.find_spec(module)
    return (found and found.origin) or ""


def compiling(names: list[str]) -> AbstractContextManager[None]:
    """Says on standard error what is compiled: on a terminal for how long so far, elsewhere once."""
    what = f"compiling {', '.join(names)}, once"
    return waiting(what, f"{what}: some seconds each") if names else nullcontext()
