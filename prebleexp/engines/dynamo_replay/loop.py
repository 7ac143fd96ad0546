"""The event loop of Dynamo's replay. It is entered once a run.

At one instant: steps end and KV comes; then decode workers hear of it, of ended steps first, then of requests handed
over, then of KV that came, and reserve; then workers begin steps, in order of their numbers, prefill workers first. Who
arrives at that instant does so when all that is done.
"""

from __future__ import annotations

import numpy as np

from prebleexp.engines.dynamo_replay import decode, prefill
from prebleexp.engines.dynamo_replay.events import STEP
from prebleexp.engines.dynamo_replay.records import REFUSED, Sim
from prebleexp.engines.dynamo_replay.routing import decode_worker_of, prefill_worker_of
from prebleexp.engines.dynamo_replay.state import EXAMPLE
from prebleexp.engines.dynamo_replay.touched import next_touched
from prebleexp.engines.serial_heap import pop
from prebleexp.sim.compiled import compiled
from prebleexp.sim.entry import compiled_for

DONE, PAUSED = range(2)
"""why the loop returned"""


@compiled
def _arrival_ms(sim: Sim) -> float:
    control = sim.control
    return sim.requests[control.arrived].arrival_ms if control.arrived < len(sim.requests) else np.inf


@compiled
def _arrive(sim: Sim) -> None:
    """Take in all requests that arrive now."""
    control = sim.control
    while _arrival_ms(sim) == control.now:
        request = int(control.arrived)
        control.arrived += 1
        if sim.requests[request].stage == REFUSED:
            control.unfinished -= 1
            continue
        if sim.rules.reserve_first:
            decode_worker_of(sim, request)
            sim.handed_over[control.handed_over] = request
            control.handed_over += 1
        else:
            prefill_worker_of(sim, request)
            prefill.receive(sim, request)
    _tell(sim)


@compiled
def _happen(sim: Sim) -> None:
    """All events of now, and those of transfers that take no time."""
    control, events = sim.control, sim.events
    while control.events > 0 and events.times[0] == control.now:
        while control.events > 0 and events.times[0] == control.now:
            code = pop(events, control)
            subject = code >> 1
            if code & 1 != STEP:
                decode.arrive(sim, subject)
            elif subject < sim.rules.prefills:
                prefill.end(sim, subject)
            else:
                decode.end(sim, subject)
        _tell(sim)


@compiled
def _tell(sim: Sim) -> None:
    """Decode workers hear of what has happened."""
    control = sim.control
    for i in range(control.ended):
        decode.reserve(sim, int(sim.ended[i]))
    for i in range(control.handed_over):
        decode.accept(sim, int(sim.handed_over[i]))
    control.ended = control.handed_over = 0
    for i in range(control.touched - 1, -1, -1):
        w = int(sim.touched[i])
        if w >= sim.rules.prefills:
            decode.activate(sim, w)


@compiled
def _begin(sim: Sim) -> None:
    while sim.control.touched > 0:
        w = next_touched(sim)
        if w < sim.rules.prefills:
            prefill.work(sim, w)
        else:
            decode.work(sim, w)


@compiled_for(EXAMPLE)
def advance(sim: Sim) -> int:
    """Run until the end, or until Python is needed; returns why."""
    control, rules = sim.control, sim.rules
    for _ in range(rules.pause):
        arrival_ms = _arrival_ms(sim)
        event_ms = sim.events.times[0] if control.events > 0 else np.inf
        next_ms = min(arrival_ms, event_ms)
        if control.unfinished == 0 or next_ms == np.inf:
            return DONE
        if next_ms > rules.end_ms:
            control.stopped = 1
            return DONE
        control.now = next_ms
        if event_ms <= arrival_ms:
            _happen(sim)
        else:
            _arrive(sim)
        _begin(sim)
    return PAUSED
