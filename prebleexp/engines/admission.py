"""Admission: which queued requests a model step takes up.

What of a prompt is cached is looked up without touching the cache, and again only if what was found may have changed.
The request that is taken is matched, which touches its path.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.queue import FCFS, LPM, count_turn, put_in_order
from prebleexp.engines.records import Batching
from prebleexp.engines.serving import QUEUED
from prebleexp.sim.caches import lock, match, peek, unlock
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, REMEMBERED, World

HIT_WINDOW_S = 30.0
"""over which a GPU's hit ratio is taken"""


@compiled
def enqueue(self: Any, mine: Batching, world: World, g: int, request: int) -> None:
    gpu, seen = mine.gpus[g], world.seen.requests[request]
    row = mine.waiting[gpu.batch_offset + gpu.queued]
    row.request, row.number = request, world.jobs[request].number
    row.need, row.node, row.cached = seen.max_new_tokens + gpu.slack, NONE, 0
    world.jobs[request].state = QUEUED
    least = row.need + 1
    gpu.least_need = min(gpu.least_need, least) if gpu.queued > 0 else least
    gpu.waiting_tokens += seen.prompt_tokens
    gpu.queued += 1


@compiled
def admit(self: Any, mine: Batching, world: World, g: int, now: float) -> None:
    """Take up what fits: match it, lock its path, and let it be part-way."""
    gpu = mine.gpus[g]
    if gpu.queued == 0:
        return
    budget = _budget(self, mine, g)
    available = _available(mine, world, g)
    if budget <= 0 or available <= gpu.least_need:
        return  # whatever the order is
    queue = mine.waiting[gpu.batch_offset : gpu.batch_offset + gpu.queued]
    if self.queue != FCFS:
        for row in range(len(queue)):
            _look_up(mine, world, g, queue[row])
    put_in_order(self, mine, world.seen.requests, g, queue)
    hits, prompts = _select(self, mine, world, g, queue, available, budget)
    if prompts > 0:
        _record_hits(mine, gpu, hits, prompts, now)


@compiled
def _budget(self: Any, mine: Batching, g: int) -> int:
    """Prompt tokens that new requests may have computed in this step."""
    gpu = mine.gpus[g]
    if self.chunk_tokens == 0:
        return gpu.max_prefill
    budget, request = self.chunk_tokens - gpu.running, gpu.working
    while request != NONE:
        budget -= mine.jobs[request].new - mine.jobs[request].computed
        request = mine.jobs[request].next
    return budget


@compiled
def _available(mine: Batching, world: World, g: int) -> float:
    """KV tokens that may be promised to new requests: what is free or evictable, less what those part-way will take,
    and less a share of what runs may still generate."""
    gpu = mine.gpus[g]
    promised, request = 0, gpu.working
    while request != NONE:
        job = mine.jobs[request]
        promised += job.new - job.computed + world.seen.requests[request].max_new_tokens + gpu.slack
        request = job.next
    to_come = gpu.budget - gpu.running * gpu.decode_steps
    return gpu.kv_free + world.cache.roots[g].evictable - promised - to_come * gpu.new_token_ratio


@compiled
def _look_up(mine: Batching, world: World, g: int, row: Any) -> None:
    """Find what of the prompt is cached, unless nothing has changed where it was found to end."""
    changes = world.cache.roots[g].changes
    if row.node != NONE:
        if row.changes == changes:
            return
        if changes - row.changes <= REMEMBERED and not _concerns(world, g, row, changes):
            row.changes = changes
            return
    before = int(row.cached)
    row.cached, row.node, row.first = peek(world.cache, g, int(row.request))
    row.changes = changes
    mine.gpus[g].waiting_tokens -= row.cached - before


@compiled
def _concerns(world: World, g: int, row: Any, changes: int) -> bool:
    for number in range(row.changes, changes):
        change = world.cache.changes[g * REMEMBERED + number % REMEMBERED]
        if (change.parent == row.node and change.first == row.first) or change.node == row.node:
            return True
    return False


@compiled
def _select(
    self: Any, mine: Batching, world: World, g: int, queue: Any, available: float, budget: int
) -> tuple[int, int]:
    """Take from the queue, which is in order, what fits; the rest moves up. Returns the prompt tokens of what was
    taken: (found in the cache, all)."""
    gpu = mine.gpus[g]
    promised, prefill, full, kept, hits, prompts = 0, 0, False, 0, 0, 0
    for at in range(len(queue)):
        row = queue[at]
        if not full:
            if available - promised <= gpu.least_need:
                full = True  # nor does anything behind it fit
            else:
                _look_up(mine, world, g, row)
                request = int(row.request)
                new = _new_tokens(self, world, request, int(row.cached))
                fits = new + row.need + promised < available
                if fits and (prefill < budget if self.chunk_tokens > 0 else new + prefill < budget):
                    job, before = mine.jobs[request], available
                    _, job.node = match(world.cache, g, request, 0)
                    available += lock(world.cache, g, job.node)
                    if new + row.need + promised < available:
                        promised += new + row.need
                        prefill += new
                        _take(self, mine, world, g, row, new)
                        hits += job.cached
                        prompts += world.seen.requests[request].prompt_tokens
                        continue
                    unlock(world.cache, g, job.node)
                    available, full = before, True
                elif self.queue != LPM:
                    full = True  # who is passed over might wait for ever
        if kept < at:
            queue[kept] = queue[at]
        kept += 1
    gpu.queued = kept
    return hits, prompts


@compiled
def _new_tokens(self: Any, world: World, request: int, cached: int) -> int:
    """Prompt tokens to compute where so many are cached: cached ones count in whole blocks, and one block at least must
    be computed."""
    new = world.seen.requests[request].prompt_tokens - (cached - cached % self.block_tokens)
    return new if new > 0 else self.block_tokens


@compiled
def _take(self: Any, mine: Batching, world: World, g: int, row: Any, new: int) -> None:
    """The request is part-way from now on."""
    gpu, request = mine.gpus[g], int(row.request)
    job, made = mine.jobs[request], world.jobs[request]
    job.new, job.computed, job.next = new, 0, NONE
    job.cached = world.seen.requests[request].prompt_tokens - new
    gpu.waiting_tokens += row.cached - job.cached
    made.hit_tokens, made.prefilled_tokens = job.cached, new
    world.totals[g].hit_tokens += job.cached
    if gpu.working == NONE:
        gpu.working = request
    else:
        mine.jobs[gpu.last].next = request
    gpu.last = request
    count_turn(self, mine, world.seen.requests, g, row)


@compiled
def _record_hits(mine: Batching, gpu: Any, hits: int, prompts: int, now: float) -> None:
    """Add a prefill to the hit window; those older than the window leave it only now."""
    window, size = mine.window, gpu.window_capacity
    row = gpu.window_offset + (gpu.window_first + gpu.window_rows) % size
    window.times[row], window.hits[row], window.prompts[row] = now, hits, prompts
    gpu.window_rows += 1
    gpu.window_hit_tokens += hits
    gpu.window_prompt_tokens += prompts
    row = gpu.window_offset + gpu.window_first
    while now - window.times[row] > HIT_WINDOW_S:
        gpu.window_hit_tokens -= window.hits[row]
        gpu.window_prompt_tokens -= window.prompts[row]
        gpu.window_first = (gpu.window_first + 1) % size
        gpu.window_rows -= 1
        row = gpu.window_offset + gpu.window_first
