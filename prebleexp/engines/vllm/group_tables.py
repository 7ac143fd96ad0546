"""What requests hold where layers have groups: each group has its own table of blocks, and all take from one pool
(vllm/v1/core/single_type_kv_cache_manager.py).

All tables of a request are equally long, and have the same blocks in use behind what windows have left: a table is a
point from which on it holds blocks (`low`). What is given up is given up a few blocks at a time, while others may hold
the same ones.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.vllm.blocks import cache_between, found_run, give_back, hold_between, let_go_of, segment_at, take
from prebleexp.engines.vllm.group_lookup import FULL, SLIDING, behind, lookup
from prebleexp.engines.vllm.records import NEVER, STEPS, Engines
from prebleexp.engines.vllm.runs import cut, free_hold
from prebleexp.engines.vllm.steady import computed_of, is_whole
from prebleexp.sim.compiled import compiled
from prebleexp.sim.news import tell
from prebleexp.sim.notices import STORED
from prebleexp.sim.prefetching import prefetched
from prebleexp.sim.records import NONE, World


# ---------------------------------------------------------------- at an admission
@compiled
def cached(mine: Engines, world: World, g: int, request: int) -> tuple[int, int]:
    """Blocks of a waiting request's context that are found, and how many that nobody holds it would take for that, of
    all groups. Touches nothing."""
    hits, _ = lookup(mine, world, g, request)
    size, idle = mine.settings.block_size, 0
    for number in range(len(mine.groups.all)):
        group = mine.groups.all[number]
        at, segment, run = behind(int(group.kind), int(group.window), hits * size, size), 0, NONE
        while at < hits:
            segment = segment_at(mine, world, request, segment, at)
            run, until = found_run(mine, world, g, request, segment, at, hits, int(group.key), run)
            if mine.blocks.runs[run].holders == 0:
                idle += until - at
            at = until
    return hits, idle


@compiled
def hold(mine: Engines, world: World, g: int, request: int) -> None:
    """Let a request hold what `cached` finds."""
    job, groups, gpu, size = mine.jobs[request], mine.groups, mine.gpus[g], mine.settings.block_size
    hits, longest = lookup(mine, world, g, request)
    groups.junctions[request] = longest if longest > hits else 0
    groups.ranks[g] += 1
    groups.links[request].rank = groups.ranks[g]
    job.blocks = job.keyed = hits
    job.segment = 0
    for number in range(len(groups.all)):
        group, table, free = groups.all[number], groups.tables[request, number], gpu.free
        table.low = table.first = behind(int(group.kind), int(group.window), hits * size, size)
        table.gone_to = 0
        table.cached = hits - table.low
        hold_between(mine, world, g, request, table, int(table.low), hits, int(group.key))
        if number == groups.told:
            groups.held[g] += free - gpu.free
    groups.due[request] = 0


@compiled
def needed(mine: Engines, known: int, hits: int, reached: int) -> int:
    """Blocks beside the hits that must be free so that a request which knows so many tokens is admitted, and computes
    so many positions at first."""
    groups, blocks = mine.groups, -(-known // mine.settings.block_size)
    first = mine.settings.tables * (-(-reached // mine.settings.block_size) - hits)
    if not mine.settings.reserve_full_isl:
        return int(first)
    whole = 0
    for number in range(len(groups.all)):
        whole += max(0, min(blocks, int(groups.all[number].cap)) - hits)
    return int(max(first, whole))


# ---------------------------------------------------------------- while it runs
@compiled
def lengthen(mine: Engines, world: World, g: int, request: int, blocks: int) -> int:
    """So many blocks more for each table of a request; how many of those taken were cached until now."""
    if blocks == 0:
        return 0
    mine.jobs[request].blocks += blocks
    mine.groups.held[g] += blocks
    return int(take(mine, world, g, blocks * mine.settings.tables))


@compiled
def cross(mine: Engines, world: World, g: int, until: int) -> None:
    """Steady requests whose phase the step in hand is, in order of admission: those before another, which is passed
    over; -1: all the others. Whom they take cached blocks from is first in the queue, whatever is given up meanwhile:
    so these are evicted at once, but where what is given up is cached first."""
    gpu, groups, links, size = mine.gpus[g], mine.groups, mine.groups.links, mine.settings.block_size
    step, left, wanted = int(gpu.scheduled), int(mine.stirred[g, gpu.scheduled % size]), 0
    if groups.walked[g] != step:
        groups.walked[g], first = step, len(mine.jobs) + g * size
        for at in range(len(groups.offsets)):
            groups.next[at] = links[first + (step - groups.offsets[at]) % size].behind
    while True:
        found, least = NONE, NEVER if until == NONE else int(links[until].rank)
        for at in range(len(groups.next) if left > 0 else 0):
            if NONE < links[groups.next[at]].rank < least:  # a phase itself has none
                found, least = at, int(links[groups.next[at]].rank)
        if wanted > 0 and (found == NONE or groups.keep_answers):
            unkeyed, gpu.unkeyed = int(gpu.unkeyed), 0  # was given up since
            mine.steps[g, step % STEPS].evicted += take(mine, world, g, wanted)
            gpu.unkeyed, wanted = unkeyed, 0
        if found == NONE:
            break
        request, job, left = int(groups.next[found]), mine.jobs[groups.next[found]], left - 1
        groups.next[found] = prefetched((links, mine.jobs, groups.due, groups.tables), int(links[request].behind))
        if job.computed - job.under_way + max(0, gpu.over - job.steady_from) >= groups.due[request]:
            give_up(mine, world, g, request)
        if computed_of(job, step) == job.blocks * size:
            job.blocks += 1
            groups.held[g] += 1
            mine.crossing[g, step % size] -= int(job.blocks * size + 1 >= job.limit)  # it `is_whole`
            unkeyed = min(mine.settings.tables, int(gpu.unkeyed))
            gpu.unkeyed, gpu.free = gpu.unkeyed - unkeyed, gpu.free - unkeyed
            wanted += mine.settings.tables - unkeyed
    if until != NONE:
        for at in range(len(groups.next)):
            groups.next[at] = links[until].behind if groups.next[at] == until else groups.next[at]


@compiled
def go_steadily(mine: Engines, world: World, g: int, request: int) -> int:
    """What a steady request gives up and takes for the next token; steps until it must be looked at again: what lies
    behind a window when it begins to be steady may have to wait for the step under way."""
    gpu, job, computed = mine.gpus[g], mine.jobs[request], computed_of(mine.jobs[request], mine.gpus[g].scheduled)
    give_up(mine, world, g, request)
    if computed == job.blocks * mine.settings.block_size:
        mine.steps[g, gpu.scheduled % STEPS].evicted += lengthen(mine, world, g, request, 1)
        mine.crossing[g, gpu.scheduled % mine.settings.block_size] -= int(is_whole(mine, job))
    return 1 if mine.groups.due[request] + int(mine.settings.async_scheduling) <= computed else NEVER


@compiled
def give_up(mine: Engines, world: World, g: int, request: int) -> None:
    """Blocks that are behind the windows of a request, by the positions of it that are computed in steps which are
    over."""
    gpu, groups, job, size, due = mine.gpus[g], mine.groups, mine.jobs[request], mine.settings.block_size, NEVER
    steadily = max(0, int(gpu.over - job.steady_from)) if job.steady_from != NONE else 0
    processed = int(job.computed - job.under_way) + steadily
    if processed < groups.due[request]:
        return
    if groups.keep_answers:  # what is given up is cached by now
        remember(mine, world, g, request, processed)
    for number in range(len(groups.all)):
        if groups.all[number].kind == FULL:
            continue
        group, table = groups.all[number], groups.tables[request, number]
        until = min(behind(int(group.kind), int(group.window), processed, size), int(job.blocks))
        if until > table.low and table.holds == NONE:  # none of them is cached
            gone = until - int(table.low)
            gpu.free, gpu.unkeyed, table.low = gpu.free + gone, gpu.unkeyed + gone, until
            groups.held[g] -= gone * int(number == groups.told)
        elif until > table.low:
            _give_up(mine, g, request, number, until)
        end = (int(table.low) + 1) * size
        due = min(due, end + group.window - 1 if group.kind == SLIDING else -(-end // group.window) * group.window)
    groups.due[request] = due


@compiled
def release(mine: Engines, g: int, request: int) -> None:
    """Give back all that a request holds, group after group."""
    gpu, job, groups = mine.gpus[g], mine.jobs[request], mine.groups
    for number in range(len(groups.all)):
        table, free = groups.tables[request, number], gpu.free
        unkeyed = job.blocks - table.low - table.cached
        gpu.unkeyed += unkeyed
        gpu.free += unkeyed
        give_back(mine, g, table)
        table.low = table.cached = 0
        table.answer = NONE
        if number == groups.told:
            groups.held[g] -= gpu.free - free
    job.answer = NONE
    job.blocks = job.keyed = job.segment = 0


@compiled
def release_late(mine: Engines, g: int, request: int) -> None:
    """The same, but what is cached from the last group to the first."""
    gpu, groups = mine.gpus[g], mine.groups
    for number in range(len(groups.all) - 1, -1, -1):
        free = gpu.free
        give_back(mine, g, groups.tables[request, number])
        groups.held[g] -= (gpu.free - free) * int(number == groups.told)
    release(mine, g, request)


@compiled
def remember(mine: Engines, world: World, g: int, request: int, tokens: int) -> None:
    """Cache of the blocks that a request's first `tokens` tokens fill those that a group keeps."""
    job, size = mine.jobs[request], mine.settings.block_size
    if tokens < (job.keyed + 1) * size or not mine.settings.enable_prefix_caching:
        return
    full, segment = tokens // size, int(job.segment)
    for number in range(len(mine.groups.all)):
        group, table = mine.groups.all[number], mine.groups.tables[request, number]
        at = max(int(job.keyed), int(table.low))
        while at < full:
            low, high = kept(mine, world, request, group, at, int(mine.groups.head != NONE))
            low, high = max(low, at), min(high, full)
            if low >= full:
                break
            last = cache_between(mine, world, g, request, table, segment, low, high, int(group.key))
            table.cached += high - low
            if group.every == NONE:
                job.segment = last
            at = high
    job.keyed = full
    if world.told.hears[STORED] != 0:
        tell(world, STORED, request, g, full * size)


# ---------------------------------------------------------------- what these are made of
@compiled
def kept(mine: Engines, world: World, request: int, group: Any, at: int, dropped: int) -> tuple[int, int]:
    """The first blocks from `at` on that a group caches: from where on, which may be before that, and until where.
    `dropped`: blocks that a head's group finds behind the end of a hit; whoever sends the same prompt finds one less
    then than who sends a longer one, if the prompt ends with a block."""
    if group.every == NONE:
        return at, NEVER
    low, high = NEVER, NEVER
    if group.every > 0:
        high = (at // group.every + 1) * group.every
        low = high - group.tail
    tokens, size = int(world.seen.requests[request].prompt_tokens), mine.settings.block_size
    for end in (
        (tokens - 1) // size - dropped,
        (tokens - 1 + dropped) // size - dropped,
        int(mine.groups.junctions[request]),
    ):
        if end > at and end - group.tail < low:
            low, high = end - group.tail, end
    return low, high


@compiled
def _give_up(mine: Engines, g: int, request: int, number: int, until: int) -> None:
    """The blocks of a table before one: those that are cached, from the last to the first, and the others."""
    gpu, groups, holds, runs = mine.gpus[g], mine.groups, mine.blocks.holds, mine.blocks.runs
    table, free, let_go = groups.tables[request, number], gpu.free, 0
    last, one = int(table.holds), NONE
    stays = int(holds[last].behind)
    while stays != NONE and runs[holds[stays].run].high - holds[stays].blocks < until:
        one, stays = stays, NONE if stays == last else int(holds[stays].behind)
    while one != NONE:
        before, run, blocks = int(holds[one].before), int(holds[one].run), int(holds[one].blocks)
        gone = min(blocks, until - int(runs[run].high) + blocks)
        if gone == blocks:
            let_go_of(mine, g, run, blocks)
            free_hold(mine, one)
            table.answer = NONE if table.answer == run else table.answer
        else:
            while runs[run].low > until:
                run = int(runs[run].above)
            if runs[run].low < until:
                cut(mine, g, run, until)
            let_go_of(mine, g, int(runs[run].above), gone)
            holds[one].blocks -= gone
            stays = one
        let_go, one = let_go + gone, before
    if stays == NONE:
        table.holds = NONE
    else:
        holds[stays].before, holds[last].behind = NONE, stays
    unkeyed = until - table.low - let_go
    gpu.free, gpu.unkeyed = gpu.free + unkeyed, gpu.unkeyed + unkeyed
    table.low, table.cached = until, table.cached - let_go
    if number == groups.told:
        groups.held[g] -= gpu.free - free
