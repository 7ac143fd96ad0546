"""KV tiers behind a GPU's cache, as vLLM's offloading connector has them (spec: clusters.md, section 3): what a waiting
request lacks is loaded from there, what was computed is stored there.

A load takes blocks for the whole context when it is asked for, and others go on meanwhile; as in `engines.vllm.pulling`
who has got its KV comes before all that wait. A block that is stored is held until it has been read.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.hit_ratio import note
from prebleexp.engines.serving import QUEUED
from prebleexp.engines.vllm.blocks import (
    cached,
    found_until,
    give_back,
    hold_between,
    key_of,
    most_of,
    release,
)
from prebleexp.engines.vllm.peers import find, lend, take_back
from prebleexp.engines.vllm.publishing import publish
from prebleexp.engines.vllm.pulling import arrive, promised, reserve
from prebleexp.engines.vllm.records import LOADED, STEPS, Engines
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import request_ms, step_s
from prebleexp.sim.news import tell
from prebleexp.sim.plug import call_float, call_none
from prebleexp.sim.pulling import RESERVED
from prebleexp.sim.records import COPIED, NONE, World
from prebleexp.sim.tiers import (
    ALWAYS,
    DEFERRED,
    FETCHING,
    GO_ON,
    NO_ROOM,
    PEERS,
    SHARED,
    THRESHOLD,
    TIERS,
    Tiers,
    add,
    copy_of,
    end_store,
    make_room,
    new_store,
    pin,
    place_of,
    unpin,
    use,
)
from prebleexp.sim.waking import wake


# ---------------------------------------------------------------- loads
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
    evicted = reserve(mine, world, g, request, hits, idle + promised(mine, g), LOADED)
    if evicted == NONE:
        return NO_ROOM
    step = mine.steps[g, gpu.scheduled % STEPS]
    step.evicted += evicted
    _note(mine, world, g, request, step)
    one.left = 0
    one.next, world.tiers.loading[g] = world.tiers.loading[g], request
    for tier in range(TIERS):
        _load(mine, world, tier, request, now)
    return FETCHING


@compiled
def copy_at(mine: Engines, world: World, tier: int, request: int, block: int) -> int:
    """A tier's copy of a block of a request's context; -1: it has none."""
    place = place_of(world.tiers, tier, int(world.seen.requests[request].gpu))
    return copy_of(world.tiers, place, key_of(mine, world, request, block), block)


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
    """Alone, in one step."""
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
        lend(mine, world, request, low, high)
    else:
        for block in range(high - 1, low - 1, -1):
            copy = copy_at(mine, world, tier, request, block)
            pin(tiers, copy)
            use(tiers, copy)
    one.left += 1
    source, target = _ways(world, tier, request)
    subject, size = tier * len(world.jobs) + request, (high - low) * tiers.control[0].kv_bytes
    call_none(link.ask, link.own, subject, source, target, size, now)


# ---------------------------------------------------------------- stores
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
        if job.running != 0 or job.finished != 0:  # else it was preempted meanwhile
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
            hold_between(mine, world, g, request, one, begin, block)
        block += 1


# ---------------------------------------------------------------- what has come
@compiled
def landed(self: Any, mine: Engines, world: World, subject: int, now: float) -> None:
    """A load, or a store, is over."""
    n = len(world.jobs)
    if subject < TIERS * n:
        _loaded(mine, world, subject // n, subject % n)
    else:
        _stored(mine, world, subject - TIERS * n)


@compiled
def _loaded(mine: Engines, world: World, tier: int, request: int) -> None:
    tiers, one, g = world.tiers, world.tiers.fetches[request], int(world.seen.requests[request].gpu)
    low, high = _part(tiers, tier, request)
    if tier == PEERS:
        take_back(mine, world, request, low, high)
    else:
        for block in range(low, high):
            unpin(tiers, copy_at(mine, world, tier, request, block))
    one.left -= 1
    if one.left > 0:
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
def _stored(mine: Engines, world: World, store: int) -> None:
    tiers, one = world.tiers, world.tiers.stores[store]
    g, tier, request = int(one.gpu), int(one.tier), int(one.request)
    for block in range(one.low, one.high):
        copy = copy_at(mine, world, tier, request, block)
        if copy != NONE and tiers.copies[copy].store == store:
            tiers.copies[copy].store = NONE
            unpin(tiers, copy)
    give_back(mine, g, one)
    if world.told.copied != 0:
        _tell_copied(mine, world, store)
    end_store(tiers, store)
    publish(mine, world, g)
    wake(world, g)
    if tier == SHARED:  # whoever waits for it may go on
        for other in range(len(world.live)):
            if world.live[other].queued > 0:
                wake(world, other)


@compiled
def _tell_copied(mine: Engines, world: World, store: int) -> None:
    """Let routers hear how much of a context its place has, from its beginning on."""
    tiers, one, block = world.tiers, world.tiers.stores[store], 0
    g, tier, request = int(one.gpu), int(one.tier), int(one.request)
    while block < one.high:
        copy = copy_at(mine, world, tier, request, block)
        if copy == NONE or tiers.copies[copy].store != NONE:
            break
        block += 1
    if block > 0:
        tell(world, COPIED, request, place_of(tiers, tier, g), block * mine.settings.block_size)
