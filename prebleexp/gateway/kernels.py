"""A gateway in a run: who is let in, who waits, who is next, who waited too long. See `prebleexp.gateway.base`.

| function | when it is called |
| --- | --- |
| `arrive` | a request is due; whether it is let in |
| `join` | it was lost with its GPU, and waits again |
| `offer` | the router is free and a GPU may get somebody: whom shall it be asked about? |
| `leave` | a request leaves the queue: for a GPU, or for good |
| `release` | something has ended, so that the router may be asked about everybody again |
| `expire` | a timer rings |
| `hear` | a request that was sent is finished, cancelled or lost |
"""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.gateway.admission import refused
from prebleexp.gateway.books import EDF, VTC, Books
from prebleexp.gateway.lanes import begin_round, chosen, insert, pass_by, take_out
from prebleexp.gateway.shares import count_tokens, enter, pay, settle_up
from prebleexp.sim.compiled import compiled
from prebleexp.sim.events import EXPIRE, key, push
from prebleexp.sim.records import NONE, World
from prebleexp.sim.sessions import failed, look_ahead
from prebleexp.sim.types import State

EXPIRED = int(State.EXPIRED)


@compiled
def arrive(self: Any, mine: Books, world: World, request: int, now: float) -> int:
    why = refused(mine, world, request, now)
    mine.requests[request].refused_by = why
    if why != 0:
        return 0
    join(self, mine, world, request, now)
    return 1


@compiled
def join(self: Any, mine: Books, world: World, request: int, now: float) -> None:
    gate, one = mine.control, mine.requests[request]
    lane = mine.lanes[one.lane]
    if mine.terms.order == VTC and lane.length == 0:
        enter(mine, world, one.lane)
    if mine.terms.order == EDF:
        one.rank = world.seen.requests[request].arrival_s + lane.score
    one.number, one.waits, one.asked = gate.tickets, 1, NONE
    gate.tickets += 1
    gate.waiting += 1
    gate.waiting_tokens += world.seen.requests[request].prompt_tokens
    insert(mine, one.lane, request)
    if lane.upcoming == NONE or one.rank < mine.requests[lane.upcoming].rank:
        lane.upcoming = request
    one.until_s = now + mine.terms.ttl_s
    if one.until_s < np.inf and np.isnan(one.rings_s):
        _ring(mine, world, request)
    world.control.offering = 1


@compiled
def offer(self: Any, mine: Books, world: World, now: float) -> int:
    if mine.terms.order == VTC:
        count_tokens(mine, world)
    at = chosen(mine)
    if at == NONE:
        return NONE
    request = int(mine.lanes[at].upcoming)
    mine.requests[request].asked = mine.control.rounds
    mine.control.asked += 1
    mine.control.turn = at
    pass_by(mine, at)
    return request


@compiled
def leave(self: Any, mine: Books, world: World, request: int, g: int) -> None:
    gate, one = mine.control, mine.requests[request]
    lane = mine.lanes[one.lane]
    if lane.upcoming == request:
        pass_by(mine, one.lane)
    if one.asked == gate.rounds:
        gate.asked -= 1
    take_out(mine, one.lane, request)
    one.waits = 0
    gate.waiting -= 1
    gate.waiting_tokens -= world.seen.requests[request].prompt_tokens
    if lane.length == 0:
        gate.emptied = one.lane
    if mine.terms.order == VTC and g >= 0:
        pay(mine, world, request)


@compiled
def release(self: Any, mine: Books, world: World, now: float) -> None:
    if mine.control.asked > 0:
        begin_round(mine)
    if mine.control.waiting > 0:
        world.control.offering = 1


@compiled
def expire(self: Any, mine: Books, world: World, request: int, now: float) -> int:
    """1: it was the timer of its time in the queue that rang."""
    one, control = mine.requests[request], world.control
    if one.rings_s != now:
        return 0
    one.rings_s = np.nan
    if one.waits == 0:
        return 1
    if one.until_s > now:  # it has joined again since
        _ring(mine, world, request)
        return 1
    leave(self, mine, world, request, NONE)
    world.jobs[request].state = EXPIRED
    control.unfinished -= 1
    control.present -= 1
    failed(world, request)
    return 1


@compiled
def _ring(mine: Books, world: World, request: int) -> None:
    sessions, one = world.sessions, mine.requests[request]
    one.rings_s = one.until_s
    push(sessions.timers, sessions.control, one.until_s, key(EXPIRE, request))
    look_ahead(world)


@compiled
def hear(self: Any, mine: Books, world: World, kind: int, request: int) -> None:
    if mine.terms.order == VTC:
        settle_up(mine, world, request)
