"""A change of a GPU as the loop sees it: what was shown until then, and the next one."""

from __future__ import annotations

from prebleexp.sim import records
from prebleexp.sim.changes import DOWN, UP
from prebleexp.sim.compiled import compiled
from prebleexp.sim.events import CHANGE, key, push
from prebleexp.sim.moves import abandon
from prebleexp.sim.plug import call_none
from prebleexp.sim.records import IDLE, World
from prebleexp.sim.types import State

QUEUED, RUNNING = int(State.QUEUED), int(State.RUNNING)


@compiled
def change(world: World, row: int) -> None:
    """A row of the timeline is due: if that is the end of requests, what have they reported? All else is done by
    `prebleexp.sim.changes`."""
    timeline, control = world.timeline, world.control
    g = int(timeline[row].gpu)
    if timeline[row].event == DOWN:
        engine = world.engines[g]
        for request in range(len(world.jobs)):
            job = world.jobs[request]
            if world.seen.requests[request].gpu == g and job.reached != 0 and job.state in (QUEUED, RUNNING):
                call_none(engine.settle, engine.own, world, request, control.now)
        world.servers[g].stage = records.DOWN
        abandon(world, g)
    elif timeline[row].event == UP and world.servers[g].stage == IDLE:  # it was drained: what it has is dropped
        abandon(world, g)
    if row + 1 < len(timeline):
        push(world.events, control, timeline[row + 1].at_s, key(CHANGE, row + 1))
