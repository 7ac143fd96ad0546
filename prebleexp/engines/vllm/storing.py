"""What a step fills is stored in tiers, as by vLLM's offloading connector (0.33.0).

It is offered when the step is scheduled (`engines.vllm.offering`), and sent when that is over. Blocks that are being
stored are nobody's when their request has left. A step that takes some of them, or admits a request that has some of
them, does not begin before their store is over; nor one that preempts a request before what is being stored of it is.
Of what a request has found whose KV comes from another GPU, the connector hears when that is admitted, not before.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.vllm.copies import brought, copy_of_gpu, is_wanted, leave, want_held
from prebleexp.engines.vllm.loading import ask_for_loads
from prebleexp.engines.vllm.offering import at_its_end, finish_uses, offer_all, put_in_line
from prebleexp.engines.vllm.records import STEPS, Engines
from prebleexp.sim import keeping
from prebleexp.sim.compiled import compiled
from prebleexp.sim.news import tell
from prebleexp.sim.notices import COPIED
from prebleexp.sim.plug import call_none
from prebleexp.sim.records import NONE, World
from prebleexp.sim.tiers import (
    OVER,
    SENT,
    SHARED,
    TIERS,
    UNSENT,
    URGENT,
    end_store,
    place_of,
    unpin,
)
from prebleexp.sim.waking import wake


@compiled
def offload(self: Any, mine: Engines, world: World, g: int, now: float) -> int:
    """If a step was just scheduled, what it fills is offered. What is ready is sent. 1: KV may come, at any time."""
    gpu, tiers = mine.gpus[g], world.tiers
    if tiers.looked[g] < gpu.scheduled:
        tiers.looked[g] = gpu.scheduled
        last = int(tiers.unsent[g, 1]) if tiers.unsent[g, 0] != NONE else NONE
        _want_of_admitted(mine, world, g)
        offer_all(mine, world, g)
        if tiers.wants[g] != 0:
            _wait_for_wanted(mine, world, g, last)
        tiers.turns[g] += 1
        _send(mine, world, g, now)
        ask_for_loads(mine, world, g, now)
    else:
        _send(mine, world, g, now)
    return 1


# ---------------------------------------------------------------- sending
@compiled
def _want_of_admitted(mine: Engines, world: World, g: int) -> None:
    """Whom the step just scheduled admits may have blocks that are being stored, however it came by them."""
    slot = (mine.gpus[g].scheduled - 1) % STEPS
    step = mine.steps[g, slot]
    for row in range(step.chosen - step.admitted, step.chosen):
        want_held(mine, world, g, int(mine.chosen[g, slot, row].request))


@compiled
def _wait_for_wanted(mine: Engines, world: World, g: int, last: int) -> None:
    """The step just scheduled waits for the stores of blocks that it takes, which come before the others of the line
    that are behind `last`: those of this step."""
    tiers, slot = world.tiers, (mine.gpus[g].scheduled - 1) % STEPS
    for store in range(tiers.control[0].stores):
        one = tiers.stores[store]
        if one.gpu == g and one.stage != OVER and is_wanted(mine, world, g, store):
            one.waited_for |= 1 << slot
            if one.stage == UNSENT and one.step == mine.gpus[g].scheduled - 1:
                one.stage = URGENT  # those of the step under way wait for that
            mine.steps[g, slot].waits += 1
    tiers.wants[g] = 0
    first = int(tiers.unsent[g, 0] if last == NONE else tiers.stores[last].next)
    tiers.unsent[g, 1] = last
    if last == NONE:
        tiers.unsent[g, 0] = NONE
    else:
        tiers.stores[last].next = NONE
    for stage in (URGENT, UNSENT):
        store, others, end = first, NONE, NONE
        while store != NONE:
            behind = int(tiers.stores[store].next)
            if tiers.stores[store].stage == stage:
                put_in_line(world, g, store)
            elif others == NONE:
                others = end = store
                tiers.stores[store].next = NONE
            else:
                tiers.stores[end].next, end = store, store
                tiers.stores[store].next = NONE
            store = behind
        first = others


@compiled
def _send(mine: Engines, world: World, g: int, now: float) -> None:
    """Those in front that are computed."""
    tiers, gpus, link = world.tiers, len(world.live), world.links.calls
    while tiers.unsent[g, 0] != NONE:
        store = int(tiers.unsent[g, 0])
        one = tiers.stores[store]
        if one.stage == UNSENT and one.step >= mine.gpus[g].over:
            break
        tiers.unsent[g, 0] = one.next
        one.stage = SENT
        first, size = int(tiers.tiers[one.tier].first), one.blocks * tiers.control[0].kv_bytes
        subject = TIERS * len(world.jobs) + store
        call_none(link.ask, link.own, subject, first + gpus + g, first + 2 * gpus, size, now)


# ---------------------------------------------------------------- who leaves
@compiled
def part(self: Any, mine: Engines, world: World, request: int, now: float) -> None:
    """A request is finished, gives up, or is moved, and is about to give its blocks back: of those that are being
    stored, or will be offered at once, it stays known who had them."""
    g, tiers, job = int(world.seen.requests[request].gpu), world.tiers, mine.jobs[request]
    if tiers.jobs[request] > 0 or job.finished != 0:
        leave(mine, world, g, request, at_its_end(mine, world, request) if job.finished != 0 else 0)
    if job.finished == 0:
        finish_uses(mine, world, g, request)
        for store in range(tiers.control[0].stores):
            one = tiers.stores[store]
            if one.gpu != NONE and one.request == request:
                one.counts = 0
        tiers.jobs[request] = 0


# ---------------------------------------------------------------- what is there
@compiled
def hear_of_store(mine: Engines, world: World, store: int) -> None:
    """The GPU hears that it is over."""
    one = world.tiers.stores[store]
    g, tier, request, tiers = int(one.gpu), int(one.tier), int(one.request), world.tiers
    for table in range(mine.settings.tables):
        for block in range(one.low, one.high):
            copy = brought(mine, world, store, table, block)
            if copy != NONE:
                tiers.copies[copy].store = NONE
                unpin(tiers, copy)
    if world.told.hears[COPIED] != 0:
        _tell_copied(mine, world, store)
    tiers.jobs[request] -= one.counts
    end_store(tiers, store)
    if tier == SHARED:  # whoever waits for it may go on
        for other in range(len(world.live)):
            if other != g and world.live[other].queued > 0:
                wake(world, other)


@compiled
def _tell_copied(mine: Engines, world: World, store: int) -> None:
    """Let routers hear how much of a context its place has, from its beginning on."""
    tiers, one, block = world.tiers, world.tiers.stores[store], 0
    told = mine.settings.tables - 1 - int(tiers.control[0].told)
    while block < one.high:
        copy = copy_of_gpu(mine, world, int(one.tier), int(one.gpu), int(one.request), told, block)
        if copy == NONE or tiers.copies[copy].store != NONE:
            break
        block += 1
    if block > 0:
        place = place_of(tiers, int(one.tier), int(one.gpu))
        tell(world, COPIED, int(one.request), place, block * mine.settings.block_size)


@compiled
def break_off_stores(mine: Engines, world: World, g: int) -> None:
    """A GPU is emptied: what was on its way from it, or what it has not heard of, is nowhere."""
    tiers, link = world.tiers, world.links.calls
    for store in range(tiers.control[0].stores):
        one = tiers.stores[store]
        if one.gpu != g:
            continue
        if one.stage == SENT:
            call_none(link.drop, link.own, TIERS * len(world.jobs) + store, world.control.now)
        for table in range(mine.settings.tables):
            for block in range(one.low, one.high):
                copy = brought(mine, world, store, table, block)
                if copy != NONE:
                    unpin(tiers, copy)
                    keeping.drop(tiers, copy)
        tiers.jobs[one.request] -= one.counts
        shared = one.tier == SHARED
        end_store(tiers, store)
        for other in range(len(world.live) if shared else 0):
            if world.live[other].queued > 0:
                wake(world, other)
    tiers.unsent[g, 0], tiers.wants[g] = NONE, 0
    tiers.turns[g] += 1
