"""LoRA adapters: at most `max_loras` different ones run at once (vllm/v1/core/sched/scheduler.py, `schedule`).

Those of all running requests count, also if they are not in the step. A waiting request with another one is passed over
and keeps its place; those behind it are tried. Nothing is fair: a steady adapter keeps its slot, and others wait.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.engines.vllm.phases import nothing
from prebleexp.engines.vllm.records import Engines
from prebleexp.sim.compiled import chosen_by, compiled
from prebleexp.sim.records import NONE, World
from prebleexp.sim.types import Setup


class Adapters(NamedTuple):
    of: Any
    """(n,) each request's; 0: none"""
    slots: int
    """of a GPU"""
    free: Any
    """(GPUs,) slots, of the step that is being scheduled"""
    runs: Any
    """(GPUs, adapters) the last step in whose scheduling it ran"""
    looked: Any
    """(GPUs,) the last step in whose scheduling it was looked who runs"""


def adapters(setup: Setup, slots: int) -> Adapters | None:
    """The slots of LoRA adapters; None if no request has an adapter."""
    of = setup.workload.adapter
    if not of.any():
        return None
    runs = np.full((setup.gpus, int(of.max()) + 1), NONE, np.int64)
    return Adapters(of, slots, np.zeros(setup.gpus, np.int64), runs, np.full(setup.gpus, NONE, np.int64))


@compiled
def _has_slot(mine: Engines, world: World, g: int, request: int) -> int:
    """Whether a waiting request's adapter runs, or another one may."""
    one, step = mine.adapters, int(mine.gpus[g].scheduled)
    if one.looked[g] != step:
        one.looked[g], one.free[g] = step, one.slots
        for row in range(mine.gpus[g].running):
            _take_slot(mine, world, g, int(mine.running[g, row]))
    return int(one.of[request] == 0 or one.runs[g, one.of[request]] == step or one.free[g] > 0)


@compiled
def _take_slot(mine: Engines, world: World, g: int, request: int) -> int:
    """It runs from now on."""
    one, step = mine.adapters, int(mine.gpus[g].scheduled)
    adapter = one.of[request]
    if adapter != 0 and one.runs[g, adapter] != step:
        one.runs[g, adapter] = step
        one.free[g] -= 1
    return 0


has_slot = chosen_by("adapters", nothing, _has_slot)
take_slot = chosen_by("adapters", nothing, _take_slot)
