"""KV tiers behind a GPU's cache: what is under way to and from them has come, or ends with the GPU.

`engines.vllm.loading` asks for what comes from tiers, `engines.vllm.storing` for what goes there.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.vllm.loading import break_off_loads, break_off_loans, loaded
from prebleexp.engines.vllm.records import Engines
from prebleexp.engines.vllm.storing import break_off_stores, stored
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import World
from prebleexp.sim.tiers import HOST, TIERS, drop_all, place_of


@compiled
def landed(self: Any, mine: Engines, world: World, subject: int, now: float) -> None:
    """A load, or a store, is over."""
    n = len(world.jobs)
    if subject < TIERS * n:
        loaded(mine, world, subject // n, subject % n)
    else:
        stored(mine, world, subject - TIERS * n)


@compiled
def break_off(mine: Engines, world: World, g: int) -> None:
    """A GPU is emptied: what is under way to it or from it ends here, and its host has nothing. Its disk keeps what is
    there, as does the store for all."""
    break_off_loads(mine, world, g)
    if world.tiers.control[0].peers != 0:
        break_off_loans(world, g)
    break_off_stores(mine, world, g)
    drop_all(world.tiers, place_of(world.tiers, HOST, g))
    world.tiers.looked[g] = 0
