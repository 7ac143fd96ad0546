"""Which copy of a block of a request's context a tier has; -1: none."""

from __future__ import annotations

from prebleexp.engines.vllm.blocks import key_of
from prebleexp.engines.vllm.records import Engines
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import World
from prebleexp.sim.tiers import copy_of, place_of


@compiled
def copy_at(mine: Engines, world: World, tier: int, request: int, block: int) -> int:
    """For the GPU where the request is."""
    return copy_of_gpu(mine, world, tier, int(world.seen.requests[request].gpu), request, block)


@compiled
def copy_of_gpu(mine: Engines, world: World, tier: int, g: int, request: int, block: int) -> int:
    """The copy of a request's block in a tier, at the place of any GPU."""
    return copy_of(world.tiers, place_of(world.tiers, tier, g), key_of(mine, world, request, block), block)
