"""Decodes: a token of each running request, and retractions where there is no room for them
(sglang/srt/managers/scheduler.py, `update_running_batch`; schedule_batch.py, `retract_decode`)."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.largest import keep_largest
from prebleexp.engines.sglang import queue
from prebleexp.engines.sglang.contexts import drop
from prebleexp.engines.sglang.receiving import append
from prebleexp.engines.sglang.records import LEAVING, RETRACT_DECODE_STEPS, RETRACTED, RUNNING, STEPS, WAITING, Engines
from prebleexp.engines.sglang.running import generated_of, last_due, put_behind, set_last_due, stop, uncount
from prebleexp.engines.sglang.sorting import put_in_order
from prebleexp.engines.sglang.tree import make_room
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import decode_s
from prebleexp.sim.pools import decodes, request_of
from prebleexp.sim.records import NONE, World
from prebleexp.sim.types import State

QUEUED = int(State.QUEUED)


@compiled
def decode(mine: Engines, world: World, g: int, step: Any) -> bool:
    """All that run, but for those whose last token is known to be under way; whether there is any."""
    gpu, settings = mine.gpus[g], mine.settings
    left = _leave(mine, g) if settings.skip_finishing else 0
    if gpu.running == 0:
        return False
    if not make_room(mine, world, g, int(gpu.running)):
        if left > 0:
            return False  # there will be, when they are done
        _retract(mine, world, g, step)
        if gpu.running == 0:
            return False
    else:
        gpu.ratio = max(gpu.ratio - settings.ratio_decay, settings.least_ratio)
    running = int(gpu.running)
    gpu.decodes += 1
    gpu.free -= running
    gpu.context += running
    step.requests, step.tokens, step.prompts = running, running, 0
    keep_largest(world.totals[g], running, int(gpu.context))
    unique = min(gpu.context, settings.kv_tokens - gpu.free - gpu.evictable)
    seconds = decode_s(world.seen.costs[g], running, int(gpu.context), int(unique), 1)
    step.seconds = max(0.0, seconds) + settings.host_s  # a fitted cost may be negative somewhere
    return True


@compiled
def _leave(mine: Engines, g: int) -> int:
    """Those whose last token is under way, as is known of those that end by length, leave; returns how many."""
    gpu, jobs, left = mine.gpus[g], mine.jobs, 0
    last = last_due(mine, g, int(gpu.decodes))
    if last == NONE:
        return 0
    request = last
    while True:
        request = int(jobs[request].next_due)
        job = jobs[request]
        if job.stage == RUNNING and job.target == job.max_new:
            stop(mine, g, request, LEAVING)
            gpu.leaving += int(job.joined < gpu.decodes)  # else no decode is of it
            left += 1
        if request == last:
            return left


@compiled
def _retract(mine: Engines, world: World, g: int, step: Any) -> None:
    """Those that have generated the fewest go back to the queue, until there is room for the others. One stays, but
    where requests that do not run hold KV."""
    gpu, jobs, ordered = mine.gpus[g], mine.jobs, mine.ordered
    size, request, least = 0, int(gpu.first_running), 0 if decodes(world, g) else 1
    while request != NONE:
        job = jobs[request]
        ordered[0, size], mine.keys[0, size] = request, -generated_of(gpu, job) << 32 | int(job.prompt)
        set_last_due(mine, g, int(job.due), NONE)
        size += 1
        request = int(job.behind)
    put_in_order(mine, size)
    while size > least and (step.retracted == 0 or not make_room(mine, world, g, size)):
        size -= 1
        _send_back(mine, world, g, step, int(ordered[0, size]))
        make_room(mine, world, g, size * RETRACT_DECODE_STEPS)
    gpu.first_running = gpu.last_running = NONE
    for row in range(size):
        put_behind(mine, g, int(ordered[0, row]))
    gpu.ratio = min(1.0, (gpu.generated + RETRACT_DECODE_STEPS * size) / (gpu.max_new + 1))


@compiled
def _send_back(mine: Engines, world: World, g: int, step: Any, request: int) -> None:
    gpu, job, made, total = mine.gpus[g], mine.jobs[request], world.jobs[request], world.totals[g]
    drop(mine, g, request)
    total.retracted += 1
    generated = generated_of(gpu, job)
    if generated > job.generated:
        made.latency_s = gpu.decoded_s - world.seen.requests[request].arrival_s
        world.gaps.last_s[request_of(world, request)] = gpu.decoded_s
    made.state = QUEUED
    uncount(mine, g, request, WAITING)
    job.generated = generated
    mine.retractions[request] += 1
    mine.retracted[g, gpu.scheduled % STEPS, step.retracted] = request
    step.retracted += 1
    if decodes(world, g):  # its KV is kept by the host
        append(mine, g, RETRACTED, request)
        return
    total.recomputed_tokens += job.prompt - job.shown
    gpu.waiting_tokens += job.prompt + generated
    queue.join(mine, g, request)
