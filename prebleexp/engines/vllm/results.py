"""What the results of a step bring a request."""

from __future__ import annotations

import numpy as np

from prebleexp.engines.serving import RUNNING, finished, first_token
from prebleexp.engines.vllm.passed import waits_no_more
from prebleexp.engines.vllm.records import STOPPED, Engines
from prebleexp.engines.vllm.tables import move_on, release, remember
from prebleexp.sim.compiled import compiled
from prebleexp.sim.gaps import token
from prebleexp.sim.plug import call_none
from prebleexp.sim.pools import prefills
from prebleexp.sim.records import World


@compiled
def serve(
    mine: Engines, world: World, g: int, request: int, stale: bool, tokens: int, rejected: int, now: float
) -> None:
    """A request gets tokens: one that was preempted meanwhile as well, for they were under way. Rejected drafts are
    taken back, and what would be behind its end is dropped."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    prompt = int(world.seen.requests[request].prompt_tokens)
    kept = min(tokens, int(job.limit - job.known))
    job.known += kept
    world.jobs[request].latency_s = now - world.seen.requests[request].arrival_s
    if job.running == 0:
        gpu.waiting_tokens += kept
    elif job.running != STOPPED:
        gpu.generated += kept
    if np.isnan(world.seen.requests[request].ttft_s):
        first_token(world, g, request, now)
        world.jobs[request].output_seen = world.seen.requests[request].output_seen = job.known - prompt
        if job.running != 0:
            world.jobs[request].state = RUNNING
    else:
        token(world.gaps, request, now)
    if not stale and (job.expected > 0 or mine.settings.drafts > 0):
        job.computed -= rejected + tokens - kept
        job.expected -= rejected + tokens if job.expected > 0 else 0
        if job.running != 0:
            known = int(job.known) - mine.settings.key_ahead
            known = min(int(job.computed - job.under_way), known)
            if known >= (job.keyed + 1) * mine.settings.block_size:
                remember(mine, world, g, request, known)
    if job.known >= job.limit:
        if job.running == 0:
            gpu.queued -= 1
            gpu.waiting_tokens -= job.known
            waits_no_more(mine, world, g, request)
        finish(mine, world, g, request, now)


@compiled
def finish(mine: Engines, world: World, g: int, request: int, now: float) -> None:
    """Its last token has come: it gives its blocks back, unless they are to be read."""
    job, output = mine.jobs[request], int(mine.jobs[request].known - world.seen.requests[request].prompt_tokens)
    job.finished = 1
    if job.running != 0:
        # others wait for its stores, even if its blocks are held
        call_none(world.engines[g].part, world.engines[g].own, world, request, now)
        if mine.settings.connected:  # the connector is told of what is in the windows alone
            move_on(mine, world, g, request)
        if prefills(world, g):
            mine.gpus[g].held += 1
        elif mine.settings.drafts == 0 or job.under_way == 0 or not mine.settings.fenced:
            release(mine, g, request)  # else when the step under way is over
        mine.gpus[g].generated -= output
    finished(world, g, request, output, now)
