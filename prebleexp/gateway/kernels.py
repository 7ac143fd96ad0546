"""A gateway in a run: who is let in, who waits, who is next, who waited too long. See `prebleexp.gateway.base`.

| function | when it is called |
| --- | --- |
| `arrive` | a request is due; whether it waits, or comes again, or is turned away |
| `join` | it was lost with its GPU, of which routers have heard, or given back; likewise |
| `offer` | a router is free and a GPU may get somebody: who is next? |
| `misses` | a router is free for a request that was offered: has it left the queue since? |
| `leave` | a router has answered about a request, or it gave up; whether it is here all the same |
| `release` | something has ended, so that the router may be asked about everybody again |
| `expire` | a timer rings |
| `hear` | a request that was sent is finished, cancelled or lost |
"""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.gateway.admission import refused
from prebleexp.gateway.books import DLPM, DRR, EDF, VTC, Books
from prebleexp.gateway.lanes import begin_round, chosen, come_back, insert, pass_by, take_out
from prebleexp.gateway.prefixes import longest, remember
from prebleexp.gateway.retries import begin, comes_again, comes_back, over, succeeds
from prebleexp.gateway.shares import count_tokens, enter, pay, settle_up
from prebleexp.sim.answers import HOLD, REFUSE, TURNED_AWAY, WAITS
from prebleexp.sim.compiled import compiled
from prebleexp.sim.events import EXPIRE, key, push
from prebleexp.sim.notices import FINISHED
from prebleexp.sim.pools import leg_of
from prebleexp.sim.records import NONE, World
from prebleexp.sim.sessions import failed, look_ahead
from prebleexp.sim.types import State

EXPIRED, REFUSED, LOST = int(State.EXPIRED), int(State.REFUSED), int(State.LOST)
FAILED = int(State.FAILED)


@compiled
def arrive(self: Any, mine: Books, world: World, request: int, now: float) -> int:
    begin(mine, now)
    return _attempt(mine, world, request, now)


@compiled
def _attempt(mine: Books, world: World, request: int, now: float) -> int:
    why = refused(mine, world, request, now)
    if why == 0:
        _queue(mine, world, request, now)
        return WAITS
    again = comes_again(mine, world, request, now)
    mine.requests[request].refused_by = 0 if again != 0 else why
    return WAITS if again != 0 else TURNED_AWAY


@compiled
def join(self: Any, mine: Books, world: World, request: int, now: float) -> int:
    state = world.jobs[request].state
    is_lost = state == FAILED or LOST in (state, world.jobs[leg_of(world, request)].state)
    if mine.again.terms.retries > 0 and is_lost:
        return WAITS if comes_again(mine, world, request, now) != 0 else TURNED_AWAY
    _queue(mine, world, request, now)
    return WAITS


@compiled
def _queue(mine: Books, world: World, request: int, now: float) -> None:
    gate, one = mine.control, mine.requests[request]
    lane = mine.lanes[one.lane]
    if mine.terms.order == VTC and lane.length == 0:
        enter(mine, world, one.lane)
    if mine.terms.order == EDF:
        one.rank = world.seen.requests[request].arrival_s + lane.score
    if mine.terms.order == DRR:
        told, terms = world.seen.requests[request], mine.terms
        one.cost = terms.input_weight * told.prompt_tokens + terms.output_weight * told.expected_output
    one.number, one.waits, one.asked = gate.tickets, 1, NONE
    gate.tickets += 1
    gate.waiting += 1
    gate.waiting_tokens += world.seen.requests[request].prompt_tokens
    insert(mine, one.lane, request)
    if one.offered == 0 and (lane.upcoming == NONE or one.rank < mine.requests[lane.upcoming].rank):
        lane.upcoming = request
    one.until_s = now + mine.terms.ttl_s
    if one.until_s < np.inf and np.isnan(one.rings_s):
        _ring(mine, world, request)
    world.control.offering = 1


@compiled
def offer(self: Any, mine: Books, world: World, now: float) -> int:
    if mine.terms.order in (VTC, DLPM):
        count_tokens(mine, world)
    if mine.terms.order == DLPM:
        request = longest(mine, world)
    else:
        at = chosen(mine)
        request = int(mine.lanes[at].upcoming) if at != NONE else NONE
    if request == NONE:
        return NONE
    at = int(mine.requests[request].lane)
    mine.requests[request].asked, mine.requests[request].offered = mine.control.rounds, 1
    mine.control.asked += 1
    mine.control.turn = at
    if mine.lanes[at].upcoming == request:
        pass_by(mine, at)
    return request


@compiled
def misses(self: Any, mine: Books, world: World, request: int) -> int:
    one = mine.requests[request]
    if one.waits == 0:
        one.offered = 0
    elif one.asked != mine.control.rounds:
        one.asked = mine.control.rounds
        mine.control.asked += 1
    return int(one.waits == 0)


@compiled
def leave(self: Any, mine: Books, world: World, request: int, answer: int) -> int:
    """`answer`: the GPU it is for, REFUSE, HOLD: it stays, or NONE: it gave up. 1: nothing comes of that, since it
    stays, or was refused, or expired while the router decided, and comes again."""
    one = mine.requests[request]
    one.offered = 0
    if answer == HOLD:
        if one.waits != 0 and one.asked != mine.control.rounds:
            come_back(mine, one.lane, request)
        return 1
    if mine.requests[request].waits != 0:
        _take_out(mine, world, request)
    elif answer != NONE:
        return 1
    if answer == REFUSE:
        return comes_again(mine, world, request, world.control.now)
    if answer == NONE:
        over(mine, request)
        comes_back(mine, request)
    elif mine.terms.order in (VTC, DLPM):
        pay(mine, world, request)
        if mine.terms.order == DLPM:
            remember(mine, world, request)
    elif mine.terms.order == DRR and mine.lanes[mine.requests[request].lane].length > 0:
        mine.lanes[mine.requests[request].lane].score -= mine.requests[request].cost
    return 0


@compiled
def _take_out(mine: Books, world: World, request: int) -> None:
    """Take a request out of the gateway's queue."""
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
        if mine.terms.order == DRR:
            lane.score = 0.0  # nobody saves up while absent


@compiled
def release(self: Any, mine: Books, world: World, now: float) -> None:
    if mine.control.asked > 0:
        begin_round(mine)
    if mine.control.waiting > 0:
        world.control.offering = 1


@compiled
def expire(self: Any, mine: Books, world: World, request: int, now: float) -> int:
    """0: its patience is over. 1: a timer of the gateway rang, or none that matters any more."""
    one, patience_s = mine.requests[request], world.sessions.patience_s
    if one.again_s == now:
        one.again_s = np.nan
        if one.away != 0:
            comes_back(mine, request)
            if _attempt(mine, world, request, now) == TURNED_AWAY:
                _end(mine, world, request, REFUSED)
        return 1
    if one.rings_s == now:
        one.rings_s = np.nan
        if one.waits != 0 and one.until_s > now:  # it has joined again since
            _ring(mine, world, request)
        elif one.waits != 0:
            _take_out(mine, world, request)
            if comes_again(mine, world, request, now) == 0:
                _end(mine, world, request, EXPIRED)
        return 1
    is_over = len(patience_s) > 0 and world.seen.requests[request].arrival_s + patience_s[request] <= now
    return int(not is_over)


@compiled
def _end(mine: Books, world: World, request: int, state: int) -> None:
    """A request ends, since its last attempt has failed."""
    world.jobs[request].state = world.jobs[leg_of(world, request)].state = state
    failed(world, request)


@compiled
def _ring(mine: Books, world: World, request: int) -> None:
    sessions, one = world.sessions, mine.requests[request]
    one.rings_s = one.until_s
    push(sessions.timers, sessions.control, one.until_s, key(EXPIRE, request))
    look_ahead(world)


@compiled
def hear(self: Any, mine: Books, world: World, kind: int, request: int) -> None:
    if mine.terms.order in (VTC, DLPM):
        settle_up(mine, world, request)
    over(mine, request)
    if kind == FINISHED:
        succeeds(mine)
