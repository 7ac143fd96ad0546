"""A request whose two GPUs are both chosen at arrival, and whose prompt waits for room where its output is made
(RESERVE_FIRST): if one of the two is down before the prompt is computed, the other one is rid of it at once.

Routers hear of it as of a prompt that is lost: the row that makes its output is as if it had not been sent.
"""

from __future__ import annotations

from prebleexp.sim.compiled import compiled
from prebleexp.sim.events import REACHED, key, remove
from prebleexp.sim.plug import call_int
from prebleexp.sim.pools import leg_of, request_of
from prebleexp.sim.pulling import send_no_more
from prebleexp.sim.records import NONE, World
from prebleexp.sim.types import State
from prebleexp.sim.waking import wake

UNROUTED, LOST = int(State.UNROUTED), int(State.LOST)


@compiled
def severed(world: World, row: int) -> int:
    """A part of a request has reached a GPU that is down: the row that is lost by that. If nobody knows yet that the
    output's GPU is down, that is the request, and its prompt goes on waiting."""
    request, requests = request_of(world, row), world.seen.requests
    job, leg = world.jobs[request], leg_of(world, request)
    if row == request and world.servers[requests[row].gpu].gone == 0:
        return row
    if row == leg and job.reached != 0 and job.state != LOST:
        engine = world.engines[requests[request].gpu]
        call_int(engine.cancel, engine.own, world, request, world.control.now)
    come_no_more(world, request)
    world.jobs[leg].reached = 1
    return leg


@compiled
def come_no_more(world: World, request: int) -> None:
    """Neither part of it is on its way any more, nor is KV, and both GPUs, if idle, look who may go on."""
    send_no_more(world, request)
    for row in (leg_of(world, request), request):
        remove(world.events, world.control, key(REACHED, row))
        g = int(world.seen.requests[row].gpu)
        if g != NONE:
            wake(world, g)
    world.jobs[request].state, world.jobs[request].reached = UNROUTED, 0
