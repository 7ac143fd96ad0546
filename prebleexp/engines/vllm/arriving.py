"""What was loaded from tiers has come, and the GPU hears of it; or it does not come (see `engines.vllm.loading`)."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.serving import QUEUED
from prebleexp.engines.vllm import queue
from prebleexp.engines.vllm.copies import copy_at, needed_from, reached
from prebleexp.engines.vllm.hearing import add_news, tell
from prebleexp.engines.vllm.loading import part_of
from prebleexp.engines.vllm.peers import give_back
from prebleexp.engines.vllm.publishing import publish
from prebleexp.engines.vllm.records import STEPS, Engines
from prebleexp.engines.vllm.tables import release
from prebleexp.sim.compiled import compiled
from prebleexp.sim.plug import call_none
from prebleexp.sim.records import NONE, World
from prebleexp.sim.tiers import (
    PEERS,
    TIERS,
    UNHEARD,
    unpin,
)


@compiled
def has_come(mine: Engines, world: World, tier: int, request: int) -> None:
    """A part; if that was the last one, the GPU is to hear of it."""
    tiers = world.tiers
    low, high = part_of(tiers, tier, request)
    tiers.fetches[request].coming ^= 1 << tier
    if tier == PEERS:
        give_back(mine, world, request, low, high)
    if tiers.fetches[request].coming == UNHEARD:
        _is_loaded(mine, world, int(world.seen.requests[request].gpu), request)


@compiled
def _is_loaded(mine: Engines, world: World, g: int, request: int) -> None:
    slot = waiting_step(mine, g, int(world.tiers.fetches[request].step))
    if slot == NONE:
        tell(mine, world, g, request)
    else:
        add_news(mine, mine.steps[g, slot], request)


@compiled
def waiting_step(mine: Engines, g: int, since: int) -> int:
    """The slot of the first step that waits for blocks that are being stored: it hears of what is over before it
    begins, but for what was asked for by steps behind it, which are launched later. -1: there is none."""
    gpu = mine.gpus[g]
    for number in range(max(since, int(gpu.begun)), gpu.scheduled):
        if mine.steps[g, number % STEPS].waits > 0:
            return int(number % STEPS)
    return NONE


@compiled
def hear_of_load(mine: Engines, world: World, g: int, request: int) -> None:
    """All of it is there, and the request waits to be admitted."""
    tiers, gpu, job = world.tiers, mine.gpus[g], mine.jobs[request]
    _need_not_keep(mine, world, request)
    _not_loading(world, g, request)
    tiers.fetches[request].coming = 0
    if job.finished != 0:  # it gave up meanwhile
        release(mine, g, request)
        return
    gpu.reserved -= 1
    gpu.queued += 1
    world.jobs[request].state = QUEUED
    if tiers.fetches[request].fails != 0:
        call_none(world.engines[g].fail, world.engines[g].own, world, request, world.control.now)
        return
    job.computed = reached(mine, request, int(tiers.ends[TIERS - 1, request]))
    queue.push(mine, g, request)


@compiled
def _need_not_keep(mine: Engines, world: World, request: int) -> None:
    """Whoever has what was loaded, or was to be; but for other GPUs, which are told when it has come."""
    end = int(world.tiers.ends[TIERS - 1, request])
    for tier in range(PEERS):
        low, high = part_of(world.tiers, tier, request)
        for table in range(mine.settings.tables):
            for block in range(max(low, needed_from(mine, table, reached(mine, request, end))), high):
                unpin(world.tiers, copy_at(mine, world, tier, request, table, block))


@compiled
def _not_loading(world: World, g: int, request: int) -> None:
    tiers = world.tiers
    if tiers.loading[g] == request:
        tiers.loading[g] = tiers.fetches[request].next
        return
    before = int(tiers.loading[g])
    while tiers.fetches[before].next != request:
        before = int(tiers.fetches[before].next)
    tiers.fetches[before].next = tiers.fetches[request].next


@compiled
def break_off_loads(mine: Engines, world: World, g: int) -> None:
    """A GPU is emptied: none to it is over ever."""
    tiers = world.tiers
    while tiers.loading[g] != NONE:
        request = int(tiers.loading[g])
        for tier in range(TIERS):
            if tiers.fetches[request].coming & 1 << tier:
                _drop_part(mine, world, tier, request)
        _need_not_keep(mine, world, request)
        tiers.fetches[request].coming = 0
        if mine.jobs[request].finished != 0:  # it gave up, and is in nobody's hands
            release(mine, g, request)
        tiers.loading[g] = tiers.fetches[request].next


@compiled
def _drop_part(mine: Engines, world: World, tier: int, request: int) -> None:
    link, one = world.links.calls, world.tiers.fetches[request]
    if one.asked != 0:
        call_none(link.drop, link.own, tier * len(world.jobs) + request, world.control.now)
    one.coming ^= 1 << tier
    if tier == PEERS:
        low, high = part_of(world.tiers, tier, request)
        give_back(mine, world, request, low, high)


@compiled
def break_off_loans(world: World, g: int) -> None:
    """A GPU is emptied: what it lends comes to nobody."""
    for other in range(len(world.tiers.loading)):
        engine, request = world.engines[other], int(world.tiers.loading[other])
        while request != NONE:
            one, behind = world.tiers.fetches[request], int(world.tiers.fetches[request].next)
            if one.coming & 1 << PEERS and one.peer == g:
                call_none(engine.do_without, engine.own, world, request, world.control.now)
            request = behind


@compiled
def do_without(self: Any, mine: Engines, world: World, request: int, now: float) -> None:
    """What was to come from another GPU does not: when the GPU hears that the load is over, the request ends with an
    error, or keeps its blocks, and computes the rest itself (vLLM's `kv_load_failure_policy`)."""
    _drop_part(mine, world, PEERS, request)
    world.tiers.fetches[request].fails = mine.settings.fails
    tiers, g, size = world.tiers, int(world.seen.requests[request].gpu), mine.settings.block_size
    low, high = part_of(tiers, PEERS, request)
    tiers.ends[PEERS, request] = low
    prompt = int(world.seen.requests[request].prompt_tokens)
    lacks = min(prompt, high * size) - min(prompt, low * size)
    tiers.totals[PEERS, g] -= lacks
    if mine.jobs[request].finished == 0:
        mine.gpus[g].waiting_tokens += (high - low) * size
    if mine.preemptions[request] == 0:
        tiers.tokens[PEERS, request] = 0
        world.jobs[request].prefilled_tokens += lacks
    publish(mine, world, g)
    if tiers.fetches[request].coming == UNHEARD:
        _is_loaded(mine, world, g, request)
