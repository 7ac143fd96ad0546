"""Workers to look at, of which something has happened at this instant: in order of their numbers."""

from __future__ import annotations

from prebleexp.engines.dynamo_replay.records import Sim
from prebleexp.sim.compiled import compiled


@compiled
def touch(sim: Sim, w: int) -> None:
    if sim.workers[w].touched:
        return
    sim.workers[w].touched = 1
    at = int(sim.control.touched)
    while at > 0 and sim.touched[at - 1] < w:
        sim.touched[at] = sim.touched[at - 1]
        at -= 1
    sim.touched[at] = w
    sim.control.touched += 1


@compiled
def next_touched(sim: Sim) -> int:
    """Take out the first; there must be one."""
    sim.control.touched -= 1
    w = int(sim.touched[sim.control.touched])
    sim.workers[w].touched = 0
    return w
