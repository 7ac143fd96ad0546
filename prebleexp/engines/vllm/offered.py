"""Which blocks tiers are offered where layers have groups (vLLM 0.33.0, kv_connector/v1/offloading/scheduler.py).

The connector has a list of a request's blocks, and does not hear of those that fall behind a window. It takes out of it
what it sees anybody get: who does offers that block in turn.
"""

from __future__ import annotations

from prebleexp.engines.vllm.blocks import found_run, key_of, segment_at
from prebleexp.engines.vllm.group_records import FULL
from prebleexp.engines.vllm.group_tables import kept
from prebleexp.engines.vllm.records import STEPS, Engines
from prebleexp.sim.compiled import chosen_by, compiled
from prebleexp.sim.records import NONE, World
from prebleexp.sim.tiers import PEERS


@compiled
def _always(mine: Engines, world: World, request: int, table: int, block: int) -> bool:
    return True


@compiled
def _is_listed(mine: Engines, world: World, request: int, number: int, block: int) -> bool:
    table, group = mine.groups.tables[request, number], mine.groups.all[number]
    if group.kind == FULL:
        return True
    low, high = kept(mine, world, request, group, block)
    if block < table.first or not low <= block < high or table.gone_from <= block < table.gone_to:
        return False
    if mine.jobs[request].finished == 0 and block >= table.low:
        return True
    g, segment = int(world.seen.requests[request].gpu), segment_at(mine, world, request, 0, block)
    run, _ = found_run(mine, world, g, request, segment, block, block + 1, int(group.key))
    return run != NONE


is_offered = chosen_by("groups", _always, _is_listed)
"""whether a full block of a table is offered to tiers"""


# ---------------------------------------------------------------- what others get
@compiled
def _nothing(mine: Engines, world: World, g: int) -> None:
    """Of one table all blocks are offered."""


@compiled
def _take_out(mine: Engines, world: World, g: int) -> None:
    slot = (mine.gpus[g].scheduled - 1) % STEPS
    for row in range(mine.steps[g, slot].chosen):
        one = mine.chosen[g, slot, row]
        if one.hits > 0:
            _take_out_of_all(mine, world, g, int(one.request), int(one.hits) // mine.settings.block_size)
    request = int(world.tiers.loading[g])
    while request != NONE:
        one = world.tiers.fetches[request]
        if one.step == mine.gpus[g].scheduled - 1:
            _take_out_of_all(mine, world, g, request, int(one.low))
        request = int(one.next)


take_out = chosen_by("groups", _nothing, _take_out)
"""what requests have found in the cache, in the step just scheduled, is taken out of others' lists"""


@compiled
def _take_out_of_all(mine: Engines, world: World, g: int, request: int, hits: int) -> None:
    """Those that ran before, and those that have finished since the last scheduling."""
    gpu, tiers, size = mine.gpus[g], world.tiers, mine.settings.block_size
    slot, at = (gpu.scheduled - 1) % STEPS, 0
    for row in range(gpu.running):
        other, tokens, is_new = int(mine.running[g, row]), 0, False
        if at < mine.steps[g, slot].chosen and mine.chosen[g, slot, at].request == other:
            tokens, is_new = int(mine.chosen[g, slot, at].tokens), mine.chosen[g, slot, at].hits != NONE
            at += 1
        if not is_new and other != request:
            _take_out_of(mine, world, request, other, min(hits, -(-(int(mine.jobs[other].computed) - tokens) // size)))
    for number in range(tiers.ended[g], gpu.over):
        for row in range(mine.steps[g, number % STEPS].finished):
            other = int(mine.finished[g, number % STEPS, row])
            _take_out_of(mine, world, request, other, min(hits, int(mine.jobs[other].known) // size))


@compiled
def _take_out_of(mine: Engines, world: World, request: int, other: int, high: int) -> None:
    tiers, tried = world.tiers, high
    for tier in range(PEERS):
        if tiers.tiers[tier].blocks > 0:
            tried = min(tried, int(tiers.tried[tier, other]))
    while high > tried and key_of(mine, world, other, high - 1) != key_of(mine, world, request, high - 1):
        high -= 1
    for number in range(len(mine.groups.all)):
        low, table = max(tried, int(mine.groups.tables[request, number].first)), mine.groups.tables[other, number]
        if low < high and table.gone_to <= tried:
            table.gone_from, table.gone_to = low, high
        elif low < high:
            table.gone_from, table.gone_to = min(low, int(table.gone_from)), max(high, int(table.gone_to))
