"""What happens, and to whom: kinds and codes of events."""

from __future__ import annotations

from prebleexp.engines.serial_heap import push as put
from prebleexp.engines.splitwise.records import Sim
from prebleexp.sim.compiled import compiled

BATCH, TRANSFER, MOVED = range(3)
"""a machine's batch ends; a request's transfer may begin, if there is memory; it ends"""
KIND_BITS = 2


@compiled
def push(sim: Sim, time: float, kind: int, subject: int) -> int:
    """Returns the event's serial, from 0 on, which breaks ties."""
    return put(sim.events, sim.control, time, subject << KIND_BITS | kind)
