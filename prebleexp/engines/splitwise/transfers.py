"""KV on its way from the machine of a prompt to that of its tokens: at the full rate, however many there are."""

from __future__ import annotations

from prebleexp.engines.splitwise.events import MOVED, TRANSFER, push
from prebleexp.engines.splitwise.records import Sim
from prebleexp.engines.splitwise.tables import MEMORY
from prebleexp.sim.compiled import compiled

RETRY_S = 1.0
"""until it is tried again, where there was no memory"""


@compiled
def send(sim: Sim, request: int) -> None:
    """A transfer begins if its target has memory for the prompt; it takes that at once."""
    control, one = sim.control, sim.requests[request]
    target = sim.machines[sim.tasks[2 * request + 1].machine]
    if target.memory + one.memory > MEMORY:
        control.retrying += 1
        push(sim, control.now + RETRY_S, TRANSFER, request)
        return
    target.memory += one.memory
    target.most_memory = max(target.most_memory, target.memory)
    one.transfer_start_s = control.now
    control.moving += 1
    push(sim, control.now + one.prompt * sim.rules.token_bytes / sim.rules.link, MOVED, request)


@compiled
def arrived(sim: Sim, request: int) -> int:
    """It is over: its source is free of it. Returns that machine."""
    control, one = sim.control, sim.requests[request]
    g = int(sim.tasks[2 * request].machine)
    control.moving -= 1
    one.transfer_end_s = control.now
    sim.machines[g].memory -= one.memory
    sim.machines[g].booked -= one.memory
    return g
