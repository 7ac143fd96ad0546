"""A request gives up before its first token: it leaves the queue, or those that are part-way, and what is computed of
it stays cached."""

from __future__ import annotations

from prebleexp.engines.records import Batching
from prebleexp.engines.serving import keep_tokens
from prebleexp.sim.caches import unlock
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, STEPPING, World


@compiled
def leave(mine: Batching, world: World, g: int, request: int) -> int:
    """Whether it has left: 0, if it is in the step in hand."""
    gpu, queue = mine.gpus[g], mine.waiting[mine.gpus[g].batch_offset :]
    for at in range(gpu.queued):
        if queue[at].request == request:
            gpu.waiting_tokens -= world.seen.requests[request].prompt_tokens - queue[at].cached
            gpu.queued -= 1
            for other in range(at, gpu.queued):
                queue[other] = queue[other + 1]
            return 1
    if world.servers[g].stage == STEPPING:
        return 0
    _take_out(mine, g, request)
    job = mine.jobs[request]
    gpu.waiting_tokens -= job.new - job.computed
    computed = int(job.computed + job.chunk)
    if computed > 0:
        known = keep_tokens(world, g, request, int(job.cached) + computed)
        gpu.kv_free += max(0, known - job.cached)
    unlock(world.cache, g, job.node)
    return 1


@compiled
def _take_out(mine: Batching, g: int, request: int) -> None:
    """Of the list of those that are part-way."""
    gpu, jobs, before = mine.gpus[g], mine.jobs, NONE
    one = int(gpu.working)
    while one != request:
        before, one = one, int(jobs[one].next)
    if before == NONE:
        gpu.working = jobs[request].next
    else:
        jobs[before].next = jobs[request].next
    if gpu.last == request:
        gpu.last = before
