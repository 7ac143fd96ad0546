"""Until where a tier has a context, as vLLM's offloading connector looks for it (0.33.0,
kv_connector/v1/offloading/scheduler.py, `_lookup_complete_chunks`).

Of layers that look back to all every block must be there, of those with a window the last ones alone, and of a draft's
head one more than is loaded. What is still on its way to the tier counts, but whoever finds that asks again later.
"""

from __future__ import annotations

from prebleexp.engines.vllm.copies import all_of, copy_at
from prebleexp.engines.vllm.group_lookup import FULL, SLIDING
from prebleexp.engines.vllm.records import Engines
from prebleexp.sim.compiled import chosen_by, compiled
from prebleexp.sim.records import NONE, World


@compiled
def _find(mine: Engines, world: World, tier: int, request: int, low: int) -> tuple[int, bool]:
    """Of all full blocks, for the last token is computed in any case."""
    most = int(mine.jobs[request].known) // mine.settings.block_size
    blocks, waits = _from_left(mine, world, tier, request, 0, low, most)
    if mine.settings.drops_last and not waits:
        blocks = max(0, blocks - 1)
    return low + blocks, waits


@compiled
def _from_left(
    mine: Engines, world: World, tier: int, request: int, table: int, low: int, high: int
) -> tuple[int, bool]:
    """How many blocks of a table follow each other from `low` on, and whether some are on their way."""
    at, waits = low, False
    while at < high:
        copy = copy_at(mine, world, tier, request, table, at)
        if copy == NONE:
            break
        waits |= world.tiers.copies[copy].store != NONE
        at += 1
    return at - low, waits


@compiled
def _from_right(
    mine: Engines, world: World, tier: int, request: int, table: int, low: int, high: int, first: int, window: int
) -> tuple[int, bool]:
    """The same of a table with a window: behind which block `window` of them are there, or `first` at the very end."""
    run, waits, needed = 0, False, first
    for at in range(high - 1, low - 1, -1):
        copy = copy_at(mine, world, tier, request, table, at)
        if copy == NONE:
            run, waits, needed = 0, False, window
        else:
            run += 1
            waits |= world.tiers.copies[copy].store != NONE
        if run == needed:
            return at - low + needed, waits
    return run, waits


@compiled
def _find_groups(mine: Engines, world: World, tier: int, request: int, low: int) -> tuple[int, bool]:
    groups, size, known = mine.groups, mine.settings.block_size, int(mine.jobs[request].known)
    order, most, head = groups.order, known // size, int(groups.head)
    tokens, found, waits, begin = known - int(groups.full < len(order)), 0, False, 0
    while begin < len(order):
        again, slid = len(order), False
        for row in range(begin, len(order)):
            table = int(order[row])
            tokens = min(tokens, most * size)
            if tokens - low * size < size:
                return low, False
            dropped = int(table == head)
            high = min(-(-tokens // size) + dropped, most)
            if groups.all[table].kind == FULL:
                got, coming = _from_left(mine, world, tier, request, table, low, high)
            else:
                first = window_of(mine, table, min(tokens, high * size))
                window = window_of(mine, table, 0)
                got, coming = _from_right(mine, world, tier, request, table, low, high, first, window)
            if coming:
                waits = True
            elif got == 0:
                return low, False
            else:
                tokens = min(tokens, size * (low + got - dropped))
                head = NONE if dropped else head  # once, until others have less
            if tokens - low * size < size:
                return low, False
            if tokens - low * size < found:
                head = head if table == groups.head else int(groups.head)
                if waits:
                    waits, again = False, 0
                elif slid and again == len(order):
                    again = groups.full
            slid |= groups.all[table].kind != FULL
            found = tokens - low * size
        begin = again
    return low + -(-found // size), waits


@compiled
def window_of(mine: Engines, table: int, tokens: int) -> int:
    """Blocks that must be there before so many tokens, of a table that looks back to a window."""
    group, size = mine.groups.all[table], mine.settings.block_size
    window = int(group.window)
    if group.kind != SLIDING:
        return -(-window // size)
    return max(-(-window // size), -(-(window - 1 + -tokens % size) // size))


find = chosen_by("groups", _find, _find_groups)
"""until where a tier has blocks from `low` on, and whether some of them are on their way there"""


@compiled
def _windows(mine: Engines, table: int, tokens: int) -> int:
    if mine.groups.all[table].kind == FULL:
        return 0
    return -(-tokens // mine.settings.block_size) - window_of(mine, table, tokens)


looked_at_from = chosen_by("groups", all_of, _windows)
"""the first block of a table that was looked at, to load so many tokens"""
