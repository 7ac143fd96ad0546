"""Prefills: who of those waiting is admitted, and how much of a prompt is computed in one step
(sglang/srt/managers/schedule_policy.py, `PrefillAdder`)."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.hit_ratio import note
from prebleexp.engines.sglang import queue
from prebleexp.engines.sglang.records import CHOSEN, CLIP_MAX_NEW_TOKENS, STEPS, Engines
from prebleexp.engines.sglang.running import may_generate, reserved
from prebleexp.engines.sglang.tree import lock, make_room, match, unlock
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import request_ms, step_s
from prebleexp.sim.records import NONE, World
from prebleexp.sim.types import State

RUNS = int(State.RUNNING)


@compiled
def prefill(mine: Engines, world: World, g: int, step: Any) -> bool:
    """The part-way request, then those waiting, in order, until one does not fit; whether there is any."""
    gpu, jobs = mine.gpus[g], mine.jobs
    slots = mine.settings.max_running_requests - gpu.running
    if gpu.part_way == NONE:
        if gpu.full != 0 or gpu.queued == 0:
            return False
        if slots <= 0:
            gpu.full = 1
            return False
    queue.put_queue_in_order(mine, world, g)
    chunk, kept = mine.settings.chunked_prefill_size, reserved(mine, g)
    step.part_way = NONE
    if gpu.part_way != NONE:
        new, kept = _take(mine, g, step, int(gpu.part_way), chunk, kept)
        chunk -= new
    while gpu.queued > 0:
        if chunk == 0 and gpu.free + gpu.evictable - kept > 0:
            break
        if gpu.full != 0 or step.chosen >= slots:
            gpu.full = 1
            break
        request = int(gpu.first_waiting)
        job = jobs[request]
        known = int(job.prompt + job.generated)
        found, node = match(mine, world, g, request, known - 1)
        lock(mine, g, node)
        more = may_generate(job, int(job.generated))
        fits = known - found + more + 1 < gpu.free + gpu.evictable - kept
        if fits:
            queue.leave(mine, g)
            _admit(mine, world, g, request, node, found)
            new, kept = _take(mine, g, step, request, chunk, kept)
            chunk -= new
        else:
            unlock(mine, g, node)
        if not fits or gpu.free + gpu.evictable - kept <= 0:
            gpu.full = int(step.chosen > 0 or gpu.running > 0)
            break
    if step.chosen == 0:
        return False
    gpu.part_way = step.part_way
    _account(mine, world, g, step)
    return True


@compiled
def _take(mine: Engines, g: int, step: Any, request: int, chunk: int, kept: float) -> tuple[int, float]:
    """A request gets as much of the chunk as it needs; returns that, and what is kept with it."""
    job, one = mine.jobs[request], mine.chosen[g, mine.gpus[g].scheduled % STEPS, step.chosen]
    rest = int(job.prompt + job.generated - job.cached)
    new = min(rest, chunk)
    one.request, one.tokens, one.begin = request, new, job.cached
    step.chosen += 1
    job.computed = job.cached + new
    output = 0
    if new < rest:
        step.part_way = request
    else:
        output = min(int(job.max_new), CLIP_MAX_NEW_TOKENS)
    return new, kept + (new + 1 + output)


@compiled
def _admit(mine: Engines, world: World, g: int, request: int, node: int, found: int) -> None:
    gpu, job, made = mine.gpus[g], mine.jobs[request], world.jobs[request]
    job.stage, job.lock, job.held, job.cached = CHOSEN, node, found, found
    gpu.waiting_tokens -= found
    prompt = int(job.prompt - job.shown)
    hits = min(found, prompt)
    world.totals[g].hit_tokens += hits
    if job.generated > 0:
        made.state = RUNS
    if mine.retractions[request] == 0:
        made.hit_tokens, made.prefilled_tokens = hits, prompt - hits
        note(mine.recent, gpu, g, hits, prompt)


@compiled
def _account(mine: Engines, world: World, g: int, step: Any) -> None:
    """Room is made for all of them; what the step costs."""
    gpu, cost = mine.gpus[g], world.seen.costs[g]
    chosen = mine.chosen[g, gpu.scheduled % STEPS]
    new, length, prompts, milliseconds = 0, 0, 0, 0.0
    for row in range(step.chosen):
        tokens, begin = int(chosen[row].tokens), int(chosen[row].begin)
        new += tokens
        length += begin + tokens
        milliseconds += request_ms(cost, tokens, begin + tokens)
        job = mine.jobs[chosen[row].request]
        prompt = int(job.prompt - job.shown)
        prompts += max(0, min(prompt, begin + tokens) - begin)
    make_room(mine, world, g, new)
    gpu.free -= new
    gpu.waiting_tokens -= new
    step.requests, step.tokens, step.prompts = step.chosen, new, prompts
    unique = min(length, mine.settings.kv_tokens - gpu.free - gpu.evictable)
    seconds = step_s(cost, int(step.chosen), new, length, 0, 0, int(unique), milliseconds)
    step.seconds = max(0.0, seconds) + mine.settings.host_s  # a fitted cost may be negative somewhere
