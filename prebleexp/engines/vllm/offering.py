"""What steps fill is offered to tiers, as by vLLM's offloading connector (0.33.0, `_build_store_jobs`).

Full blocks are offered when the step that fills them is scheduled. A tier without room for what it lacks of an offer
stores nothing of it, and is offered all of that again with the request's next step. Who is finished offers once more
what it has, and has then used all of that again.
"""

from __future__ import annotations

from prebleexp.engines.segments import segment_of
from prebleexp.engines.vllm.blocks import key_of, segment_at
from prebleexp.engines.vllm.copies import is_offered, leave_windows, number_of
from prebleexp.engines.vllm.offered import between, has_more, mark
from prebleexp.engines.vllm.records import STEPS, Engines
from prebleexp.sim import keeping
from prebleexp.sim.compiled import chosen_by, compiled
from prebleexp.sim.records import NONE, World
from prebleexp.sim.tiers import (
    PEERS,
    UNSENT,
    copy_of,
    new_store,
    pin,
    place_of,
    unpin,
)


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
            had = int(mine.jobs[other].computed) - tokens + mine.settings.lookahead
            had = min(-(-had // size), int(mine.jobs[other].keyed))  # a block that is not full is nobody's else
            _take_out_of(mine, world, request, other, min(hits, had))
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


@compiled
def offer_all(mine: Engines, world: World, g: int) -> None:
    gpu, tiers, size = mine.gpus[g], world.tiers, mine.settings.block_size
    slot = (gpu.scheduled - 1) % STEPS
    take_out(mine, world, g)
    for row in range(mine.steps[g, slot].chosen):
        request = int(mine.chosen[g, slot, row].request)
        tokens = _most(world, request, min(int(mine.jobs[request].computed), int(mine.jobs[request].known)))
        late = mine.settings.drops_last and tokens > world.seen.requests[request].prompt_tokens
        # a block of an answer may be written again before the next is full
        _offer(mine, world, g, request, tokens // size, int(late))
    for number in range(tiers.ended[g], gpu.over):
        for row in range(mine.steps[g, number % STEPS].finished):
            request = int(mine.finished[g, number % STEPS, row])
            _offer(mine, world, g, request, at_its_end(mine, world, request), 0)
    for number in range(tiers.ended[g], gpu.over):
        for row in range(mine.steps[g, number % STEPS].finished):
            finish_uses(mine, world, g, int(mine.finished[g, number % STEPS, row]))
    tiers.ended[g] = gpu.over
    mine.steps[g, slot].kept = tiers.places[g].used


@compiled
def _most(world: World, request: int, tokens: int) -> int:
    """Of so many tokens those that may be stored."""
    if world.tiers.control[0].prompts_only != 0:
        return min(tokens, int(world.seen.requests[request].prompt_tokens))
    return tokens


@compiled
def at_its_end(mine: Engines, world: World, request: int) -> int:
    """Blocks of a request that is finished: of its last token there is no KV."""
    prompt, known = int(world.seen.requests[request].prompt_tokens), int(mine.jobs[request].known)
    return _most(world, request, max(prompt, known - 1)) // mine.settings.block_size


@compiled
def _offer(mine: Engines, world: World, g: int, request: int, full: int, late: int) -> None:
    """`full` blocks, but in the group of a draft's head, whose last one may be written again, so many less."""
    for tier in range(PEERS):
        if world.tiers.tiers[tier].blocks > 0 and has_more(mine, world, tier, request, full, late):
            _offer_to(mine, world, g, tier, request, full, late)


@compiled
def _offer_to(mine: Engines, world: World, g: int, tier: int, request: int, full: int, late: int) -> None:
    """Blocks that a tier was not offered yet: those that it lacks are stored, or none if there is no room for all."""
    tiers, gpu, place = world.tiers, mine.gpus[g], place_of(world.tiers, tier, g)
    step, low = mine.steps[g, (gpu.scheduled - 1) % STEPS], int(tiers.tried[tier, request])
    missing = _look_up(mine, world, tier, request, place, full, late)
    before = int(tiers.places[place].used)
    room = missing == 0 or keeping.make_room(world, tier, place, missing)
    step.dropped += before - tiers.places[place].used
    store = NONE
    step.refused += int(not room)
    if room and missing > 0:
        store = new_store(tiers)
        one = tiers.stores[store]
        one.gpu, one.tier, one.request, one.attempt, one.blocks = g, tier, request, mine.preemptions[request], missing
        one.low, one.high = max(0, low - 1), full  # of a head's group one more than of others
        one.step, one.waited_for, one.stage, one.counts = gpu.scheduled - 1, 0, UNSENT, 1
        tiers.jobs[request] += 1
        put_in_line(world, g, store)
    for table in range(mine.settings.tables):
        segment, (low, high) = 0, between(mine, world, tier, request, table, full, late)
        for block in range(low, high):
            if not is_offered(mine, world, request, table, block):
                continue
            segment = segment_at(mine, world, request, segment, block)
            key, number = segment_of(mine, world, request, segment), number_of(mine, table, block)
            copy = copy_of(tiers, place, key, number)
            if copy != NONE:
                unpin(tiers, copy)
            elif store != NONE and keeping.is_wanted(tiers, tier, place, key, number):
                keeping.add(tiers, tier, request, place, key, number, store)
    if room:
        mark(mine, world, tier, request, full, late)
    if store != NONE:
        leave_windows(mine, world, g, request, int(tiers.stores[store].low), full)


@compiled
def _look_up(mine: Engines, world: World, tier: int, request: int, place: int, full: int, late: int) -> int:
    """What is there is used, and pinned; returns how many blocks are to be stored."""
    tiers, missing = world.tiers, 0
    for table in range(mine.settings.tables):
        segment, (low, high) = 0, between(mine, world, tier, request, table, full, late)
        for block in range(low, high):
            if is_offered(mine, world, request, table, block):
                segment = segment_at(mine, world, request, segment, block)
                key = segment_of(mine, world, request, segment)
                keeping.count(tiers, tier, place, key, number_of(mine, table, block))
    if tiers.tiers[tier].adaptive != 0:
        _miss(mine, world, tier, request, place, full, late)
    for table in range(mine.settings.tables):
        segment, (low, high) = 0, between(mine, world, tier, request, table, full, late)
        for block in range(low, high):
            if not is_offered(mine, world, request, table, block):
                continue
            segment = segment_at(mine, world, request, segment, block)
            key, number = segment_of(mine, world, request, segment), number_of(mine, table, block)
            copy = copy_of(tiers, place, key, number)
            if copy == NONE:
                if keeping.is_wanted(tiers, tier, place, key, number):
                    missing += 1
                    keeping.use(tiers, tier, request, place, key, number)
                continue
            if tiers.copies[copy].store == NONE:
                keeping.use(tiers, tier, request, place, key, number)
                keeping.find(tiers, tier, request, number)
            pin(tiers, copy)
    return missing


@compiled
def _miss(mine: Engines, world: World, tier: int, request: int, place: int, full: int, late: int) -> None:
    for table in range(mine.settings.tables - 1, -1, -1):
        low, high = between(mine, world, tier, request, table, full, late)
        for block in range(high - 1, low - 1, -1):
            if is_offered(mine, world, request, table, block):
                key, number = key_of(mine, world, request, block), number_of(mine, table, block)
                absent = copy_of(world.tiers, place, key, number) == NONE
                if absent and keeping.is_wanted(world.tiers, tier, place, key, number):
                    keeping.miss(world.tiers, tier, request, place, key, number)


@compiled
def finish_uses(mine: Engines, world: World, g: int, request: int) -> None:
    """Who is finished, or leaves, has used once more what it used."""
    tiers = world.tiers
    tables = mine.settings.tables
    most = int(tiers.first[request + 1] - tiers.first[request]) // tables
    known = min(int(mine.jobs[request].known) // mine.settings.block_size, most)
    for tier in range(PEERS):
        if tiers.tiers[tier].blocks > 0:
            place = place_of(tiers, tier, g)
            for block in range(known - 1, -1, -1):
                for table in range(tables - 1, -1, -1):
                    number = number_of(mine, table, block)
                    if tiers.uses[tier, tiers.first[request] + number] != 0:
                        key = key_of(mine, world, request, block)
                        keeping.finish(tiers, tier, request, place, key, number)
    keeping.forget_uses(tiers, request)


@compiled
def put_in_line(world: World, g: int, store: int) -> None:
    line, stores = world.tiers.unsent[g], world.tiers.stores
    stores[store].next = NONE
    if line[0] == NONE:
        line[0] = store
    else:
        stores[line[1]].next = store
    line[1] = store
