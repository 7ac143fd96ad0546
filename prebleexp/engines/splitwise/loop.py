"""The event loop of Splitwise's simulator. It is entered once a run, or goes on where it stopped when lists were full.

Requests arrive in order. At one instant what was made first comes first; arrivals were made when the run began.
"""

from __future__ import annotations

import numpy as np

from prebleexp.engines.serial_heap import pop
from prebleexp.engines.splitwise.events import BATCH, KIND_BITS, TRANSFER
from prebleexp.engines.splitwise.machine import come, end, freed, work
from prebleexp.engines.splitwise.records import Sim
from prebleexp.engines.splitwise.routers import route
from prebleexp.engines.splitwise.state import EXAMPLE
from prebleexp.engines.splitwise.transfers import arrived, send
from prebleexp.sim.compiled import compiled
from prebleexp.sim.entry import compiled_for

DONE, NEEDS_ROOM, PAUSED = range(3)
"""why the loop returned"""


@compiled
def _arrival_s(sim: Sim) -> float:
    """When the next request arrives, if that comes before the next event; else infinity."""
    control, events = sim.control, sim.events
    if control.arrived == len(sim.requests):
        return np.inf
    time = sim.requests[control.arrived].arrival_s
    if control.events == 0 or time < events.times[0]:
        return time
    return time if time == events.times[0] and events.serials[0] >= control.first_serial else np.inf


@compiled
def _arrive(sim: Sim) -> None:
    request = int(sim.control.arrived)
    sim.control.arrived += 1
    route(sim, request)
    come(sim, 2 * request)
    if not sim.requests[request].moves:
        come(sim, 2 * request + 1)


@compiled
def _happen(sim: Sim) -> None:
    """The next event of the heap."""
    control = sim.control
    serial, time = sim.events.serials[0], sim.events.times[0]
    code = pop(sim.events, control)
    kind, subject = code & ((1 << KIND_BITS) - 1), code >> KIND_BITS
    if kind == BATCH and sim.machines[subject].event != serial:
        return  # it was cut
    control.now = time
    if kind == TRANSFER:
        control.retrying -= 1
        control.fruitless += 1
        send(sim, subject)
        return
    control.fruitless = 0
    if kind == BATCH:
        end(sim, subject)
        work(sim, subject)
    else:
        source = arrived(sim, subject)
        come(sim, 2 * subject + 1)
        freed(sim, source)


@compiled
def _is_stuck(sim: Sim) -> bool:
    """Whether nothing is left but transfers that will never find memory."""
    control = sim.control
    nothing_moves = control.moving == 0 and control.arrived == len(sim.requests)
    return nothing_moves and control.fruitless > control.retrying


@compiled_for(EXAMPLE)
def advance(sim: Sim) -> int:
    """Run until the end, or until Python is needed; returns why."""
    control, rules = sim.control, sim.rules
    for _ in range(rules.pause):
        arrival_s = _arrival_s(sim)
        none_left = arrival_s == np.inf and control.events == 0
        if none_left or control.unfinished == 0 or _is_stuck(sim):
            return DONE
        next_s = min(arrival_s, sim.events.times[0]) if control.events > 0 else arrival_s
        if next_s > rules.end_s:
            control.stopped = 1
            return DONE
        if control.most_requests == sim.lists.requests.shape[1]:
            return NEEDS_ROOM
        if arrival_s < np.inf:
            control.now, control.fruitless = arrival_s, 0
            _arrive(sim)
            if arrival_s == 0:  # at once: what comes of it is made before the other arrivals
                control.first_serial = control.serial
        else:
            _happen(sim)
    return PAUSED
