"""Who waits for routers, in order, and who is held: lists that are linked by `next`.

Who waits is in one list, which is common to all routers. If whoever is first comes to a router that is busy, it waits
in a list of that router's own from then on, and comes first when that is free.
"""

from __future__ import annotations

from prebleexp.sim.compiled import compiled
from prebleexp.sim.plug import call_int, call_none
from prebleexp.sim.pools import request_of
from prebleexp.sim.records import NONE, World
from prebleexp.sim.router_records import COMMON, HELD, OWN


@compiled
def join(world: World, at: int, request: int) -> None:
    """It is the last of a list."""
    one = world.lists[at]
    world.jobs[request].next = NONE
    if one.head == NONE:
        one.head = request
    else:
        world.jobs[one.tail].next = request
    one.tail = request


@compiled
def call_next(world: World) -> None:
    """Of a router that is free since, who waits for it alone comes before all others."""
    control = world.control
    if control.freed == NONE:
        return
    own, common = world.lists[OWN + control.freed], world.lists[COMMON]
    request = int(own.head)
    if request == NONE:
        control.freed = NONE
        return
    own.head = world.jobs[request].next
    world.jobs[request].next = common.head
    if common.head == NONE:
        common.tail = request
    common.head = request


@compiled
def router_of(world: World, row: int) -> int:
    """To which router a request comes, which is asked about its prompt and its output."""
    return call_int(world.books.whose, world.books.own, world, request_of(world, row))


@compiled
def release(world: World) -> None:
    """Something has ended: what was held is asked for again, before what came later."""
    control, gateway, common, held = world.control, world.gateway, world.lists[COMMON], world.lists[HELD]
    for r in range(len(world.routers)):
        world.routers[r].missed = world.routers[r].deciding
    call_none(gateway.release, gateway.own, world, control.now)
    if held.head == NONE:
        return
    world.jobs[held.tail].next = common.head
    if common.head == NONE:
        common.tail = held.tail
    common.head, held.head = held.head, NONE
