"""What engines tell the rest of a run, and what their steps are made of: KV is taken and given back, contexts are kept
in the prefix cache, requests get their first token and finish."""

from __future__ import annotations

import numpy as np

from prebleexp.sim.caches import evict, insert_first
from prebleexp.sim.compiled import compiled
from prebleexp.sim.gaps import token
from prebleexp.sim.news import tell
from prebleexp.sim.notices import EVICTED, FINISHED, FIRST_TOKEN, STORED
from prebleexp.sim.pools import prefills
from prebleexp.sim.records import World
from prebleexp.sim.types import State

QUEUED, RUNNING, DONE = int(State.QUEUED), int(State.RUNNING), int(State.FINISHED)


@compiled
def first_token(world: World, g: int, request: int, now: float) -> None:
    job = world.jobs[request]
    job.output_seen = 1
    job.latency_s = now - world.seen.requests[request].arrival_s
    seen = world.seen.requests[request]
    if np.isnan(job.ttft_s):  # else it was sent back to the queue, or lost, and begins anew
        job.ttft_s = job.latency_s
    if np.isnan(seen.ttft_s):  # else it was sent back to the queue
        seen.ttft_s, seen.output_seen = job.latency_s, 1
        if world.told.hears[FIRST_TOKEN] != 0:
            tell(world, FIRST_TOKEN, request, g, 0)
    if not prefills(world, g):  # else the token is shown by whoever makes the others
        token(world.gaps, request, now)


@compiled
def finished(world: World, g: int, request: int, output: int, now: float) -> None:
    """The last of `output` tokens has come."""
    job, seen = world.jobs[request], world.seen.requests[request]
    job.state, job.finish_s, job.output_seen = DONE, now, output
    job.latency_s = now - seen.arrival_s
    seen.latency_s, seen.output_seen = job.latency_s, output
    tell(world, FINISHED, request, g, 0)


@compiled
def ahead_of(world: World, request: int, output: int) -> float:
    """Tokens by which a running request with so much output has less left than what was expected of it less that.
    Unless lengths are refined, one that is beyond what was expected has none left, and not less than none."""
    expected = world.seen.requests[request].expected_output
    if len(world.left) == 0:
        return min(0.0, expected - output)
    left = world.left[world.jobs[request].length_class, min(output, world.left.shape[1] - 1)]
    return expected - output - left


@compiled
def keep_context(world: World, g: int, request: int, outputs: int) -> int:
    """Insert a prompt and so many tokens of its answer; returns how many were there already."""
    return keep_tokens(world, g, request, world.seen.requests[request].prompt_tokens + outputs)


@compiled
def keep_tokens(world: World, g: int, request: int, tokens: int) -> int:
    """The same of a context's first tokens."""
    known = insert_first(world.cache, g, request, tokens)
    if world.told.hears[STORED] != 0:
        tell(world, STORED, request, g, tokens)
    return known


@compiled
def evict_tokens(world: World, g: int, wanted: int) -> int:
    """Drop what the cache alone holds until so many tokens are free of it; returns how many are."""
    control = world.cache.control
    control.evicted = 0
    freed = evict(world.cache, g, wanted)
    world.totals[g].evicted_tokens += freed
    if world.told.hears[EVICTED] != 0:
        for row in range(control.evicted):
            tell(world, EVICTED, int(world.cache.evicted_owner[row]), g, int(world.cache.evicted_beyond[row]))
    return freed
