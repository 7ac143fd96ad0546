"""Continuous batching in two phases: `begin` chooses a batch and says how long its step takes, `end` is when its tokens
exist, contexts are kept and requests finish."""

from __future__ import annotations

from typing import Any

from prebleexp.engines import giving_up
from prebleexp.engines.admission import admit, enqueue
from prebleexp.engines.batch import first_finish, in_order, join, leave_first, output_of, replace
from prebleexp.engines.largest import keep_largest
from prebleexp.engines.records import Batching
from prebleexp.engines.serving import RUNNING, ahead_of, evict_tokens, finished, first_token, keep_context
from prebleexp.engines.showing import not_fresh, show_each
from prebleexp.sim.caches import lock, match, stamp, unlock, unseen_tokens
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import decode_s, request_ms, step_s
from prebleexp.sim.gaps import alike, token
from prebleexp.sim.pools import request_of
from prebleexp.sim.records import NONE, World

RATIO_DECAY, RATIO_LEAST = 0.0001, 0.2
"""of the share kept free for running requests, after each decode step that finds room"""
RATIO_GROWTH, RATIO_MOST = 0.05, 1.0
"""after one that does not"""


# ---------------------------------------------------------------- functions of the plug
@compiled
def submit(self: Any, mine: Batching, world: World, request: int, now: float) -> None:
    g = int(world.seen.requests[request].gpu)
    enqueue(self, mine, world, g, request)
    _publish(mine, world, g)


@compiled
def begin(self: Any, mine: Batching, world: World, g: int, now: float) -> float:
    """Seconds that the step takes; negative: there is nothing to do."""
    gpu = mine.gpus[g]
    admit(self, mine, world, g, now)
    gpu.steps = 0
    if gpu.working == NONE and gpu.running == 0:
        return -1.0
    if gpu.working == NONE:
        seconds = _decode(self, mine, world, g)
    elif self.chunk_tokens > 0:
        seconds = _chunks(self, mine, world, g)
    else:
        seconds = _prefill(mine, world, g)
    world.totals[g].decode_steps += gpu.steps
    _publish_batch(mine, world, g)
    return max(0.0, seconds) + self.step_cost_s  # a fitted cost may be negative somewhere


@compiled
def end(self: Any, mine: Batching, world: World, g: int, now: float) -> None:
    gpu = mine.gpus[g]
    if gpu.steps > 0:
        seconds = (now - world.servers[g].begun_s) / gpu.steps  # one step is as long as the other
        request, gpu.fresh = int(gpu.fresh), NONE
        if world.gaps.each:
            show_each(mine, world, g, now)
        else:  # here, since a call that is handed all of the world takes a tenth of a step
            first = now if gpu.steps == 1 else world.servers[g].begun_s + seconds
            others = int(gpu.running)  # had a token when the step before was over, but for those that are fresh
            while request != NONE:
                token(world.gaps, request, first)
                others -= 1
                request = int(mine.jobs[request].next)
            alike(world.gaps.classes[0], first - gpu.report_clock, others)
            alike(world.gaps.classes[0], seconds, int(gpu.running * (gpu.steps - 1)))
        gpu.decode_steps += gpu.steps
        gpu.context += gpu.steps * gpu.running
        gpu.generated += gpu.steps * gpu.running
        gpu.report_clock, gpu.report_step = now, gpu.decode_steps
        while gpu.running > 0 and first_finish(gpu, mine.batches) == gpu.decode_steps:
            _finish(mine, world, g, leave_first(mine, world.cache.nodes, world.seen.requests, g), now)
    request, gpu.working = gpu.working, NONE
    while request != NONE:
        job = mine.jobs[request]
        behind = int(job.next)
        job.computed += job.chunk
        gpu.waiting_tokens -= job.chunk
        job.chunk = 0
        if job.computed < job.new:
            _work_on(mine, gpu, request)
        else:
            first_token(world, g, request, now)
            if job.target == 1:
                _finish(mine, world, g, request, now)
            else:
                _start_decoding(mine, world, g, request)
        request = behind
    _publish_batch(mine, world, g)


@compiled
def settle(self: Any, mine: Batching, world: World, request: int, now: float) -> None:
    """The run is over: give a running request what it last reported."""
    if world.jobs[request].state == RUNNING:
        _settle(mine, world, int(world.seen.requests[request].gpu), request)


@compiled
def lacks_room(self: Any, mine: Batching, world: World, g: int, now: float) -> int:
    """Whether the next request or step may need more rows than there are."""
    gpu = mine.gpus[g]
    return gpu.batch_capacity <= world.seen.sent[g].outstanding + 1 or gpu.window_capacity <= gpu.window_rows + 1


@compiled
def cancel(self: Any, mine: Batching, world: World, request: int, now: float) -> int:
    """A request without its first token leaves, unless it is in the step in hand; whether it has left."""
    g = int(world.seen.requests[request].gpu)
    left = giving_up.leave(mine, world, g, request)
    _publish(mine, world, g)
    return left


# ---------------------------------------------------------------- a step begins
@compiled
def _prefill(mine: Batching, world: World, g: int) -> float:
    """All new tokens of all that were taken up, at once."""
    gpu, requests = mine.gpus[g], world.seen.requests
    count, new, length, unique, milliseconds = 0, 0, 0, 0, 0.0
    seen, cost = stamp(world.cache), world.seen.costs[g]
    request = gpu.working
    while request != NONE:
        job = mine.jobs[request]
        job.chunk = job.new
        count += 1
        new += job.new
        length += requests[request].prompt_tokens
        milliseconds += request_ms(cost, job.new, requests[request].prompt_tokens)
        unique += requests[request].prompt_tokens - int(world.cache.nodes[job.node].depth)
        unique += unseen_tokens(world.cache, g, job.node, seen)
        request = job.next
    if gpu.kv_free < new:
        gpu.kv_free += evict_tokens(world, g, new - gpu.kv_free)
    _use(world, gpu, g, new)
    world.totals[g].prefilled_tokens += new
    return step_s(cost, count, new, length, 0, 0, unique, milliseconds)


@compiled
def _chunks(self: Any, mine: Batching, world: World, g: int) -> float:
    """A token for every running request, and what is left of the budget for those that are part-way, in order
    (PREBLE, section 3.3; Sarathi-Serve)."""
    gpu = mine.gpus[g]
    if gpu.running > 0:
        _make_room(self, mine, world, g)
    if gpu.running > 0:
        gpu.steps = 1
        _use(world, gpu, g, gpu.running)
    budget, cost = self.chunk_tokens - gpu.running, world.seen.costs[g]
    count, new, length, unique, milliseconds = 0, 0, 0, 0, 0.0
    request = gpu.working
    while request != NONE:
        job = mine.jobs[request]
        job.chunk = _part(world, gpu, g, min(budget, job.new - job.computed))
        budget -= job.chunk
        known = job.cached + job.computed + job.chunk
        if job.chunk > 0:
            count += 1
            new += job.chunk
            length += known
            milliseconds += request_ms(cost, job.chunk, known)
        unique += max(0, known - int(world.cache.nodes[job.node].depth))
        request = job.next
    context = gpu.context + gpu.running
    unique += context - gpu.node_depth + world.cache.roots[g].locked
    keep_largest(world.totals[g], gpu.running, context)
    world.totals[g].prefilled_tokens += new
    return step_s(cost, count, new, length, gpu.running, context, unique, milliseconds)


@compiled
def _part(world: World, gpu: Any, g: int, tokens: int) -> int:
    """Take KV for so many tokens, by eviction if need be, or for as many as there are; returns how many."""
    if tokens <= 0:
        return 0
    if gpu.kv_free < tokens:
        gpu.kv_free += evict_tokens(world, g, tokens - max(0, gpu.kv_free))
    tokens = min(tokens, max(0, gpu.kv_free))
    _use(world, gpu, g, tokens)
    return tokens


@compiled
def _decode(self: Any, mine: Batching, world: World, g: int) -> float:
    """A token for every running request, and further ones as long as there is room and nobody finishes."""
    gpu = mine.gpus[g]
    _make_room(self, mine, world, g)
    if gpu.running == 0:
        return 0.0
    looks = self.decode_steps - gpu.decode_steps % self.decode_steps
    steps = min(looks, first_finish(gpu, mine.batches) - gpu.decode_steps)
    while True:
        gpu.steps += 1
        _use(world, gpu, g, gpu.running)
        if gpu.steps == steps:
            break
        if gpu.kv_free < gpu.running:
            gpu.kv_free += evict_tokens(world, g, gpu.running - gpu.kv_free)
            if gpu.kv_free < gpu.running:
                break
        gpu.new_token_ratio = max(gpu.new_token_ratio - RATIO_DECAY, RATIO_LEAST)
    # The locked nodes are those of the running requests, so the batch's distinct KV needs no walk through the tree.
    context = gpu.context + gpu.running
    unique = context - gpu.node_depth + world.cache.roots[g].locked
    keep_largest(world.totals[g], gpu.running, context + (gpu.steps - 1) * gpu.running)
    return decode_s(world.seen.costs[g], gpu.running, context, unique, gpu.steps)


@compiled
def _make_room(self: Any, mine: Batching, world: World, g: int) -> None:
    """Let there be a token of KV for each running request, by eviction, else by sending some back."""
    gpu = mine.gpus[g]
    if gpu.kv_free < gpu.running:
        gpu.kv_free += evict_tokens(world, g, gpu.running - gpu.kv_free)
    if gpu.kv_free >= gpu.running:
        gpu.new_token_ratio = max(gpu.new_token_ratio - RATIO_DECAY, RATIO_LEAST)
    else:
        gpu.new_token_ratio = min(gpu.new_token_ratio + RATIO_GROWTH, RATIO_MOST)
        _retract(self, mine, world, g)


@compiled
def _use(world: World, gpu: Any, g: int, tokens: int) -> None:
    gpu.kv_free -= tokens
    gpu.least_kv_free = min(gpu.least_kv_free, gpu.kv_free)
    world.totals[g].forwarded_tokens += tokens


# ---------------------------------------------------------------- a step ends
@compiled
def _work_on(mine: Batching, gpu: Any, request: int) -> None:
    """The request is still part-way."""
    mine.jobs[request].next = NONE
    if gpu.working == NONE:
        gpu.working = request
    else:
        mine.jobs[gpu.last].next = request
    gpu.last = request


@compiled
def _finish(mine: Batching, world: World, g: int, request: int, now: float) -> None:
    """Keep a finished request's context in the cache, unlocked: all but the last token, whose KV is not computed."""
    job = mine.jobs[request]
    known = keep_context(world, g, request, job.target - 1)
    mine.gpus[g].kv_free += max(0, known - job.cached)
    unlock(world.cache, g, job.node)
    finished(world, g, request, int(job.target), now)


@compiled
def _start_decoding(mine: Batching, world: World, g: int, request: int) -> None:
    """A request's prompt is computed and it has its first token: keep its context, and let it join the batch."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    known = keep_context(world, g, request, 0)
    gpu.kv_free += max(0, known - job.cached)
    matched, node = match(world.cache, g, request, 0)
    unlock(world.cache, g, job.node)
    lock(world.cache, g, node)
    job.cached, job.node = matched, node
    world.jobs[request].state = RUNNING
    if gpu.kv_free < gpu.slack:
        gpu.kv_free += evict_tokens(world, g, gpu.slack - gpu.kv_free)
    join(mine, world.cache.nodes, world.seen.requests, g, request)
    job.next, gpu.fresh = gpu.fresh, request


@compiled
def _settle(mine: Batching, world: World, g: int, request: int) -> None:
    """Give a running request what it last reported: its first token, or what the last decode step left it with."""
    gpu, job, made = mine.gpus[g], mine.jobs[request], world.jobs[request]
    if gpu.report_step > job.joined_step:
        made.latency_s = gpu.report_clock - world.seen.requests[request].arrival_s
        made.output_seen = 1 + gpu.report_step - job.joined_step
        world.gaps.last_s[request_of(world, request)] = gpu.report_clock


@compiled
def _retract(self: Any, mine: Batching, world: World, g: int) -> None:
    """Out of memory: send the latest arrivals back to the queue until there is room for one token of each that ran."""
    gpu, batch = mine.gpus[g], mine.batch
    size = in_order(mine, g, batch)
    _in_order_of_arrival(world.jobs, batch[:size])
    kept = size
    while gpu.kv_free < size and kept > 0:
        kept -= 1
        request = int(batch[kept])
        job, tokens = mine.jobs[request], world.seen.requests[request].prompt_tokens
        _settle(mine, world, g, request)
        not_fresh(mine, gpu, request)
        gpu.kv_free += tokens + output_of(gpu, job) - 1 - job.cached
        unlock(world.cache, g, job.node)
        world.totals[g].recomputed_tokens += tokens
        world.totals[g].retracted += 1
    replace(mine, world.cache.nodes, world.seen.requests, g, batch[:kept])
    for row in range(kept, size):
        enqueue(self, mine, world, g, int(batch[row]))


@compiled
def _in_order_of_arrival(jobs: Any, batch: Any) -> None:
    """By insertion: a batch nearly is."""
    for i in range(1, len(batch)):
        request, j = batch[i], i - 1
        while j >= 0 and jobs[batch[j]].number > jobs[request].number:
            batch[j + 1] = batch[j]
            j -= 1
        batch[j + 1] = request


# ---------------------------------------------------------------- what the GPU tells of itself
@compiled
def _publish(mine: Batching, world: World, g: int) -> None:
    gpu, live = mine.gpus[g], world.live[g]
    live.queued, live.running, live.waiting_tokens = gpu.queued, gpu.running, gpu.waiting_tokens
    live.kv_free, live.evictable, live.generated = gpu.kv_free, world.cache.roots[g].evictable, gpu.generated
    live.window_hit_tokens, live.window_prompt_tokens = gpu.window_hit_tokens, gpu.window_prompt_tokens
    world.totals[g].peak_kv_tokens = live.kv_tokens - gpu.least_kv_free


@compiled
def _publish_batch(mine: Batching, world: World, g: int) -> None:
    """The same when the batch may have changed."""
    _publish(mine, world, g)
    if world.rules.follow:
        world.live[g].ahead = _ahead(mine, world, g)


@compiled
def _ahead(mine: Batching, world: World, g: int) -> float:
    """Of all running requests (see `ahead_of`)."""
    gpu, tokens = mine.gpus[g], 0.0
    for row in range(gpu.batch_offset, gpu.batch_offset + gpu.batch_rows):
        request = int(mine.batches.order[row])
        if request != NONE:
            tokens += ahead_of(world, request, output_of(gpu, mine.jobs[request]))
    return tokens
