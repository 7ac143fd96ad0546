"""vLLM's KV blocks: which are cached, who holds them, which is taken next (vllm/v1/core/block_pool.py).

A block is known by the whole prefix that it ends. A segment id stands for its whole path, so the key of a block is the
segment that holds its last token, and its number within the context. Blocks of a key that were cached together make a
run; there may be several copies of one block, of which a lookup takes the oldest.

Blocks that a request gives back are evicted from its last position on, and after all that were given back before; so
wherever a block is cached, those before it are as well.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.segments import end_of, segment_of
from prebleexp.engines.vllm.records import Engines
from prebleexp.sim.children import child_of, remove_child, set_child
from prebleexp.sim.compiled import compiled
from prebleexp.sim.news import tell
from prebleexp.sim.records import EVICTED, NONE, STORED, World


# ---------------------------------------------------------------- looking up
@compiled
def cached(mine: Engines, world: World, g: int, request: int) -> tuple[int, int]:
    """Of a waiting request's context, blocks that are cached, and those of them that nobody holds. Touches nothing."""
    runs, most = mine.blocks.runs, most_of(mine, request)
    at, idle, segment = 0, 0, 0
    while at < most:
        segment = _segment(mine, world, request, segment, at)
        run, until = _found(mine, world, g, request, segment, at, most)
        if run == NONE:
            break
        if runs[run].holders == 0:
            idle += until - at
        at = until
    return at, idle


@compiled
def hold(mine: Engines, world: World, g: int, request: int) -> None:
    """Let a request hold the blocks that `cached` finds."""
    job = mine.jobs[request]
    job.blocks, job.segment = hold_between(mine, world, g, request, job, 0, most_of(mine, request))
    job.keyed = job.blocks


@compiled
def hold_between(
    mine: Engines, world: World, g: int, request: int, holder: Any, low: int, most: int
) -> tuple[int, int]:
    """The same of blocks from `low` on, by whatever has `holds`; returns until where they are cached, and the segment
    in which they end."""
    at, segment = low, 0
    while at < most:
        segment = _segment(mine, world, request, segment, at)
        run, until = _found(mine, world, g, request, segment, at, most)
        if run == NONE:
            break
        if until < mine.blocks.runs[run].high:
            run = _cut(mine, g, run, until)
        if at > mine.blocks.runs[run].low:
            _cut(mine, g, run, at)
        if mine.blocks.runs[run].holders == 0:
            _leave_queue(mine, g, run)
            mine.gpus[g].free -= until - at
        mine.blocks.runs[run].holders += 1
        _add_hold(mine, holder, run, until - at)
        at = until
    return at, segment


@compiled
def found_until(mine: Engines, world: World, g: int, request: int, most: int) -> int:
    """How many of the first blocks of a request's context are cached, at most `most`."""
    at, segment = 0, 0
    while at < most:
        segment = _segment(mine, world, request, segment, at)
        run, until = _found(mine, world, g, request, segment, at, most)
        if run == NONE:
            break
        at = until
    return at


@compiled
def key_of(mine: Engines, world: World, request: int, block: int) -> int:
    """What a block of a request's context is known by, beside its number."""
    return segment_of(mine, world, request, _segment(mine, world, request, 0, block))


@compiled
def most_of(mine: Engines, request: int) -> int:
    """Blocks of a context that may be found: at least its last token is computed again."""
    return (mine.jobs[request].known - 1) // mine.settings.block_size if mine.settings.enable_prefix_caching else 0


@compiled
def _segment(mine: Engines, world: World, request: int, segment: int, block: int) -> int:
    """In which segment of its context, from `segment` on, a block ends."""
    while end_of(world, request, segment) < (block + 1) * mine.settings.block_size:
        segment += 1
    return segment


@compiled
def _found(mine: Engines, world: World, g: int, request: int, segment: int, block: int, most: int) -> tuple[int, int]:
    """The oldest run that has a block of a request's context, and until where it is that: at most to the segment's end,
    for the run may be of an answer that was longer than this context has it."""
    most = min(most, end_of(world, request, segment) // mine.settings.block_size)
    return _oldest(mine, g, segment_of(mine, world, request, segment), block, most)


@compiled
def _oldest(mine: Engines, g: int, key: int, block: int, most: int) -> tuple[int, int]:
    """The oldest run of a key that has this block, and until where (at most `most`) it is the oldest; -1: there is
    none."""
    runs, first = mine.blocks.runs, child_of(mine.blocks, g, key)
    run = first
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
        record.high -= gone
        left -= gone
        if world.told.evicted != 0:
            tell(world, EVICTED, int(record.owner), g, int(record.high) * mine.settings.block_size)
        if record.high == record.low:
            _forget(mine, g, run)
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
    gpu, holds, runs = mine.gpus[g], mine.blocks.holds, mine.blocks.runs
    one = int(holder.holds)
    while one != NONE:
        left, run, before = int(holds[one].blocks), int(holds[one].run), int(holds[one].before)
        while left > 0:
            record = runs[run]
            record.holders -= 1
            if record.holders == 0:
                _join_queue(mine, g, run)
                gpu.free += record.high - record.low
            left -= record.high - record.low
            run = int(record.above)
        _free_hold(mine, one)
        one = before
    holder.holds = NONE


@compiled
def clear(mine: Engines, g: int) -> None:
    """Drop all that is cached and that nobody holds; nobody is told."""
    while mine.gpus[g].first != NONE:
        _forget(mine, g, int(mine.gpus[g].first))


@compiled
def remember(mine: Engines, world: World, g: int, request: int, tokens: int) -> None:
    """Cache the blocks that a request's first `tokens` tokens fill, whether they are computed or only scheduled."""
    job = mine.jobs[request]
    size = mine.settings.block_size
    if tokens < (job.keyed + 1) * size or not mine.settings.enable_prefix_caching:
        return
    full = tokens // size if tokens >= (job.keyed + 2) * size else int(job.keyed) + 1
    if job.answer >= 0 and _grow(mine, job, full):
        job.keyed = full
    while job.keyed < full:
        segment = _segment(mine, world, request, int(job.segment), int(job.keyed))
        job.segment = segment
        until = min(full, end_of(world, request, segment) // size)
        _add_run(mine, g, request, segment_of(mine, world, request, segment), int(job.keyed), until)
        if segment == world.seen.requests[request].segments:
            job.answer = mine.blocks.holds[job.holds].run
        job.keyed = until
    if world.told.stored != 0:
        tell(world, STORED, request, g, full * size)


# ---------------------------------------------------------------- runs
@compiled
def _grow(mine: Engines, job: Any, high: int) -> bool:
    """Let the run of a request's answer have the blocks before `high` as well, if nobody else has or had it."""
    last, record = mine.blocks.holds[job.holds], mine.blocks.runs[job.answer]
    alone = last.run == job.answer and record.newer == job.answer and record.holders == 1
    if not alone or record.high != job.keyed:
        return False
    last.blocks += high - record.high
    record.high = high
    return True


@compiled
def _add_run(mine: Engines, g: int, request: int, key: int, low: int, high: int) -> None:
    runs, job = mine.blocks.runs, mine.jobs[request]
    nobodys = job.finished != 0 and key >= mine.settings.segment_ids
    first = NONE if nobodys else child_of(mine.blocks, g, key)
    run = _new_run(mine)
    record = runs[run]
    record.key, record.low, record.high, record.holders, record.above, record.owner = key, low, high, 1, NONE, request
    if nobodys:  # will look for them
        record.older = record.newer = NONE
    elif first == NONE:
        record.older = record.newer = run
        set_child(mine.blocks, g, key, run)
        mine.blocks.control.keys += 1
    else:
        _put_before(runs, run, first)  # in a ring, that is behind the newest
    _add_hold(mine, job, run, high - low)


@compiled
def _cut(mine: Engines, g: int, run: int, at: int) -> int:
    """Cut off the blocks before `at`; returns the run that they make."""
    runs = mine.blocks.runs
    upper_index = _new_run(mine)
    upper, lower = runs[upper_index], runs[run]
    upper.key, upper.owner, upper.holders, upper.above = lower.key, lower.owner, lower.holders, lower.above
    upper.low, upper.high = lower.low, at
    lower.low, lower.above = at, upper_index
    _put_before(runs, upper_index, run)
    if child_of(mine.blocks, g, int(lower.key)) == run:
        set_child(mine.blocks, g, int(lower.key), upper_index)
    if lower.holders == 0:  # the later positions are evicted first
        upper.before, upper.behind = run, lower.behind
        if lower.behind == NONE:
            mine.gpus[g].last = upper_index
        else:
            runs[lower.behind].before = upper_index
        lower.behind = upper_index
    return upper_index


@compiled
def _put_before(runs: Any, run: int, other: int) -> None:
    """In the ring of its key."""
    older = int(runs[other].older)
    runs[run].older, runs[run].newer = older, other
    runs[older].newer = runs[other].older = run


@compiled
def _forget(mine: Engines, g: int, run: int) -> None:
    """A run has no blocks left."""
    runs, record = mine.blocks.runs, mine.blocks.runs[run]
    _leave_queue(mine, g, run)
    newer, older, key = int(record.newer), int(record.older), int(record.key)
    if newer == run:
        remove_child(mine.blocks, g, key)
        mine.blocks.control.keys -= 1
    elif newer != NONE:
        runs[older].newer, runs[newer].older = newer, older
        if child_of(mine.blocks, g, key) == run:
            set_child(mine.blocks, g, key, newer)
    record.older = mine.blocks.control.free_run
    mine.blocks.control.free_run = run


@compiled
def _new_run(mine: Engines) -> int:
    control = mine.blocks.control
    run = int(control.free_run)
    if run != NONE:
        control.free_run = mine.blocks.runs[run].older
    else:
        run = int(control.runs)
        control.runs += 1
    return run


# ---------------------------------------------------------------- the queue of idle runs
@compiled
def _join_queue(mine: Engines, g: int, run: int) -> None:
    gpu, runs = mine.gpus[g], mine.blocks.runs
    runs[run].before, runs[run].behind = gpu.last, NONE
    if gpu.last == NONE:
        gpu.first = run
    else:
        runs[gpu.last].behind = run
    gpu.last = run


@compiled
def _leave_queue(mine: Engines, g: int, run: int) -> None:
    gpu, runs = mine.gpus[g], mine.blocks.runs
    before, behind = int(runs[run].before), int(runs[run].behind)
    if before == NONE:
        gpu.first = behind
    else:
        runs[before].behind = behind
    if behind == NONE:
        gpu.last = before
    else:
        runs[behind].before = before


# ---------------------------------------------------------------- what requests hold
@compiled
def _add_hold(mine: Engines, holder: Any, run: int, blocks: int) -> None:
    control, holds = mine.blocks.control, mine.blocks.holds
    one = int(control.free_hold)
    if one != NONE:
        control.free_hold = holds[one].before
    else:
        one = int(control.holds)
        control.holds += 1
    holds[one].run, holds[one].blocks, holds[one].before = run, blocks, holder.holds
    holder.holds = one


@compiled
def _free_hold(mine: Engines, one: int) -> None:
    mine.blocks.holds[one].before = mine.blocks.control.free_hold
    mine.blocks.control.free_hold = one
