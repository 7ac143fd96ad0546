"""A change of a GPU as the loop sees it: what was shown until then, and the next one."""

from __future__ import annotations

from prebleexp.sim.changes import DOWN, LIMIT
from prebleexp.sim.compiled import compiled
from prebleexp.sim.events import CHANGE, key, push
from prebleexp.sim.plug import call_none
from prebleexp.sim.records import World
from prebleexp.sim.types import State

THERE = (int(State.QUEUED), int(State.RUNNING), int(State.RESERVED))


@compiled
def change(world: World, row: int) -> None:
    """A row of the timeline is due: if that is the end of requests, what have they reported? All else is done by
    `prebleexp.sim.changes`."""
    timeline, control = world.timeline, world.control
    g = int(timeline[row].gpu)
    if timeline[row].event in (DOWN, LIMIT):
        engine = world.engines[g]
        for request in range(len(world.jobs)):
            job = world.jobs[request]
            if world.seen.requests[request].gpu == g and job.reached != 0 and job.state in THERE:
                call_none(engine.settle, engine.own, world, request, control.now)
    if row + 1 < world.rules.changes:  # others are put into the queue when it comes to them
        push(world.events, control, timeline[row + 1].at_s, key(CHANGE, row + 1))
