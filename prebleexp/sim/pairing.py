"""Which GPUs are paired, so that a request is moved from one to the other.

By Llumnix's freeness: free tokens of KV memory, less what waiting requests have still to compute, for each request
that runs or waits; without bounds where there is none. Of the GPUs below a threshold the one that has least is paired
with the one that has most of those above it, the next with the next, and so on. One that is in a move already is in no
other. Both of a pair have the same role.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.sim.candidates import is_candidate
from prebleexp.sim.compiled import compiled
from prebleexp.sim.plug import call_none
from prebleexp.sim.pools import NAMES
from prebleexp.sim.records import DOWN, NONE, World


@compiled
def pair(self: Any, mine: Any, world: World, now: float) -> None:
    """Pair GPUs of few free tokens a request with those of many, and begin a move in each pair."""
    _look(world)
    for role in range(len(NAMES)):
        source, target = _least_and_most(world, role)
        while source != NONE and target != NONE:
            one, engine = world.moves.gpus[source], world.engines[source]
            one.paired = world.moves.gpus[target].paired = 1
            one.target, one.stages, one.copied, one.taken = target, 0, 0, 0
            one.began_s, one.stopped_s = now, np.nan
            call_none(engine.move, engine.own, world, source, now)
            source, target = _least_and_most(world, role)


@compiled
def _look(world: World) -> None:
    """Who is in a move?"""
    gpus = world.moves.gpus
    for g in range(len(gpus)):
        gpus[g].paired = int(gpus[g].busy != 0 or gpus[g].request != NONE)
    for g in range(len(gpus)):
        if gpus[g].request != NONE:
            gpus[gpus[g].target].paired = 1


@compiled
def _least_and_most(world: World, role: int) -> tuple[int, int]:
    """Whoever has least, and most, of those of a role that are in no move; of equals the first."""
    moves, roles, source, target = world.moves, world.pools.roles, NONE, NONE
    least = most = moves.rules[0].below
    for g in range(len(moves.gpus)):
        if moves.gpus[g].paired != 0 or roles[g] != role:
            continue
        free = freeness(world, g)
        if free < least and world.servers[g].stage != DOWN:
            source, least = g, free
        if free > most and is_candidate(moves.candidates, g):
            target, most = g, free
    return source, target


@compiled
def freeness(world: World, g: int) -> float:
    """Free tokens of KV for each request of a GPU; infinite without requests."""
    gpu = world.live[g]
    requests = gpu.queued + gpu.running
    if requests == 0:
        return float("inf")
    return float((gpu.kv_free + gpu.evictable - gpu.waiting_tokens) / requests)
