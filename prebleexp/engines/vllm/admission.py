"""Which waiting requests the next step admits: in order, until one does not fit."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.hit_ratio import note
from prebleexp.engines.serving import RUNNING
from prebleexp.engines.vllm import queue, reading
from prebleexp.engines.vllm.adapters import has_slot, take_slot
from prebleexp.engines.vllm.drafts import placeholders
from prebleexp.engines.vllm.passed import pass_over, waits_no_more
from prebleexp.engines.vllm.records import FAILED, LOADED, NEVER, PULLED, PULLS, Engines
from prebleexp.engines.vllm.steady import blocks_of, choose
from prebleexp.engines.vllm.tables import cached, hold, lengthen, needed, remember
from prebleexp.sim.compiled import compiled
from prebleexp.sim.plug import call_int
from prebleexp.sim.pools import prefills
from prebleexp.sim.records import NONE, World
from prebleexp.sim.tiers import DEFERRED, FETCHING, GO_ON, NO_ROOM


@compiled
def admit(mine: Engines, world: World, g: int, step: Any, cap: int, budget: int) -> None:
    """Waiting requests in order, until one does not fit."""
    gpu = mine.gpus[g]
    passed = NONE
    while budget > 0 and gpu.queue != NONE and gpu.running < mine.settings.max_num_seqs:
        request = int(gpu.queue)
        job = mine.jobs[request]
        stale, slot = job.stale > 0 and not prefills(world, g), has_slot(mine, world, g, request)
        if slot == 0 and job.finished == 0 and job.filling >= PULLED:  # others find what has come
            _fetched(mine, world, g, request, step.scheduled_s)
        if stale or job.finished != 0 or slot == 0:
            queue.pop(mine, g)
            if job.finished == 0:  # it waits for tokens under way, or for its adapter; those behind it may start
                job.heap_left, passed = passed, request
                pass_over(mine, world, g, request)
            continue
        fetched = _fetched(mine, world, g, request, step.scheduled_s)
        if fetched == DEFERRED:
            queue.pop(mine, g)
            job.heap_left, passed = passed, request
            pass_over(mine, world, g, request)
        if fetched in (DEFERRED, FETCHING):
            continue
        padding = placeholders(mine, world, g, request)
        padding = padding if padding < NEVER else 0
        if fetched == NO_ROOM or padding >= budget or not _fits(mine, world, g, request, cap, budget, padding):
            break
        queue.pop(mine, g)
        gpu.queued -= 1
        waits_no_more(mine, world, g, request)
        step.hits += _start(mine, world, g, request)
        take_slot(mine, world, g, request)
        new = min(job.known - job.computed + padding, budget, cap if cap > 0 else budget)
        reach = min(int(job.computed) + new + mine.settings.lookahead, mine.settings.context_length)
        step.evicted += lengthen(mine, world, g, request, max(0, blocks_of(mine, reach) - job.blocks))
        remember(mine, world, g, request, min(int(job.computed) + new, int(job.known) - mine.settings.key_ahead))
        choose(mine, g, gpu.scheduled, request, new, padding, job.computed)
        step.admitted += 1
        budget -= new + mine.settings.slots
    while passed != NONE:
        request, passed = passed, int(mine.jobs[passed].heap_left)
        queue.push(mine, g, request)


@compiled
def _fetched(mine: Engines, world: World, g: int, request: int, now: float) -> int:
    """Whether KV of a waiting request comes first, from where its prompt was computed or from tiers."""
    engine, filling = world.engines[g], mine.jobs[request].filling
    if engine.pull != 0 and filling in (PULLS, PULLED, FAILED):
        return call_int(engine.pull, engine.own, world, request, now)
    if filling >= PULLED and filling != LOADED:
        return GO_ON
    return call_int(engine.fetch, engine.own, world, request, now)


@compiled
def _fits(mine: Engines, world: World, g: int, request: int, cap: int, budget: int, padding: int) -> bool:
    """Whether there are blocks, and without chunks the budget, for a waiting request."""
    gpu, settings, known = mine.gpus[g], mine.settings, int(mine.jobs[request].known)
    kept, chunks = settings.blocks_kept_free if gpu.running > 0 else 0, settings.enable_chunked_prefill
    if mine.jobs[request].filling >= PULLED:  # it has its blocks
        reached, left = known, known - int(mine.jobs[request].computed)
        if gpu.held_back != 0 and left > 1:
            return False
        if mine.jobs[request].filling == LOADED:  # … for what was loaded
            if not chunks and left > budget:
                return False
            reached -= left - min(left, budget, cap if cap > 0 else budget)
        reached = min(reached + padding + settings.lookahead, settings.context_length)
        held = int(mine.jobs[request].blocks)
        more = max(0, needed(mine, known, held, reached))  # else none, but where a move was given up
        return bool(more + kept <= gpu.free)
    most = min(known + settings.drafts + settings.lookahead, settings.context_length)
    if chunks and gpu.held_back == 0 and settings.tables * blocks_of(mine, most) + kept <= gpu.free:
        return True  # whatever is cached
    hits, idle = cached(mine, world, g, request)
    rest = known - hits * settings.block_size
    if (rest > budget and not chunks) or (gpu.held_back != 0 and rest > 1):
        return False
    reached = known - rest + min(rest + padding, budget, cap if cap > 0 else budget)
    reached = min(reached + settings.lookahead, settings.context_length)
    return bool(needed(mine, known, hits, reached) + idle + kept <= gpu.free)


@compiled
def _start(mine: Engines, world: World, g: int, request: int) -> int:
    """The request runs from now on, with what is cached of its context. Returns the tokens of its prompt in that."""
    gpu, job, seen, made = mine.gpus[g], mine.jobs[request], world.seen.requests[request], world.jobs[request]
    if job.filling >= PULLED:
        reading.lacks_no_more(mine, world, g, request)
        job.filling, job.running = int(job.filling != PULLED), 1
        made.state = RUNNING if job.known > seen.prompt_tokens else made.state
        gpu.generated += job.known - seen.prompt_tokens
        mine.running[g, gpu.running], mine.due[g, gpu.running] = request, 0
        gpu.running += 1
        return 0
    hold(mine, world, g, request)
    job.computed = job.blocks * mine.settings.block_size
    job.running = 1
    if job.known > seen.prompt_tokens:
        made.state = RUNNING
    mine.running[g, gpu.running], mine.due[g, gpu.running] = request, 0
    gpu.running += 1
    gpu.waiting_tokens -= job.computed
    gpu.generated += job.known - seen.prompt_tokens
    found = min(int(job.computed), int(seen.prompt_tokens))
    if mine.preemptions[request] == 0:
        made.hit_tokens, made.prefilled_tokens = found, seen.prompt_tokens - found
        for tier in range(len(world.tiers.tiers)):  # before it was lost, it may have been loaded
            world.tiers.tokens[tier, request] = 0
        note(mine.recent, gpu, g, found, int(seen.prompt_tokens))
    return found
