"""Requests leave the batch of a GPU."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.vllm.records import Engines
from prebleexp.sim.compiled import compiled


@compiled
def leave_running(mine: Engines, g: int, request: int) -> None:
    gpu, running, row = mine.gpus[g], mine.running[g], 0
    while running[row] != request:
        row += 1
    _take_out(running[row : gpu.running])
    _take_out(mine.due[g, row : gpu.running])
    gpu.running -= 1


@compiled
def _take_out(rows: Any) -> None:
    """The first of them, and the others move up: a slice, in which no index can be negative, is moved as a whole."""
    for row in range(len(rows) - 1):
        rows[row] = rows[row + 1]
