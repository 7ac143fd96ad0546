"""A request whose prompt and output have GPUs of their own: what becomes of one of its rows, the other one hears here.

Routers, patience and faults know rows, each of which waits, runs and ends by itself (`prebleexp.sim.router`,
`hearing`, `patience`). Where a request has two, they ask these functions first; without pools there are none.

| state of the handoff | prompt's row | output's row |
| --- | --- | --- |
| being placed | not sent | not sent, or sent first where a decider is asked between the two |
| being computed | waits or runs | without a GPU (`PULL`), with one, or with room there (RESERVED) |
| computed | finished, its KV held | HELD: waits for a GPU, or for room there |
| under way | finished, its KV held | RESERVED |
| there | finished | waits or runs |

| function | fact | what it answers |
| --- | --- | --- |
| `placed` | a router has chosen a row's GPU | 1: it does not go there now, or did so here |
| `waits` | a row comes to its GPU | 1: it waits for room at the other one (`prebleexp.sim.reserving`) |
| `computed` | a row is finished | |
| `lost_on_the_way` | a row has come to a GPU that is down | 1: which row is lost by that was found here |
| `is_lost` | routers have heard that a row is lost, or given back | 1: what follows was done here |
| `goes_on` | routers hear that a row ends | 1: its request does not end with it |
| `refused` | a router refuses a row | 1: its request ends when the other one is heard to |
| `expire` | a request's patience is over | 1: it has left here |
"""

from __future__ import annotations

import numpy as np

from prebleexp.sim.compiled import compiled
from prebleexp.sim.events import REACHED, key, push
from prebleexp.sim.hearing import begin_anew, is_lost_alone
from prebleexp.sim.moves import routed_anew
from prebleexp.sim.news import tell
from prebleexp.sim.notices import CANCELLED, FINISHED, LOST
from prebleexp.sim.patience import cancel, gave_up, is_waiting
from prebleexp.sim.plug import call_int, call_none
from prebleexp.sim.pools import (
    PULL,
    is_asked_second,
    is_loading,
    is_part,
    is_routed_again,
    leg_of,
    prefills,
    request_of,
)
from prebleexp.sim.pulling import leave_kv, let_go, send_no_more
from prebleexp.sim.records import NONE, World
from prebleexp.sim.router import lose, pass_frontend, reached
from prebleexp.sim.router_queue import join
from prebleexp.sim.router_records import COMMON
from prebleexp.sim.sessions import failed
from prebleexp.sim.types import State

UNROUTED, QUEUED, RUNNING = int(State.UNROUTED), int(State.QUEUED), int(State.RUNNING)
HELD, RESERVED = int(State.HELD), int(State.RESERVED)


# ---------------------------------------------------------------- going
@compiled
def placed(self: None, mine: None, world: World, row: int, now: float) -> int:
    request, leg = request_of(world, row), leg_of(world, request_of(world, row))
    if not is_part(world, row):
        if row == leg:  # a GPU that does both may have it
            return 0
        reached(world, row)  # it has passed the frontend with its prompt
        return 1
    if not is_asked_second(world, row):
        if row == request:
            return _is_decided(world, row, now)
        world.arrivals[request] = now
        join(world, COMMON, request)
        return 1
    if row == leg:
        return 0
    pass_frontend(world, leg)
    return 1


@compiled
def _is_decided(world: World, request: int, now: float) -> int:
    """The output's GPU is chosen, and it is asked now whether the prompt is to have another."""
    if world.jobs[request].state == HELD:  # its prompt is computed, and it was given back since
        reached(world, request)
        return 1
    if call_int(world.pools.decides.goes, world.pools.decides.own, world, request, now) == 0:
        return 0
    world.arrivals[leg_of(world, request)] = now
    join(world, COMMON, leg_of(world, request))
    return 1


@compiled
def computed(self: None, mine: None, world: World, row: int, now: float) -> None:
    """Its KV is held: who makes the output is told of it or, if not chosen before, asked for."""
    if not prefills(world, int(world.seen.requests[row].gpu)):
        return
    request = request_of(world, row)
    world.jobs[request].state = HELD
    if world.seen.requests[request].gpu != NONE:
        push(world.events, world.control, now, key(REACHED, request))
        return
    world.arrivals[request] = now
    join(world, COMMON, request)


# ---------------------------------------------------------------- losing
@compiled
def lost_on_the_way(self: None, mine: None, world: World, row: int, now: float) -> int:
    is_known = world.servers[world.seen.requests[row].gpu].gone != 0
    if is_routed_again(world, row):
        leave_kv(world, row)
    lose(world, row, is_known)
    return 1


@compiled
def is_lost(self: None, mine: None, world: World, row: int, now: float) -> int:
    job, request = world.jobs[row], request_of(world, row)
    leg = leg_of(world, request)
    if row == request and job.state == UNROUTED:  # its prompt is lost, and its GPU is rid of it
        world.seen.requests[row].gpu = NONE
        return 1
    routed_anew(world, leg)
    if row == request and job.state == HELD:  # it was given back; its prompt's KV is there still
        job.reached = 0
        routed_anew(world, row)
        world.seen.requests[row].gpu = NONE
        world.arrivals[row] = now
        join(world, COMMON, row)
        return 1
    if not is_lost_alone(world, row, request):
        return 1
    whole, made = world.jobs[leg], world.jobs[request]
    if row == leg:
        if whole.shown > made.shown:  # it was served as a whole
            made.ttft_s = whole.ttft_s if np.isnan(made.ttft_s) else made.ttft_s
            made.latency_s, made.output_seen, made.shown = whole.latency_s, whole.output_seen, whole.shown
            world.seen.requests[request].output_seen = whole.output_seen
        return 1
    whole.ttft_s = whole.latency_s = whole.finish_s = np.nan  # nobody saw what its prompt's leg brought
    whole.output_seen = whole.shown = job.shown
    if world.pools.protocol == PULL and world.seen.requests[leg].gpu != NONE:
        let_go(world, request)
    begin_anew(world, leg)
    return 1


# ---------------------------------------------------------------- ending
@compiled
def goes_on(self: None, mine: None, world: World, kind: int, row: int) -> int:
    prompt = prefills(world, int(world.seen.requests[row].gpu))
    part = prompt and (kind == FINISHED or is_part(world, row))
    return int(part or (kind == LOST and world.jobs[row].state == HELD))


@compiled
def refused(self: None, mine: None, world: World, row: int, now: float) -> int:
    request, leg = request_of(world, row), leg_of(world, request_of(world, row))
    requests, held = world.seen.requests, world.jobs[row].state == HELD
    if held and world.jobs[leg].reached != 0:
        let_go(world, row)
    if held or (row == request and is_asked_second(world, row) and requests[leg].gpu != NONE):
        call_none(world.gateway.hear, world.gateway.own, world, CANCELLED, row)
    other = request + leg - row
    if held or requests[other].gpu == NONE:
        return 0
    tell(world, CANCELLED, other, int(requests[other].gpu), 0)
    return int(other == request)


@compiled
def expire(self: None, mine: None, world: World, request: int, now: float) -> int:
    leg, gateway = leg_of(world, request), world.gateway
    if is_part(world, request) and is_being_placed(world, request):
        if is_waiting(world, leg):
            _leave_both(world, request)
        return 1
    row = leg if world.jobs[request].state == UNROUTED else request
    if not is_waiting(world, row):
        return 1
    state = world.jobs[row].state
    cancel(world, row)
    # if KV of it comes from tiers, none does from where its prompt was computed
    if row == request and (state == HELD or (state == RESERVED and not is_loading(world, row))):
        leave_kv(world, row)
    gave_up(world, row)
    if world.seen.requests[row].gpu == NONE:  # the router passes over it when it comes to it
        if row == request:
            call_none(gateway.hear, gateway.own, world, CANCELLED, request)
        else:
            call_int(gateway.leave, gateway.own, world, request, NONE)
        failed(world, request)
    return 1


@compiled
def is_being_placed(world: World, request: int) -> bool:
    """Whether its GPUs are not all chosen, or its prompt is not computed."""
    unrouted = world.jobs[request].state == UNROUTED
    return bool(unrouted or world.jobs[leg_of(world, request)].state in (QUEUED, RUNNING))


@compiled
def _leave_both(world: World, request: int) -> None:
    """Its prompt is not computed yet, and both GPUs may be chosen: wherever it is, each is rid of it."""
    ends, chosen, gateway = True, False, world.gateway
    send_no_more(world, request)
    for row in (leg_of(world, request), request):
        g = int(world.seen.requests[row].gpu)
        if g != NONE:
            chosen = True
            ends = ends and prefills(world, g)
        cancel(world, row)
        gave_up(world, row)
    if not ends:  # when routers have heard of it
        return
    if chosen:
        call_none(gateway.hear, gateway.own, world, CANCELLED, request)
    else:
        call_int(gateway.leave, gateway.own, world, request, NONE)
    failed(world, request)
