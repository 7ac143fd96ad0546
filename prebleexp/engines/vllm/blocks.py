"""vLLM's KV blocks: which are cached, who holds them, which is taken next (vllm/v1/core/block_pool.py).

A block is known by the whole prefix that it ends. A segment id stands for its whole path, so the key of a block is the
segment that holds its last token, and its number within the context. Where there are several tables, each segment has a
key for each. Blocks of a key that were cached together make a run; there may be several copies of one block, of which a
lookup takes the oldest.

Blocks that a request gives back are evicted from its last position on, and after all that were given back before; so
wherever a block is cached, those before it are as well.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.segments import ALL, segment_of
from prebleexp.engines.vllm.records import Engines
from prebleexp.engines.vllm.runs import add_hold, add_run, cut, forget, free_hold, join_queue, leave_queue, neighbour
from prebleexp.sim.children import child_of
from prebleexp.sim.compiled import compiled
from prebleexp.sim.news import tell
from prebleexp.sim.notices import EVICTED, STORED
from prebleexp.sim.records import NONE, World
from prebleexp.sim.tiers import want


# ---------------------------------------------------------------- looking up
@compiled
def cached(mine: Engines, world: World, g: int, request: int) -> tuple[int, int]:
    """Of a waiting request's context, blocks that are cached, and those of them that nobody holds. Touches nothing."""
    runs, most = mine.blocks.runs, most_of(mine, request)
    at, idle, segment, run = 0, 0, 0, NONE
    while at < most:
        segment = segment_at(mine, world, request, segment, at)
        of, until = found_run(mine, world, g, request, segment, at, most, 0, run)
        if of == NONE:
            break
        run = of
        if runs[run].holders == 0:
            idle += until - at
        at = until
    if mine.settings.drops_last and at > 0:
        return at - 1, idle - int(runs[run].holders == 0)
    return at, idle


@compiled
def hold(mine: Engines, world: World, g: int, request: int) -> None:
    """Let a request hold the blocks that `cached` finds."""
    job, most = mine.jobs[request], most_of(mine, request)
    if mine.settings.drops_last:
        most = max(0, found_until(mine, world, g, request, most) - 1)
    job.blocks, job.segment = hold_between(mine, world, g, request, job, 0, most, 0)
    job.keyed = job.blocks


@compiled
def hold_between(
    mine: Engines, world: World, g: int, request: int, holder: Any, low: int, most: int, of: int
) -> tuple[int, int]:
    """The same of blocks from `low` on, by whatever has `holds`; returns until where they are cached, and the segment
    in which they end. `of`: which of a segment's keys they have."""
    at, segment, run = low, 0, NONE
    while at < most:
        segment = segment_at(mine, world, request, segment, at)
        run, until = found_run(mine, world, g, request, segment, at, most, of, run)
        if run == NONE:
            break
        if until < mine.blocks.runs[run].high:
            run = cut(mine, g, run, until)
        if at > mine.blocks.runs[run].low:
            cut(mine, g, run, at)
        if mine.blocks.runs[run].holders == 0:
            leave_queue(mine, g, run)
            mine.gpus[g].free -= until - at
        mine.blocks.runs[run].holders += 1
        add_hold(mine, holder, run, until - at)
        at = until
    return at, segment


@compiled
def found_until(mine: Engines, world: World, g: int, request: int, most: int) -> int:
    """How many of the first blocks of a request's context are cached, at most `most`."""
    at, segment, run = 0, 0, NONE
    while at < most:
        segment = segment_at(mine, world, request, segment, at)
        run, until = found_run(mine, world, g, request, segment, at, most, 0, run)
        if run == NONE:
            break
        at = until
    return at


@compiled
def key_of(mine: Engines, world: World, request: int, block: int) -> int:
    """What a block of a request's context is known by, beside its number."""
    return segment_of(mine, world, request, segment_at(mine, world, request, 0, block))


@compiled
def most_of(mine: Engines, request: int) -> int:
    """Blocks of a context that may be found: at least its last token is computed again."""
    return (mine.jobs[request].known - 1) // mine.settings.block_size if mine.settings.enable_prefix_caching else 0


@compiled
def end_of(mine: Engines, world: World, request: int, segment: int) -> int:
    """Until where blocks are known by a segment: to its end, or a token before it where keys cover the next token."""
    row = world.seen.requests[request]
    end = int(world.seen.prompts.ends[row.first_segment + segment]) if segment < row.segments else ALL
    return end - mine.settings.key_ahead


@compiled
def segment_at(mine: Engines, world: World, request: int, segment: int, block: int) -> int:
    """In which segment of its context, from `segment` on, a block ends."""
    while end_of(mine, world, request, segment) < (block + 1) * mine.settings.block_size:
        segment += 1
    return segment


@compiled
def found_run(
    mine: Engines, world: World, g: int, request: int, segment: int, block: int, most: int, of: int, near: int
) -> tuple[int, int]:
    """The oldest run that has a block of a request's context, and until where it is that: at most to the segment's end,
    for the run may be of an answer that was longer than this context has it; and to where an older one begins. -1:
    there is none. `near`: the run that has the block before it, if that is known."""
    most = min(most, end_of(mine, world, request, segment) // mine.settings.block_size)
    runs, key = mine.blocks.runs, segment_of(mine, world, request, segment) * mine.settings.tables + of
    run = neighbour(mine, near, key, block)
    if run != NONE and block >= runs[run].beyond:
        return run, min(most, int(runs[run].high))
    run = first = child_of(mine.blocks, g, key)
    while run != NONE:
        if runs[run].low <= block and block < runs[run].high:
            return run, min(most, int(runs[run].high))
        if block < runs[run].low:
            most = min(most, int(runs[run].low))  # there an older one begins
        run = int(runs[run].newer)
        if run == first:
            break
    return NONE, block


# ---------------------------------------------------------------- taking and giving back
@compiled
def take(mine: Engines, world: World, g: int, blocks: int) -> int:
    """Take so many free blocks for requests; returns how many of them were cached until now."""
    gpu = mine.gpus[g]
    gpu.free -= blocks
    unkeyed = min(blocks, gpu.unkeyed)
    gpu.unkeyed -= unkeyed
    evicted = left = blocks - unkeyed
    while left > 0:
        run = int(gpu.first)
        record = mine.blocks.runs[run]
        gone = min(left, int(record.high - record.low))
        if record.leaver != NONE:
            table, high = record.key % mine.settings.tables, int(record.high)
            want(world.tiers, g, int(record.leaver), int(record.attempt), int(table), high - gone, high)
        record.high -= gone
        left -= gone
        if world.told.hears[EVICTED] != 0 and record.key % mine.settings.tables == 0:
            key = int(record.key // mine.settings.tables)
            whose = key if mine.settings.names_keys else int(record.owner)
            tell(world, EVICTED, whose, g, int(record.high) * mine.settings.block_size)
        if record.high == record.low:
            forget(mine, g, run)
    return evicted


@compiled
def release(mine: Engines, g: int, request: int) -> None:
    """Give back all that a request holds."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    gpu.unkeyed += job.blocks - job.keyed
    gpu.free += job.blocks - job.keyed
    give_back(mine, g, job)
    job.answer = NONE
    job.blocks = job.keyed = job.segment = 0


@compiled
def give_back(mine: Engines, g: int, holder: Any) -> None:
    """The cached blocks of it."""
    holds, one = mine.blocks.holds, int(holder.holds)
    while one != NONE:
        before = int(holds[one].before)
        let_go_of(mine, g, int(holds[one].run), int(holds[one].blocks))
        free_hold(mine, one)
        one = before
    holder.holds = NONE


@compiled
def let_go_of(mine: Engines, g: int, run: int, blocks: int) -> None:
    """So many blocks, of a run and of those above it, have a holder less."""
    while blocks > 0:
        record = mine.blocks.runs[run]
        record.holders -= 1
        if record.holders == 0:
            join_queue(mine, g, run)
            mine.gpus[g].free += record.high - record.low
        blocks -= record.high - record.low
        run = int(record.above)


@compiled
def clear(mine: Engines, g: int) -> None:
    """Drop all that is cached and that nobody holds; nobody is told."""
    while mine.gpus[g].first != NONE:
        forget(mine, g, int(mine.gpus[g].first))


@compiled
def remember(mine: Engines, world: World, g: int, request: int, tokens: int) -> None:
    """Cache the blocks that a request's first `tokens` tokens fill, whether they are computed or only scheduled."""
    job = mine.jobs[request]
    size = mine.settings.block_size
    if tokens < (job.keyed + 1) * size or not mine.settings.enable_prefix_caching:
        return
    full = tokens // size if tokens >= (job.keyed + 2) * size else int(job.keyed) + 1
    job.segment = cache_between(mine, world, g, request, job, int(job.segment), int(job.keyed), full, 0)
    job.keyed = full
    if world.told.hears[STORED] != 0:
        tell(world, STORED, request, g, full * size)


@compiled
def cache_between(
    mine: Engines, world: World, g: int, request: int, holder: Any, segment: int, low: int, high: int, of: int
) -> int:
    """Cache blocks of a request's context, which a holder has, from a segment on; returns in which the last of them
    ends. `of`: which of a segment's keys they have."""
    size = mine.settings.block_size
    if holder.answer >= 0:  # the run of its answer has these as well, if nobody else has or had it
        last, record = mine.blocks.holds[holder.holds], mine.blocks.runs[holder.answer]
        alone = last.run == holder.answer and record.newer == holder.answer and record.holders == 1
        if alone and record.high == low:
            last.blocks += high - low
            record.high = high
            return segment
    while low < high:
        segment = segment_at(mine, world, request, segment, low)
        until = min(high, end_of(mine, world, request, segment) // size)
        key = segment_of(mine, world, request, segment)
        nobodys = mine.jobs[request].finished != 0 and key >= mine.settings.segment_ids
        add_run(mine, g, request, holder, key * mine.settings.tables + of, low, until, nobodys)
        if segment == world.seen.requests[request].segments:
            holder.answer = mine.blocks.holds[holder.holds].run
        low = until
    return segment
