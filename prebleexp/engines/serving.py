"""What engines tell the rest of a run, and what their steps are made of: KV is taken and given back, contexts are kept
in the prefix cache, requests get their first token and finish."""

from __future__ import annotations

import numpy as np

from prebleexp.sim.caches import evict, insert
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import EVICTED, FINISHED, FIRST_TOKEN, STORED, World
from prebleexp.sim.types import State

DONE = int(State.FINISHED)


@compiled
def tell(world: World, kind: int, request: int, g: int, tokens: int) -> None:
    """Let the router hear of it, if it listens, when this event has been dealt with."""
    control = world.control
    news = world.news[control.news]
    news.kind, news.request, news.gpu, news.tokens = kind, request, g, tokens
    control.news += 1


@compiled
def first_token(world: World, g: int, request: int, now: float) -> None:
    job = world.jobs[request]
    job.output_seen = 1
    job.latency_s = now - world.seen.requests[request].arrival_s
    if np.isnan(job.ttft_s):  # else it was sent back to the queue, and begins anew
        job.ttft_s = job.latency_s
        seen = world.seen.requests[request]
        seen.ttft_s, seen.output_seen = job.ttft_s, 1
        if world.router.first_token != 0:
            tell(world, FIRST_TOKEN, request, g, 0)


@compiled
def finished(world: World, g: int, request: int, output: int, now: float) -> None:
    """The last of `output` tokens has come."""
    job, seen = world.jobs[request], world.seen.requests[request]
    job.state, job.finish_s, job.output_seen = DONE, now, output
    job.latency_s = now - seen.arrival_s
    seen.latency_s, seen.output_seen = job.latency_s, output
    tell(world, FINISHED, request, g, 0)


@compiled
def keep_context(world: World, g: int, request: int, outputs: int) -> int:
    """Insert a prompt and so many tokens of its answer; returns how many were there already."""
    known = insert(world.cache, g, request, outputs)
    if world.router.stored != 0:
        tell(world, STORED, request, g, world.seen.requests[request].prompt_tokens + outputs)
    return known


@compiled
def evict_tokens(world: World, g: int, wanted: int) -> int:
    """Drop what the cache alone holds until so many tokens are free of it; returns how many are."""
    control = world.cache.control
    control.evicted = 0
    freed = evict(world.cache, g, wanted)
    world.totals[g].evicted_tokens += freed
    if world.router.evicted != 0:
        for row in range(control.evicted):
            tell(world, EVICTED, int(world.cache.evicted_owner[row]), g, int(world.cache.evicted_beyond[row]))
    return freed
