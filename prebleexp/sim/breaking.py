"""GPUs that go down where KV goes from one to another: whose KV is on its way, or held, is lost with either of them.

The other one is told at once, for the connection breaks: the transfer ends, and it has its blocks back. Routers hear of
it when they notice that the GPU is down.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.sim.answers import WITHDRAWN
from prebleexp.sim.events import REACHED, key, without_event
from prebleexp.sim.pulling import leave_kv
from prebleexp.sim.records import NONE, World
from prebleexp.sim.states import State
from prebleexp.sim.types import Longs


def unread(world: World, g: int) -> Longs:
    """Requests whose KV a GPU holds, or has taken blocks for, in the order in which they came."""
    if len(world.pools.roles) == 0:
        return np.zeros(0, np.int64)
    n, jobs, gpus = world.pools.requests, world.jobs, world.seen.requests.gpu
    waits = np.isin(jobs.state[:n], (State.HELD, State.RESERVED)) & (jobs.reached[n:] != 0)
    if len(world.tiers.fetches):  # what comes from there is of this GPU's own
        waits &= world.tiers.fetches.coming[:n] == 0
    found = np.flatnonzero(waits & ((gpus[n:] == g) | (gpus[:n] == g)))
    return found[np.argsort(jobs.number[found])]


def break_off(world: World, handle: Any, request: int, withdraw: Any) -> None:
    """One of them is lost. `handle`: the world as compiled functions are given it; `withdraw(g, request)` lets it leave
    its GPU."""
    job, g = world.jobs[request], int(world.seen.requests[request].gpu)
    if g == NONE:
        _leave_router(world, request)
        job.answer, job.reached = WITHDRAWN, 1
    else:
        withdraw(g, request)
    without_event(world.events, world.control, key(REACHED, request))  # it was to look for room again
    leave_kv(handle, request)
    world.seen.requests[request].output_seen = 0
    job.state = State.LOST
    job.losses += 1


def _leave_router(world: World, request: int) -> None:
    """It waits for a router no more, if it does: what is decided on is in no list."""
    jobs = world.jobs
    for one in world.lists:
        rows, row = [], int(one.head)
        while row != NONE:
            rows.append(row)
            row = int(jobs[row].next)
        if request in rows:
            rows.remove(request)
            jobs.next[rows] = [*rows[1:], NONE][: len(rows)]
            one.head, one.tail = (rows[0], rows[-1]) if rows else (NONE, NONE)
