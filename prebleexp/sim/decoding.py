"""GPUs that decode, one step after the other, while nothing else happens in the cluster.

A GPU's step ends and its next one begins in one call of its engine, if that says that nothing but tokens comes of the
one and that the other is like it (`decode`, see `prebleexp.engines.base`). Steps of all GPUs are taken in the order in
which they end, so that everything is as it is where both are events.
"""

from __future__ import annotations

from prebleexp.sim.compiled import compiled
from prebleexp.sim.events import END, kind_of, put_first, subject_of
from prebleexp.sim.plug import call_float
from prebleexp.sim.records import NONE, STEPPING, World
from prebleexp.sim.router_queue import release
from prebleexp.sim.router_records import HELD
from prebleexp.sim.touching import touch


@compiled
def decode(world: World, most: int) -> int:
    """Take such steps, at most so many, until another event is next, or routers are to hear of something; how many."""
    control, events, rules = world.control, world.events, world.rules
    if rules.singly or world.gaps.each or world.lists[HELD].head != NONE:
        return 0  # whoever is held is asked for again whenever a step ends
    until, steps = min(world.sessions.control.time, world.links.control.time), 0
    while steps < most and control.events > 0 and control.news == 0:
        time, g = events.times[0], subject_of(events.keys[0])
        if kind_of(events.keys[0]) != END or time >= until or time > control.until or time > rules.end_s:
            break
        engine, server = world.engines[g], world.servers[g]
        if engine.decode == 0 or server.stage != STEPPING or server.ends_s != time:
            break
        if (control.events > 1 and events.times[1] == time) or (control.events > 2 and events.times[2] == time):
            break  # what else happens then is between an end and a beginning
        seconds = call_float(engine.decode, engine.own, world, g, time)
        if seconds < 0:
            break
        server.begun_s, server.ends_s = time, time + seconds / server.speed
        control.now = control.clock = time
        put_first(events, control, server.ends_s)
        touch(world, g)
        steps += 1
    if steps > 0:
        release(world)
    return steps
