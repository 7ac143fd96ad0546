"""KV tiers behind a GPU's cache: what is under way to and from them is over, is heard of, or ends with the GPU.

`engines.vllm.loading` asks for what comes from tiers, `engines.vllm.storing` for what goes there. As with transfers
between GPUs (`engines.vllm.hearing`), the worker asks for what is over when it launches a step, and the scheduler hears
of it with that step's results; where a step waits for blocks that are being stored, it is launched when they are.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.vllm.arriving import (
    break_off_loads,
    break_off_loans,
    has_come,
    hear_of_load,
    waiting_step,
)
from prebleexp.engines.vllm.hearing import next_look
from prebleexp.engines.vllm.loading import ask_for_loads
from prebleexp.engines.vllm.records import STEPS, Engines
from prebleexp.engines.vllm.storing import break_off_stores, hear_of_store
from prebleexp.sim.compiled import compiled
from prebleexp.sim.keeping import drop_all
from prebleexp.sim.records import IDLE, NONE, World
from prebleexp.sim.tiers import HOST, OVER, TIERS, place_of
from prebleexp.sim.waking import wake, wake_at


@compiled
def landed(self: Any, mine: Engines, world: World, subject: int, now: float) -> None:
    """A load, or a store, is over."""
    n = len(world.jobs)
    if subject >= TIERS * n:
        _is_stored(mine, world, subject - TIERS * n, now)
    else:
        has_come(mine, world, subject // n, subject % n)


@compiled
def _is_stored(mine: Engines, world: World, store: int, now: float) -> None:
    one = world.tiers.stores[store]
    g = int(one.gpu)
    slot = waiting_step(mine, g, int(one.step))
    one.stage, one.next = OVER, NONE
    if slot != NONE:
        _add_stored(world, mine.steps[g, slot], store)
    else:
        _add_stored(world, mine.gpus[g], store)
        if world.servers[g].stage == IDLE:
            wake_at(world, g, next_look(mine, g, now))
    for other in range(STEPS):
        if one.waited_for & 1 << other:
            step = mine.steps[g, other]
            step.waits -= 1
            step.waited_s = now
            if step.waits == 0:
                ask_for_loads(mine, world, g, now)
                wake(world, g)


@compiled
def _add_stored(world: World, to: Any, store: int) -> None:
    """Behind the other stores of which a GPU, or a step, is to hear."""
    if to.stored == NONE:
        to.stored = store
    else:
        world.tiers.stores[to.last_stored].next = store
    to.last_stored = store


@compiled
def heard(self: Any, mine: Engines, world: World, subject: int, now: float) -> None:
    """Of a load, by its request, or of a store, the GPU hears that it is over."""
    n = len(world.jobs)
    if subject < TIERS * n:
        hear_of_load(mine, world, int(world.seen.requests[subject].gpu), subject)
    else:
        hear_of_store(mine, world, subject - TIERS * n)


@compiled
def break_off(mine: Engines, world: World, g: int) -> None:
    """A GPU is emptied: what is under way to it or from it ends here, and its host has nothing. Its disk keeps what is
    there, as does the store for all."""
    break_off_loads(mine, world, g)
    if world.tiers.control[0].peers != 0:
        break_off_loans(world, g)
    break_off_stores(mine, world, g)
    drop_all(world.tiers, place_of(world.tiers, HOST, g))
    world.tiers.looked[g] = world.tiers.ended[g] = 0
