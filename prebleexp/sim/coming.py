"""A request comes, or goes, while a run is stepped (see `prebleexp.sim.stepped`); which one is `control.subject`."""

from __future__ import annotations

from typing import Any

from prebleexp.sim.entry import compiled_for
from prebleexp.sim.events import SUBMIT, key, push
from prebleexp.sim.patience import hang_up
from prebleexp.sim.records import NONE
from prebleexp.sim.sessions import look_ahead
from prebleexp.sim.world import EXAMPLE


@compiled_for(EXAMPLE)
def enter(world: Any) -> int:
    """A request that comes from outside is due: it gets its SUBMIT."""
    request, sessions = int(world.control.subject), world.sessions
    world.control.kind = NONE
    world.arrivals[request] = world.seen.requests[request].arrival_s + world.rules.submit_s
    push(sessions.timers, sessions.control, world.arrivals[request], key(SUBMIT, request))
    look_ahead(world)
    return 0


@compiled_for(EXAMPLE)
def leave(world: Any) -> int:
    """Whoever waits for its tokens has gone: it leaves, as one does whose patience is over, whatever it has shown."""
    request = int(world.control.subject)
    world.control.kind = NONE
    hang_up(world, request)
    return 0
