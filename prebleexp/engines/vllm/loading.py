"""What a waiting request lacks is loaded from tiers, as by vLLM's offloading connector (spec: clusters.md, section 3).

A load takes blocks for the whole context when it is asked for, and others go on meanwhile; as in `engines.vllm.pulling`
who has got its KV comes before all that wait.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.hit_ratio import note
from prebleexp.engines.serving import QUEUED
from prebleexp.engines.vllm.blocks import cached, key_of, most_of, release
from prebleexp.engines.vllm.choosing import blocks_of
from prebleexp.engines.vllm.copies import copy_at
from prebleexp.engines.vllm.peers import borrow, find, give_back
from prebleexp.engines.vllm.publishing import publish
from prebleexp.engines.vllm.pulling import arrive, promised, reserve
from prebleexp.engines.vllm.records import LOADED, STEPS, Engines
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import request_ms, step_s
from prebleexp.sim.plug import call_float, call_none
from prebleexp.sim.pulling import RESERVED
from prebleexp.sim.records import NONE, World
from prebleexp.sim.tiers import (
    ALWAYS,
    DEFERRED,
    FETCHING,
    GO_ON,
    NO_ROOM,
    PEERS,
    THRESHOLD,
    TIERS,
    Tiers,
    pin,
    unpin,
    use,
)
from prebleexp.sim.waking import wake


@compiled
def fetch(self: Any, mine: Engines, world: World, request: int, now: float) -> int:
    """The first of a queue is to be admitted: whether KV of it comes from tiers before that."""
    g = int(world.seen.requests[request].gpu)
    gpu, one = mine.gpus[g], world.tiers.fetches[request]
    hits, idle = cached(mine, world, g, request)
    one.low, at, goes_on = hits, hits, True
    for tier in range(TIERS):
        low = at
        if goes_on and (tier != PEERS or world.tiers.control[0].peers != 0):
            at = _worth(mine, world, tier, request, low, now)
            missing = tier == PEERS or copy_at(mine, world, tier, request, low) == NONE
            goes_on = at > low or missing  # else it was not worth while
        world.tiers.ends[tier, request] = at
    if at == hits:
        return GO_ON
    if _is_under_way(mine, world, g, request):
        return DEFERRED
    need = blocks_of(mine, int(mine.jobs[request].known)) - hits
    evicted = reserve(mine, world, g, request, need, idle + promised(mine, g), LOADED)
    if evicted == NONE:
        return NO_ROOM
    step = mine.steps[g, gpu.scheduled % STEPS]
    step.evicted += evicted
    _note(mine, world, g, request, step)
    one.next, world.tiers.loading[g] = world.tiers.loading[g], request
    for tier in range(TIERS):
        _load(mine, world, tier, request, now)
    return FETCHING


@compiled
def _worth(mine: Engines, world: World, tier: int, request: int, low: int, now: float) -> int:
    """Until where blocks from `low` on are to come from a tier."""
    one = world.tiers.tiers[tier]
    high = find(mine, world, request, low) if tier == PEERS else _until(mine, world, tier, request, low)
    tokens = (high - low) * mine.settings.block_size
    if tokens == 0 or one.rule == ALWAYS:
        return high
    if one.rule == THRESHOLD:
        return high if tokens >= one.least_tokens else low
    g, known, link = int(world.seen.requests[request].gpu), int(mine.jobs[request].known), world.links.calls
    source, target = _ways(world, tier, request)
    load_s = call_float(link.takes, link.own, source, target, (high - low) * world.tiers.control[0].kv_bytes, now)
    new = known - low * mine.settings.block_size
    return high if load_s + _prefill_s(world, g, new - tokens, known) < _prefill_s(world, g, new, known) else low


@compiled
def _until(mine: Engines, world: World, tier: int, request: int, low: int) -> int:
    """Until where a tier has blocks from `low` on."""
    high, most = low, most_of(mine, request)
    while high < most and copy_at(mine, world, tier, request, high) != NONE:
        high += 1
    return high


@compiled
def _prefill_s(world: World, g: int, new: int, length: int) -> float:
    """Seconds of a prefill that is alone in one step."""
    cost = world.seen.costs[g]
    return step_s(cost, 1, new, length, 0, 0, length, request_ms(cost, new, length))


@compiled
def _ways(world: World, tier: int, request: int) -> tuple[int, int]:
    """Where a request's loads come from, and where they go."""
    first, gpus = int(world.tiers.tiers[tier].first), len(world.live)
    source = gpus + int(world.tiers.fetches[request].peer) if tier == PEERS else 2 * gpus
    return first + source, first + int(world.seen.requests[request].gpu)


@compiled
def _is_under_way(mine: Engines, world: World, g: int, request: int) -> bool:
    """Whether some of it is on its way to its tier, or from there to this GPU for another request."""
    tiers, one, end = world.tiers, world.tiers.fetches[request], int(world.tiers.ends[TIERS - 1, request])
    for tier in range(PEERS):
        low, high = _part(tiers, tier, request)
        for block in range(low, high):
            if tiers.copies[copy_at(mine, world, tier, request, block)].store != NONE:
                return True
    other = int(tiers.loading[g])
    while other != NONE:
        theirs = tiers.fetches[other]
        block = max(int(one.low), int(theirs.low))
        both = block < min(end, int(tiers.ends[TIERS - 1, other]))
        if both and key_of(mine, world, request, block) == key_of(mine, world, other, block):
            return True  # wherever two contexts agree, they have agreed before
        other = int(theirs.next)
    return False


@compiled
def _note(mine: Engines, world: World, g: int, request: int, step: Any) -> None:
    """What of a prompt was found, and where."""
    gpu, one, made, size = mine.gpus[g], world.tiers.fetches[request], world.jobs[request], mine.settings.block_size
    prompt, ends = int(world.seen.requests[request].prompt_tokens), world.tiers.ends
    here = min(prompt, one.low * size)
    gpu.waiting_tokens -= ends[TIERS - 1, request] * size
    step.hits += here
    found = here
    for tier in range(TIERS):
        until = min(prompt, ends[tier, request] * size)
        world.tiers.totals[tier, g] += until - found
        if mine.preemptions[request] == 0:
            world.tiers.tokens[tier, request] = until - found
        found = until
    made.state = RESERVED
    if mine.preemptions[request] == 0:
        made.hit_tokens, made.prefilled_tokens = here, prompt - found
        note(mine.recent, gpu, g, here, prompt)


@compiled
def _part(tiers: Tiers, tier: int, request: int) -> tuple[int, int]:
    """The blocks that come from a tier: from where on, and until where."""
    low = tiers.fetches[request].low if tier == 0 else tiers.ends[tier - 1, request]
    return int(low), int(tiers.ends[tier, request])


@compiled
def _load(mine: Engines, world: World, tier: int, request: int, now: float) -> None:
    """Ask for a tier's part."""
    tiers, one, link = world.tiers, world.tiers.fetches[request], world.links.calls
    low, high = _part(tiers, tier, request)
    if high == low:
        return
    if tier == PEERS:
        borrow(mine, world, request, low, high)
    else:
        for block in range(high - 1, low - 1, -1):
            copy = copy_at(mine, world, tier, request, block)
            pin(tiers, copy)
            use(tiers, copy)
    one.coming |= 1 << tier
    source, target = _ways(world, tier, request)
    subject, size = tier * len(world.jobs) + request, (high - low) * tiers.control[0].kv_bytes
    call_none(link.ask, link.own, subject, source, target, size, now)


# ---------------------------------------------------------------- what has come
@compiled
def loaded(mine: Engines, world: World, tier: int, request: int) -> None:
    _end_load(mine, world, tier, request)
    _is_there(mine, world, int(world.seen.requests[request].gpu), request)


@compiled
def _is_there(mine: Engines, world: World, g: int, request: int) -> None:
    """A part is no more under way: if that was the last one, the request waits to be admitted."""
    tiers = world.tiers
    if tiers.fetches[request].coming != 0:
        return
    _not_loading(world, g, request)
    if mine.jobs[request].finished != 0:  # it gave up meanwhile
        release(mine, g, request)
    else:
        arrive(mine, world, g, request, int(tiers.ends[TIERS - 1, request]) * mine.settings.block_size)
        world.jobs[request].state = QUEUED
    publish(mine, world, g)
    wake(world, g)


@compiled
def _end_load(mine: Engines, world: World, tier: int, request: int) -> None:
    """Whoever has what was loaded need not keep it."""
    low, high = _part(world.tiers, tier, request)
    world.tiers.fetches[request].coming ^= 1 << tier
    if tier == PEERS:
        give_back(mine, world, request, low, high)
        return
    for block in range(low, high):
        unpin(world.tiers, copy_at(mine, world, tier, request, block))


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
                _drop_load(mine, world, tier, request)
        if mine.jobs[request].finished != 0:  # it gave up, and is in nobody's hands
            release(mine, g, request)
        tiers.loading[g] = tiers.fetches[request].next


@compiled
def _drop_load(mine: Engines, world: World, tier: int, request: int) -> None:
    link = world.links.calls
    call_none(link.drop, link.own, tier * len(world.jobs) + request, world.control.now)
    _end_load(mine, world, tier, request)


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
    """What was to come from another GPU does not: a request keeps its blocks, and computes the rest itself, as with
    vLLM's `kv_load_failure_policy=recompute`."""
    _drop_load(mine, world, PEERS, request)
    tiers, g, size = world.tiers, int(world.seen.requests[request].gpu), mine.settings.block_size
    low, high = _part(tiers, PEERS, request)
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
    _is_there(mine, world, g, request)
