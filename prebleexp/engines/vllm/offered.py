"""Which of a request's blocks tiers were offered, as vLLM's offloading connector marks it (0.33.0, `storable_chunks`).

All groups are offered alike, but that of a draft's head: the last block of an answer may be written there once more
before the next one is full, and is offered later.
"""

from __future__ import annotations

from prebleexp.engines.vllm.records import Engines
from prebleexp.sim.compiled import chosen_by, compiled
from prebleexp.sim.records import World


@compiled
def _between(mine: Engines, world: World, tier: int, request: int, table: int, full: int, late: int) -> tuple[int, int]:
    return int(world.tiers.tried[tier, request]), full - late


@compiled
def _between_of_groups(
    mine: Engines, world: World, tier: int, request: int, table: int, full: int, late: int
) -> tuple[int, int]:
    low = int(world.tiers.tried[tier, request])
    if table != mine.groups.head:
        return low, full
    return low - int(low > 0 and mine.groups.lags[tier, request] == low), full - late


between = chosen_by("groups", _between, _between_of_groups)
"""blocks of a table that a tier was not offered yet, of `full` that there are: from where on, and until where; `late`:
how many of the last ones are left out where a draft's head may write them again"""


@compiled
def has_more(mine: Engines, world: World, tier: int, request: int, full: int, late: int) -> bool:
    """Whether there is any."""
    for table in range(mine.settings.tables):
        low, high = between(mine, world, tier, request, table, full, late)
        if low < high:
            return True
    return False


@compiled
def _mark(mine: Engines, world: World, tier: int, request: int, full: int, late: int) -> None:
    world.tiers.tried[tier, request] = full - late


@compiled
def _mark_groups(mine: Engines, world: World, tier: int, request: int, full: int, late: int) -> None:
    low, high = _between_of_groups(mine, world, tier, request, int(mine.groups.head), full, late)
    world.tiers.tried[tier, request] = max(full, int(world.tiers.tried[tier, request]))
    mine.groups.lags[tier, request] = full if max(low, high) < full else 0


mark = chosen_by("groups", _mark, _mark_groups)
"""a tier was offered these"""
