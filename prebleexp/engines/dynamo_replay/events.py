"""What happens, and to whom: kinds and codes of events."""

from __future__ import annotations

from prebleexp.engines.dynamo_replay.records import Sim
from prebleexp.engines.serial_heap import push as put
from prebleexp.sim.compiled import compiled

STEP, TRANSFER = range(2)
"""a worker's step ends; a request's KV has come"""


@compiled
def push(sim: Sim, time: float, kind: int, subject: int) -> None:
    put(sim.events, sim.control, time, subject << 1 | kind)
