"""Round robin: over prefill workers as requests come to them, over decode workers as each is handed over."""

from __future__ import annotations

from prebleexp.engines.dynamo_replay.records import Sim
from prebleexp.sim.compiled import compiled


@compiled
def prefill_worker_of(sim: Sim, request: int) -> None:
    if not sim.rules.routed:
        control = sim.control
        sim.requests[request].prefill_worker = control.next_prefill
        control.next_prefill = (control.next_prefill + 1) % sim.rules.prefills


@compiled
def decode_worker_of(sim: Sim, request: int) -> None:
    if not sim.rules.routed:
        control = sim.control
        sim.requests[request].decode_worker = sim.rules.prefills + control.next_decode
        control.next_decode = (control.next_decode + 1) % sim.rules.decodes
