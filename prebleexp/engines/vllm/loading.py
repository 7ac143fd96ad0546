"""What a waiting request lacks is loaded from tiers, as by vLLM's offloading connector (spec: engine-features.md, 5).

A load takes blocks for what the cache has and for what is loaded, where those that others were promised are left.
Others go on meanwhile; who has got its KV comes before all that wait, as in `engines.vllm.pulling`, and takes the rest
of its blocks like them.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.hit_ratio import note
from prebleexp.engines.vllm import peers
from prebleexp.engines.vllm.blocks import key_of
from prebleexp.engines.vllm.copies import (
    copy_at,
    needed_between,
    needed_from,
    number_of,
    reached,
    want_held,
)
from prebleexp.engines.vllm.offered import mark
from prebleexp.engines.vllm.pulling import promised, reserve
from prebleexp.engines.vllm.reading import comes_last, room, whole
from prebleexp.engines.vllm.records import LOADED, STEPS, Engines
from prebleexp.engines.vllm.tables import cached, remember
from prebleexp.engines.vllm.tier_lookup import find, looked_at_from
from prebleexp.sim import keeping
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
    UNHEARD,
    Tiers,
    pin,
    place_of,
)


@compiled
def fetch(self: Any, mine: Engines, world: World, request: int, now: float) -> int:
    """The first of a queue is to be admitted: whether KV of it comes from tiers before that."""
    g = int(world.seen.requests[request].gpu)
    gpu, one, job = mine.gpus[g], world.tiers.fetches[request], mine.jobs[request]
    if job.filling == LOADED:
        _enter_cache(mine, world, g, request)
        return GO_ON
    for tier in range(PEERS):  # it begins anew, and offers all
        world.tiers.tried[tier, request] = 0
    if world.tiers.jobs[request] > 0:
        return DEFERRED
    hits, _ = cached(mine, world, g, request)
    one.low, at, goes_on, waits = hits, hits, True, False
    for tier in range(TIERS):
        low = at
        if goes_on and (tier != PEERS or world.tiers.control[0].peers != 0):
            until, coming = _found(mine, world, tier, request, low)
            if _is_worth(mine, world, tier, request, low, until, now):
                at, waits = until, waits or coming
            goes_on = at > low or until == low  # else it was not worth while
        world.tiers.ends[tier, request] = at
    if at == hits:
        return GO_ON
    if waits or _is_loaded_for_another(mine, world, g, request):
        return DEFERRED
    computed = reached(mine, request, at)
    kept = mine.settings.blocks_kept_free if gpu.running > 0 else 0
    _, need, idle = room(mine, world, g, request, computed)
    if mine.settings.reserve_full_isl and whole(mine, int(job.known), hits, computed) + idle + kept > gpu.free:
        return NO_ROOM
    evicted = reserve(mine, world, g, request, need, idle + promised(mine, world, g), LOADED, computed)
    if evicted == NONE:
        return NO_ROOM
    step = mine.steps[g, gpu.scheduled % STEPS]
    step.evicted += evicted
    step.reserved += 1
    _note(mine, world, g, request, step)
    one.asked, one.fails, one.step, one.coming = 0, 0, gpu.scheduled, UNHEARD
    want_held(mine, world, g, request)
    _join(world, g, request)
    for tier in range(TIERS):
        _hold(mine, world, tier, request)
    return FETCHING


@compiled
def _enter_cache(mine: Engines, world: World, g: int, request: int) -> None:
    """What has come: others find it from now on. The last token is computed, even if there is KV of all."""
    job = mine.jobs[request]
    remember(mine, world, g, request, int(job.computed))
    comes_last(mine, world, g, request)
    if job.computed == job.known:
        job.computed -= 1
        if job.known == world.seen.requests[request].prompt_tokens:  # it was found, and is not counted again
            mine.steps[g, mine.gpus[g].scheduled % STEPS].prefilled -= 1


@compiled
def _join(world: World, g: int, request: int) -> None:
    """Behind all whose KV is under way to its GPU."""
    tiers = world.tiers
    tiers.fetches[request].next = NONE
    if tiers.loading[g] == NONE:
        tiers.loading[g] = request
        return
    last = int(tiers.loading[g])
    while tiers.fetches[last].next != NONE:
        last = int(tiers.fetches[last].next)
    tiers.fetches[last].next = request


@compiled
def _found(mine: Engines, world: World, tier: int, request: int, low: int) -> tuple[int, bool]:
    """Until where blocks from `low` on could come from a tier, and whether some of them are on their way there."""
    if tier == PEERS:
        return peers.find(mine, world, request, low), False
    return find(mine, world, tier, request, low)


@compiled
def _is_worth(mine: Engines, world: World, tier: int, request: int, low: int, high: int, now: float) -> bool:
    """Whether blocks low … high − 1 are to come from a tier."""
    one = world.tiers.tiers[tier]
    tokens = (high - low) * mine.settings.block_size
    if tokens == 0 or one.rule == ALWAYS:
        return True
    if one.rule == THRESHOLD:
        return bool(tokens >= one.least_tokens)
    g, known, link = int(world.seen.requests[request].gpu), int(mine.jobs[request].known), world.links.calls
    source, target = _ways(world, tier, request)
    blocks = needed_between(mine, low, high, reached(mine, request, high))
    blocks += _before_it(mine, world, tier, g) * one.in_line
    load_s = call_float(link.takes, link.own, source, target, blocks * world.tiers.control[0].kv_bytes, now)
    new = known - low * mine.settings.block_size
    return bool(load_s + _prefill_s(world, g, new - tokens, known) < _prefill_s(world, g, new, known))


@compiled
def _before_it(mine: Engines, world: World, tier: int, g: int) -> int:
    """Blocks that steps of a GPU have found in a tier, and that are not asked for yet."""
    blocks, request = 0, int(world.tiers.loading[g])
    while request != NONE:
        if world.tiers.fetches[request].asked == 0:
            blocks += _size(mine, world, tier, request)
        request = int(world.tiers.fetches[request].next)
    return blocks


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
def _is_loaded_for_another(mine: Engines, world: World, g: int, request: int) -> bool:
    """Whether some of it is on its way from tiers to this GPU for another request."""
    tiers, one, end = world.tiers, world.tiers.fetches[request], int(world.tiers.ends[TIERS - 1, request])
    other, tokens = int(tiers.loading[g]), reached(mine, request, end)
    while other != NONE:
        low, their_end = max(int(one.low), int(tiers.fetches[other].low)), int(tiers.ends[TIERS - 1, other])
        theirs = reached(mine, other, their_end)
        for table in range(mine.settings.tables):
            block = max(low, looked_at_from(mine, table, tokens), needed_from(mine, table, theirs))
            both = block < min(end, their_end)
            if both and key_of(mine, world, request, block) == key_of(mine, world, other, block):
                return True  # wherever two contexts agree, they have agreed before
        other = int(tiers.fetches[other].next)
    return False


@compiled
def _note(mine: Engines, world: World, g: int, request: int, step: Any) -> None:
    """What of a prompt was found, and where."""
    gpu, one, made, size = mine.gpus[g], world.tiers.fetches[request], world.jobs[request], mine.settings.block_size
    prompt, ends = int(world.seen.requests[request].prompt_tokens), world.tiers.ends
    here = min(prompt, one.low * size)
    end = reached(mine, request, int(ends[TIERS - 1, request]))
    gpu.waiting_tokens -= min(end, int(mine.jobs[request].known) - 1)
    step.hits += here
    found = here
    for tier in range(TIERS):
        until = min(prompt, end, ends[tier, request] * size)
        world.tiers.totals[tier, g] += until - found
        if mine.preemptions[request] == 0:
            world.tiers.tokens[tier, request] = until - found
        found = until
    made.state = RESERVED
    if mine.preemptions[request] == 0:
        made.hit_tokens, made.prefilled_tokens = here, prompt - found
        note(mine.recent, gpu, g, here, prompt)


@compiled
def part_of(tiers: Tiers, tier: int, request: int) -> tuple[int, int]:
    """The blocks that come from a tier: from where on, and until where."""
    low = tiers.fetches[request].low if tier == 0 else tiers.ends[tier - 1, request]
    return int(low), int(tiers.ends[tier, request])


@compiled
def _size(mine: Engines, world: World, tier: int, request: int) -> int:
    """Blocks of a part, of all tables."""
    low, high = part_of(world.tiers, tier, request)
    return needed_between(mine, low, high, reached(mine, request, int(world.tiers.ends[TIERS - 1, request])))


@compiled
def _hold(mine: Engines, world: World, tier: int, request: int) -> None:
    """A tier's part is used, and stays there. Whoever loads all from one tier need not offer it there."""
    tiers, one, g = world.tiers, world.tiers.fetches[request], int(world.seen.requests[request].gpu)
    low, high = part_of(tiers, tier, request)
    if high == low:
        return
    one.coming |= 1 << tier
    if tier == PEERS:
        peers.borrow(mine, world, request, low, high)
        return
    end, place = int(tiers.ends[TIERS - 1, request]), place_of(tiers, tier, g)
    if low == one.low and high == end:
        mark(mine, world, tier, request, high, 0)
    for table in range(mine.settings.tables):
        for block in range(max(low, needed_from(mine, table, reached(mine, request, end))), high):
            number = number_of(mine, table, block)
            pin(tiers, copy_at(mine, world, tier, request, table, block))
            keeping.use(tiers, tier, request, place, key_of(mine, world, request, block), number)
            keeping.find(tiers, tier, request, number)


@compiled
def ask_for_loads(mine: Engines, world: World, g: int, now: float) -> None:
    """What steps have found, in order, as far as they do not wait for blocks that are being stored."""
    tiers, request, link = world.tiers, int(world.tiers.loading[g]), world.links.calls
    while request != NONE:
        one = tiers.fetches[request]
        if one.asked == 0:
            if mine.steps[g, one.step % STEPS].waits > 0:
                return
            one.asked = 1
            for tier in range(TIERS):
                blocks = _size(mine, world, tier, request)
                if blocks > 0:
                    source, target = _ways(world, tier, request)
                    subject, size = tier * len(world.jobs) + request, blocks * tiers.control[0].kv_bytes
                    call_none(link.ask, link.own, subject, source, target, size, now)
        request = int(one.next)
