"""Requests that give up before their first token: wherever they are, they leave.

One that waits, or is on its way, does so at once; one that is in the step in hand, when that is over, and before what
it brings is looked at. The router hears of it at once: it is who was hung up on. What else there is of a request with
two rows, KV among it, is dealt with in `prebleexp.sim.handoff`.
"""

from __future__ import annotations

import numpy as np

from prebleexp.sim.compiled import compiled
from prebleexp.sim.news import tell
from prebleexp.sim.notices import CANCELLED
from prebleexp.sim.plug import call_int
from prebleexp.sim.pools import request_of
from prebleexp.sim.records import NONE, World
from prebleexp.sim.sessions import failed
from prebleexp.sim.types import State

UNROUTED, QUEUED, RUNNING = int(State.UNROUTED), int(State.QUEUED), int(State.RUNNING)
HELD, RESERVED = int(State.HELD), int(State.RESERVED)
GONE, LOST = int(State.CANCELLED), int(State.LOST)


@compiled
def expire(world: World, request: int) -> None:
    """A request's patience is over; it has its first token, or leaves."""
    now, gateway, handoff = world.control.now, world.gateway, world.pools.handoff
    if call_int(gateway.expire, gateway.own, world, request, now) != 0:
        return
    if call_int(handoff.expire, handoff.own, world, request, now) != 0 or not is_waiting(world, request):
        return
    cancel(world, request)
    gave_up(world, request)
    if world.seen.requests[request].gpu == NONE:  # the router passes over it when it comes to it
        call_int(gateway.leave, gateway.own, world, request, NONE)
        failed(world, request)


@compiled
def hang_up(world: World, request: int) -> None:
    """Whoever waits for it has gone: it leaves, wherever it is, whatever it has shown. Without roles."""
    job = world.jobs[request]
    world.sessions.patience_s[request : request + 1] = -np.inf
    shown_s = job.ttft_s
    job.ttft_s = np.nan  # as if it had shown nothing
    expire(world, request)
    job.ttft_s = shown_s


@compiled
def is_waiting(world: World, row: int) -> bool:
    """Whether a row of a request without its first token is on its way, or waits, or is lost and nobody knows yet."""
    job, request = world.jobs[row], request_of(world, row)
    unnoticed = job.state == LOST and job.reached != 0
    waits = unnoticed or job.state in (UNROUTED, QUEUED, RUNNING, HELD, RESERVED)
    return bool(waits and np.isnan(job.ttft_s) and np.isnan(world.jobs[request].ttft_s))


@compiled
def cancel(world: World, row: int) -> None:
    """It leaves its GPU, if that has it, now or when the step in hand is over."""
    job, g = world.jobs[row], int(world.seen.requests[row].gpu)
    if g == NONE or job.reached == 0 or job.state == LOST:
        return
    engine, server = world.engines[g], world.servers[g]
    if call_int(engine.cancel, engine.own, world, row, world.control.now) == 0:
        job.next, server.leaving = server.leaving, row


@compiled
def gave_up(world: World, row: int) -> None:
    """It is nowhere any more, and its router hears of that, if it was sent."""
    g = int(world.seen.requests[row].gpu)
    world.jobs[row].state = GONE
    if g != NONE:
        tell(world, CANCELLED, row, g, 0)


@compiled
def leave(world: World, g: int) -> None:
    """A step is over: those of it that gave up meanwhile leave, the last one first."""
    engine, server = world.engines[g], world.servers[g]
    while server.leaving != NONE:
        request = int(server.leaving)
        server.leaving = world.jobs[request].next
        call_int(engine.cancel, engine.own, world, request, world.control.now)
