"""Pools of machines: for prompts, for tokens, and for both, which a machine joins when it is needed there and leaves
when it has nothing left to do."""

from __future__ import annotations

from prebleexp.engines.splitwise.records import MIXED, Sim
from prebleexp.engines.splitwise.rows import remove
from prebleexp.sim.compiled import compiled

PENDING, REQUESTS, BOOKED = range(3)
"""what the least of is looked for: pending tokens, requests that are there, memory that is booked"""


@compiled
def amount(sim: Sim, g: int, of: int) -> int:
    machine = sim.machines[g]
    if of == PENDING:
        return machine.pending
    return machine.requests if of == REQUESTS else machine.booked


@compiled
def least(sim: Sim, pool: int, of: int) -> int:
    """The machine of a pool that has least, the first of several; the pool is not empty."""
    best = int(sim.pools[pool, 0])
    for i in range(1, sim.members[pool]):
        g = int(sim.pools[pool, i])
        if amount(sim, g, of) < amount(sim, best, of):
            best = g
    return best


@compiled
def mix(sim: Sim, g: int) -> None:
    """Machine g leaves its own pool for the mixed one."""
    machine = sim.machines[g]
    sim.members[machine.home] = remove(sim.pools, machine.home, sim.members[machine.home], g)
    _add(sim, MIXED, g)
    machine.mixed = 1


@compiled
def come_home(sim: Sim, g: int) -> None:
    """A machine leaves the mixed pool and returns to its own."""
    machine = sim.machines[g]
    sim.members[MIXED] = remove(sim.pools, MIXED, sim.members[MIXED], g)
    _add(sim, int(machine.home), g)
    machine.mixed = 0


@compiled
def _add(sim: Sim, pool: int, g: int) -> None:
    sim.pools[pool, sim.members[pool]] = g
    sim.members[pool] += 1
