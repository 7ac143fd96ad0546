"""A handoff for which room is reserved first (RESERVE_FIRST), where the output is made.

Both GPUs know the request from when it is sent, and one may wait for the other: so both look who may go on when it
leaves. All else is as in any handoff (`prebleexp.sim.handoff`).
"""

from __future__ import annotations

from typing import Any

from prebleexp.sim import handoff
from prebleexp.sim.compiled import compiled
from prebleexp.sim.patience import is_waiting
from prebleexp.sim.pools import is_part, leg_of, prefills, request_of
from prebleexp.sim.records import NONE, World
from prebleexp.sim.router import lose, pass_frontend
from prebleexp.sim.severing import severed
from prebleexp.sim.types import State
from prebleexp.sim.waking import wake

RESERVED, LOST = int(State.RESERVED), int(State.LOST)


def __getattr__(name: str) -> Any:
    return getattr(handoff, name)


@compiled
def placed(self: None, mine: None, world: World, row: int, now: float) -> int:
    """When both GPUs are chosen, the output's is told of it, too, unless the prompt's is found to be down."""
    here = handoff.placed(self, mine, world, row, now)
    if row == request_of(world, row) and world.jobs[leg_of(world, row)].state != LOST:
        pass_frontend(world, row)
    return here


@compiled
def waits(self: None, mine: None, world: World, row: int, now: float) -> int:
    prompt = prefills(world, int(world.seen.requests[row].gpu))
    return int(prompt and world.jobs[request_of(world, row)].state != RESERVED)


@compiled
def lost_on_the_way(self: None, mine: None, world: World, row: int, now: float) -> int:
    is_known = world.servers[world.seen.requests[row].gpu].gone != 0
    lose(world, severed(world, row) if is_part(world, row) else row, is_known)
    return 1


@compiled
def expire(self: None, mine: None, world: World, request: int, now: float) -> int:
    leg = leg_of(world, request)
    if handoff.is_being_placed(world, request) and is_waiting(world, leg):
        for row in (leg, request):
            g = int(world.seen.requests[row].gpu)
            if g != NONE:
                wake(world, g)
    return handoff.expire(self, mine, world, request, now)
