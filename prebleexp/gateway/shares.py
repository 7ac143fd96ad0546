"""What clients were given, as the virtual token counter (VTC, Sheng et al., OSDI 2024) counts it: tokens of prompts
when they are sent, and tokens of answers as they are made, each with a weight.

A client of whom nobody waited begins again at what the least of those with waiting requests was given, if it was given
less; if nobody waits at all, at what that client was given whose queue was the last to become empty. So nobody saves
up while absent. Prompt tokens count whole when they are sent; what was found of them in a cache is known with the first
token, and may count less then: a prefix is paid for by whose request computes it, and by others only that weight.
"""

from __future__ import annotations

import numpy as np

from prebleexp.gateway.books import Books
from prebleexp.gateway.lanes import insert, take_out
from prebleexp.sim.compiled import compiled
from prebleexp.sim.plug import call_none
from prebleexp.sim.pools import leg_of, prefills
from prebleexp.sim.records import NONE, World
from prebleexp.sim.types import State

QUEUED, RUNNING = int(State.QUEUED), int(State.RUNNING)


@compiled
def enter(mine: Books, world: World, at: int) -> None:
    """Somebody joins a lane of which nobody waited."""
    lane, least = mine.lanes[at], np.inf
    count_tokens(mine, world)
    for i in range(len(mine.lanes) - 1):
        if mine.lanes[i].length > 0:
            least = min(least, mine.lanes[i].score)
    if mine.control.waiting == 0 and mine.control.emptied != NONE:
        least = mine.lanes[mine.control.emptied].score
    if least < np.inf:
        lane.score = max(lane.score, least)


@compiled
def pay(mine: Books, world: World, request: int) -> None:
    """A request is sent: its prompt is paid for."""
    one = mine.requests[request]
    mine.lanes[one.lane].score += mine.terms.input_weight * world.seen.requests[request].prompt_tokens
    one.charged = world.jobs[request].shown
    one.rebated = 0
    insert(mine, len(mine.lanes) - 1, request)


@compiled
def settle_up(mine: Books, world: World, request: int) -> None:
    """A request is in flight no more."""
    _charge(mine, world, request)
    take_out(mine, len(mine.lanes) - 1, request)


@compiled
def count_tokens(mine: Books, world: World) -> None:
    """Charge clients for all that was made of their answers by now."""
    request = mine.lanes[len(mine.lanes) - 1].head
    while request != NONE:
        row = _answering(world, request)
        if world.jobs[row].reached != 0 and world.jobs[row].state in (QUEUED, RUNNING):
            engine = world.engines[world.seen.requests[row].gpu]
            call_none(engine.settle, engine.own, world, row, world.control.now)
        _charge(mine, world, request)
        request = mine.requests[request].next


@compiled
def _answering(world: World, request: int) -> int:
    """The row of a request in flight that makes its answer: itself, unless its prompt's GPU does."""
    leg = leg_of(world, request)
    g = int(world.seen.requests[leg].gpu)
    return request if g == NONE or prefills(world, g) else leg


@compiled
def _charge(mine: Books, world: World, request: int) -> None:
    row, leg = _answering(world, request), leg_of(world, request)
    one, made, seen = mine.requests[request], world.jobs[row].output_seen, world.seen.requests[row]
    if np.isnan(seen.ttft_s):
        return
    if one.rebated == 0:
        one.rebated = 1
        prompt = leg if world.seen.requests[leg].gpu != NONE else request
        found = max(0, seen.prompt_tokens - world.jobs[prompt].prefilled_tokens)
        mine.lanes[one.lane].score -= (mine.terms.input_weight - mine.terms.cached_weight) * found
    if made > one.charged:
        mine.lanes[one.lane].score += mine.terms.output_weight * (made - one.charged)
        one.charged = made
