"""Work that is counted, not timed: the same on every machine, however busy it is.

`lines` counts what the package's own code executes where kernels run as plain Python (NUMBA_DISABLE_JIT=1): what
compiled code takes grows with it. `calls` counts calls, for what is plain Python anyhow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any

import numpy as np

from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.sources import PACKAGE
from tests.support.interpreted import printed


def lines(work: Callable[[], object], *rooms: str) -> int:
    """Lines of these folders of the package that are executed, each as often as it is."""
    counted, own = 0, dict[CodeType, bool]()
    places = tuple(str(PACKAGE / room) for room in rooms)

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal counted
        counted += event == "line"
        return line

    def called(frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code not in own:
            own[code] = code.co_filename.startswith(places)
        return line if own[code] else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        work()
    finally:
        sys.settrace(before)
    return counted


def calls(work: Callable[[], object]) -> int:
    """Calls of functions, Python's and C's, that `work` leads to."""
    counted = 0

    def called(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(before)
    return counted


RUNS = """
import sys
from tests.support.counted import of_run
from tests.support.quick_records import find_at_once
find_at_once()  # no lines of numpy's are counted
for settings in sys.argv[2:]:
    print(of_run(settings.split(), *sys.argv[1].split()))
"""


def of_run(settings: list[str], *rooms: str) -> float:
    """Lines a request that its run takes. Each four requests are of a session."""
    (cell,) = configure.cells(settings)
    workload = runs.draw(cell)
    turn, session = np.divmod(np.arange(len(workload)), -(-len(workload) // 4))
    workload = replace(workload, session=session.astype(np.int32), turn=turn.astype(np.int32))
    return lines(lambda: runs.simulate_cell(cell, workload), *rooms) / len(workload)


def of_runs(rooms: str, *settings: str) -> list[float]:
    """The same for each of them, from a process that compiles nothing."""
    return [float(one) for one in printed(RUNS, rooms, *settings)]
