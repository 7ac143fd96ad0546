"""Copies that tiers have of a context's blocks, and which of them whoever loads it needs.

Blocks of several tables are numbered by turns: of a request's copies those of later positions are dropped first, and of
one position those of the first table.
"""

from __future__ import annotations

from prebleexp.engines.vllm.blocks import key_of
from prebleexp.engines.vllm.group_lookup import behind
from prebleexp.engines.vllm.records import Engines
from prebleexp.sim.compiled import chosen_by, compiled
from prebleexp.sim.records import World
from prebleexp.sim.tiers import copy_of, place_of


@compiled
def copy_at(mine: Engines, world: World, tier: int, request: int, table: int, block: int) -> int:
    """Which copy of a block a tier has for the GPU where the request is; -1: none."""
    return copy_of_gpu(mine, world, tier, int(world.seen.requests[request].gpu), request, table, block)


@compiled
def copy_of_gpu(mine: Engines, world: World, tier: int, g: int, request: int, table: int, block: int) -> int:
    """The same at the place of any GPU."""
    place, number = place_of(world.tiers, tier, g), number_of(mine, table, block)
    return copy_of(world.tiers, place, key_of(mine, world, request, block), number)


@compiled
def number_of(mine: Engines, table: int, block: int) -> int:
    """Of a block of a context, among those of all tables."""
    return (block + 1) * mine.settings.tables - 1 - table


@compiled
def _all(mine: Engines, table: int, computed: int) -> int:
    return 0


@compiled
def _in_window(mine: Engines, table: int, computed: int) -> int:
    group = mine.groups.all[table]
    return behind(mine, int(group.kind), int(group.window), computed * mine.settings.block_size)


needed_from = chosen_by("groups", _all, _in_window)
"""the first block of a table that whoever has so many blocks computed needs"""


@compiled
def needed_between(mine: Engines, low: int, high: int, end: int) -> int:
    """How many of the blocks low … high − 1 of all tables whoever loads up to `end` needs."""
    blocks = 0
    for table in range(mine.settings.tables):
        blocks += max(0, high - max(low, needed_from(mine, table, end)))
    return blocks
