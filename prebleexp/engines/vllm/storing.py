"""What a GPU has computed is stored in tiers, as by vLLM's offloading connector (spec: clusters.md, section 3). A block
that is stored is held until it has been read."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.vllm.blocks import found_until, give_back, hold_between, key_of
from prebleexp.engines.vllm.copies import copy_at, copy_of_gpu
from prebleexp.engines.vllm.publishing import publish
from prebleexp.engines.vllm.records import STEPS, Engines
from prebleexp.sim.compiled import compiled
from prebleexp.sim.news import tell
from prebleexp.sim.plug import call_none
from prebleexp.sim.records import COPIED, NONE, World
from prebleexp.sim.tiers import (
    PEERS,
    SHARED,
    TIERS,
    add,
    drop,
    end_store,
    make_room,
    new_store,
    pin,
    place_of,
    unpin,
)
from prebleexp.sim.waking import wake


@compiled
def offload(self: Any, mine: Engines, world: World, g: int, now: float) -> None:
    """A GPU starts: what its last step has computed is to be stored."""
    gpu, tiers = mine.gpus[g], world.tiers
    if tiers.looked[g] == gpu.over:
        return
    tiers.looked[g] = gpu.over
    slot = (gpu.over - 1) % STEPS
    for row in range(mine.steps[g, slot].chosen):
        request = int(mine.chosen[g, slot, row].request)
        job = mine.jobs[request]
        computed = int(job.known) - 1 if job.finished != 0 else min(int(job.computed - job.under_way), int(job.known))
        if tiers.control[0].prompts_only != 0:
            computed = min(computed, int(world.seen.requests[request].prompt_tokens))
        there = world.seen.requests[request].gpu == g  # else it was moved meanwhile, …
        if there and (job.running != 0 or job.finished != 0):  # … or preempted
            for tier in range(PEERS):
                _store(mine, world, tier, request, computed // mine.settings.block_size, now)


@compiled
def _store(mine: Engines, world: World, tier: int, request: int, full: int, now: float) -> None:
    """Of a request's first blocks, those that a tier has not: all, or none if there is no room for all."""
    tiers, g, link = world.tiers, int(world.seen.requests[request].gpu), world.links.calls
    low, high = int(tiers.tried[tier, request]), found_until(mine, world, g, request, full)
    if high <= low or tiers.tiers[tier].blocks == 0:
        return
    tiers.tried[tier, request] = high
    place, missing = place_of(tiers, tier, g), 0
    for block in range(low, high):
        copy = copy_at(mine, world, tier, request, block)
        if copy == NONE:
            missing += 1
        else:
            pin(tiers, copy)
    room = missing > 0 and make_room(world, tier, place, missing)
    store = new_store(tiers) if room else NONE
    if room:
        one = tiers.stores[store]
        one.gpu, one.tier, one.request, one.low, one.high, one.holds = g, tier, request, low, high, NONE
        _hold_missing(mine, world, g, store)
    for block in range(high - 1, low - 1, -1):
        copy = copy_at(mine, world, tier, request, block)
        if copy != NONE:
            unpin(tiers, copy)
        elif room:
            add(tiers, place, key_of(mine, world, request, block), block, store)
    if room:
        first, gpus = int(tiers.tiers[tier].first), len(world.live)
        subject, size = TIERS * len(world.jobs) + store, missing * tiers.control[0].kv_bytes
        call_none(link.ask, link.own, subject, first + gpus + g, first + 2 * gpus, size, now)


@compiled
def _hold_missing(mine: Engines, world: World, g: int, store: int) -> None:
    """Let a store hold the blocks that it brings."""
    one = world.tiers.stores[store]
    tier, request, block, high = int(one.tier), int(one.request), int(one.low), int(one.high)
    while block < high:
        begin = block
        while block < high and copy_at(mine, world, tier, request, block) == NONE:
            block += 1
        if block > begin:
            hold_between(mine, world, g, request, one, begin, block, 0)
        block += 1


# ---------------------------------------------------------------- what has come
@compiled
def stored(mine: Engines, world: World, store: int) -> None:
    tiers, g = world.tiers, int(world.tiers.stores[store].gpu)
    for block in range(tiers.stores[store].low, tiers.stores[store].high):
        copy = _brought(mine, world, store, block)
        if copy != NONE:
            tiers.copies[copy].store = NONE
            unpin(tiers, copy)
    if world.told.copied != 0:
        _tell_copied(mine, world, store)
    _end_store(mine, world, store)
    publish(mine, world, g)
    wake(world, g)


@compiled
def _end_store(mine: Engines, world: World, store: int) -> None:
    one = world.tiers.stores[store]
    give_back(mine, int(one.gpu), one)
    end_store(world.tiers, store)
    if one.tier == SHARED:  # whoever waits for it may go on
        for other in range(len(world.live)):
            if world.live[other].queued > 0:
                wake(world, other)


@compiled
def _stored_at(mine: Engines, world: World, store: int, block: int) -> int:
    """The copy of a block where a store brings some: its request may be on another GPU by now."""
    one = world.tiers.stores[store]
    return copy_of_gpu(mine, world, int(one.tier), int(one.gpu), int(one.request), block)


@compiled
def _brought(mine: Engines, world: World, store: int, block: int) -> int:
    """The copy of a block that a store brings; -1: it does not bring it."""
    copy = _stored_at(mine, world, store, block)
    return copy if copy != NONE and world.tiers.copies[copy].store == store else NONE


@compiled
def _tell_copied(mine: Engines, world: World, store: int) -> None:
    """Let routers hear how much of a context its place has, from its beginning on."""
    tiers, one, block = world.tiers, world.tiers.stores[store], 0
    while block < one.high:
        copy = _stored_at(mine, world, store, block)
        if copy == NONE or tiers.copies[copy].store != NONE:
            break
        block += 1
    if block > 0:
        place = place_of(tiers, int(one.tier), int(one.gpu))
        tell(world, COPIED, int(one.request), place, block * mine.settings.block_size)


@compiled
def break_off_stores(mine: Engines, world: World, g: int) -> None:
    """A GPU is emptied: what was on its way from it is nowhere."""
    for store in range(world.tiers.control[0].stores):
        if world.tiers.stores[store].gpu == g:
            _break_off(mine, world, store)


@compiled
def _break_off(mine: Engines, world: World, store: int) -> None:
    tiers, link = world.tiers, world.links.calls
    call_none(link.drop, link.own, TIERS * len(world.jobs) + store, world.control.now)
    for block in range(tiers.stores[store].low, tiers.stores[store].high):
        copy = _brought(mine, world, store, block)
        if copy != NONE:
            unpin(tiers, copy)
            drop(tiers, copy)
    _end_store(mine, world, store)
