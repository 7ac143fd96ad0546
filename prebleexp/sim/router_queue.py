"""Who waits for the router, in order, and who is held by it: lists that are linked by `next`."""

from __future__ import annotations

from prebleexp.sim.compiled import compiled
from prebleexp.sim.plug import call_none
from prebleexp.sim.records import NONE, World


@compiled
def join(world: World, request: int) -> None:
    control = world.control
    world.jobs[request].next = NONE
    if control.queue_head == NONE:
        control.queue_head = request
    else:
        world.jobs[control.queue_tail].next = request
    control.queue_tail = request


@compiled
def hold(world: World, request: int) -> None:
    control = world.control
    world.jobs[request].next = NONE
    if control.held_head == NONE:
        control.held_head = request
    else:
        world.jobs[control.held_tail].next = request
    control.held_tail = request


@compiled
def release(world: World) -> None:
    """Something has ended: what was held is asked for again, before what came later."""
    control, gateway = world.control, world.gateway
    control.missed = control.deciding
    if world.rules.gated:
        call_none(gateway.release, gateway.own, world, control.now)
    if control.held_head == NONE:
        return
    world.jobs[control.held_tail].next = control.queue_head
    if control.queue_head == NONE:
        control.queue_tail = control.held_tail
    control.queue_head, control.held_head = control.held_head, NONE
