"""Tokens of a continuously batching engine are shown, and the gaps between them counted (see `prebleexp.sim.gaps`)."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.records import Batching
from prebleexp.sim.compiled import compiled
from prebleexp.sim.gaps import add, token
from prebleexp.sim.pools import request_of
from prebleexp.sim.records import NONE, World


@compiled
def show_each(mine: Batching, world: World, g: int, now: float) -> None:
    """Decode steps are over: all that run had a token in each, one by one."""
    gpu, begun_s = mine.gpus[g], world.servers[g].begun_s
    seconds = (now - begun_s) / gpu.steps
    first = now if gpu.steps == 1 else begun_s + seconds
    for row in range(gpu.batch_offset, gpu.batch_offset + gpu.batch_rows):
        request = int(mine.batches.order[row])
        if request != NONE:
            token(world.gaps, request, first)
            add(world.gaps, request_of(world, request), seconds, int(gpu.steps - 1))
            world.gaps.last_s[request_of(world, request)] = now


@compiled
def not_fresh(mine: Batching, gpu: Any, request: int) -> None:
    """A request leaves the batch, perhaps before a step decoded since it joined."""
    jobs, before, one = mine.jobs, NONE, int(gpu.fresh)
    while one != NONE and one != request:
        before, one = one, int(jobs[one].next)
    if one == NONE:
        return
    if before == NONE:
        gpu.fresh = jobs[one].next
    else:
        jobs[before].next = jobs[one].next
