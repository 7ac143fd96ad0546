"""A GPU that has nothing to do is woken by what may give it something to do."""

from __future__ import annotations

from prebleexp.sim.compiled import compiled
from prebleexp.sim.events import START, key, push
from prebleexp.sim.records import AWAKE, IDLE, World


@compiled
def wake(world: World, g: int) -> None:
    """Let an idle GPU begin a step, when all else of this instant has happened."""
    server = world.servers[g]
    if server.stage == IDLE:
        server.stage = AWAKE
        push(world.events, world.control, world.control.now, key(START, g))


@compiled
def wake_at(world: World, g: int, time: float) -> None:
    """The same then, unless something else wakes it before."""
    if time == world.control.now:
        wake(world, g)
    else:
        push(world.events, world.control, time, key(START, g))
