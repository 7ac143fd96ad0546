"""Requests that give up before their first token: wherever they are, they leave.

One that waits, or is on its way, does so at once; one that is in the step in hand, when that is over, and before what
it brings is looked at. The router hears of it at once: it is who was hung up on. KV that was on its way to it, or held
for it, is given back.
"""

from __future__ import annotations

import numpy as np

from prebleexp.sim.compiled import compiled
from prebleexp.sim.news import tell
from prebleexp.sim.notices import CANCELLED
from prebleexp.sim.plug import call_int, call_none
from prebleexp.sim.pools import RESERVE_FIRST, is_routed_again, leg_of, prefills
from prebleexp.sim.pulling import leave_kv, send_no_more
from prebleexp.sim.records import NONE, World
from prebleexp.sim.sessions import failed
from prebleexp.sim.types import State
from prebleexp.sim.waking import wake

UNROUTED, QUEUED, RUNNING = int(State.UNROUTED), int(State.QUEUED), int(State.RUNNING)
HELD, RESERVED = int(State.HELD), int(State.RESERVED)
GONE, LOST = int(State.CANCELLED), int(State.LOST)


@compiled
def expire(world: World, request: int) -> None:
    """A request's patience is over; it has its first token, or leaves."""
    control, gateway = world.control, world.gateway
    if world.rules.gated and call_int(gateway.expire, gateway.own, world, request, control.now) != 0:
        return
    unread = world.jobs[leg_of(world, request)].state in (QUEUED, RUNNING)
    if world.pools.both_at_arrival and (unread or world.jobs[request].state == UNROUTED):
        _leave_both(world, request)
        return
    row = leg_of(world, request) if world.jobs[request].state == UNROUTED else request
    job, g = world.jobs[row], int(world.seen.requests[row].gpu)
    waits = job.state in (UNROUTED, QUEUED, RUNNING, HELD, RESERVED)
    unnoticed = job.state == LOST and job.reached != 0
    if not (waits or unnoticed) or not (np.isnan(job.ttft_s) and np.isnan(world.jobs[request].ttft_s)):
        return
    if g == NONE:  # the router passes over it when it comes to it
        _go(world, row)
        if world.rules.gated and is_routed_again(world, row):
            call_none(gateway.hear, gateway.own, world, CANCELLED, row)
        elif world.rules.gated:
            call_int(gateway.leave, gateway.own, world, request, NONE)
        failed(world, request)
        return
    if not unnoticed and job.reached != 0:
        _cancel(world, row, g)
    _go(world, row)
    tell(world, CANCELLED, row, g, 0)


@compiled
def hang_up(world: World, request: int) -> None:
    """Whoever waits for it has gone: it leaves, wherever it is, whatever it has shown. Without roles."""
    job, patience_s = world.jobs[request], world.sessions.patience_s
    if len(patience_s) > 0:
        patience_s[request] = -np.inf
    shown_s = job.ttft_s
    job.ttft_s = np.nan  # as if it had shown nothing
    expire(world, request)
    job.ttft_s = shown_s


@compiled
def _leave_both(world: World, request: int) -> None:
    """Its prompt is not computed yet, and both GPUs may be chosen: wherever it is, each is rid of it."""
    leg = leg_of(world, request)
    job = world.jobs[leg]
    waits = job.state in (UNROUTED, QUEUED, RUNNING, RESERVED) or (job.state == LOST and job.reached != 0)
    if not waits or not (np.isnan(job.ttft_s) and np.isnan(world.jobs[request].ttft_s)):
        return
    told = False
    send_no_more(world, request)
    for row in (leg, request):
        job, g = world.jobs[row], int(world.seen.requests[row].gpu)
        if g != NONE:
            if world.pools.protocol == RESERVE_FIRST:
                wake(world, g)
            if job.state != LOST and job.reached != 0:
                _cancel(world, row, g)
            tell(world, CANCELLED, row, g, 0)
            told = told or not prefills(world, g)
        job.state = GONE
    if not told:  # that is how a request ends
        gateway, requests = world.gateway, world.seen.requests
        if world.rules.gated and requests[leg].gpu == NONE and requests[request].gpu == NONE:
            call_int(gateway.leave, gateway.own, world, request, NONE)
        elif world.rules.gated:
            call_none(gateway.hear, gateway.own, world, CANCELLED, request)
        failed(world, request)


@compiled
def _cancel(world: World, row: int, g: int) -> None:
    """It leaves its GPU, now or when the step in hand is over."""
    engine, server = world.engines[g], world.servers[g]
    if call_int(engine.cancel, engine.own, world, row, world.control.now) == 0:
        world.jobs[row].next, server.leaving = server.leaving, row


@compiled
def _go(world: World, row: int) -> None:
    job = world.jobs[row]
    fetches = world.tiers.fetches  # if KV of it comes from there, none does from where its prompt was computed
    under_way = job.state == RESERVED and (len(fetches) == 0 or fetches[row].coming == 0)
    if (job.state == HELD or under_way) and is_routed_again(world, row):
        leave_kv(world, row)
    job.state = GONE


@compiled
def leave(world: World, g: int) -> None:
    """A step is over: those of it that gave up meanwhile leave, the last one first."""
    engine, server = world.engines[g], world.servers[g]
    while server.leaving != NONE:
        request = int(server.leaving)
        server.leaving = world.jobs[request].next
        call_int(engine.cancel, engine.own, world, request, world.control.now)
