"""A GPU goes down: its queue, its batch and its cache are gone. Or it gives back what waits there."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.engines.batch import in_order
from prebleexp.engines.records import Batching
from prebleexp.sim.caches import evict, unlock
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, World
from prebleexp.sim.types import Longs


@compiled
def lose(mine: Batching, world: World, g: int) -> None:
    """Nobody is told. How many decode steps there were goes on: the next batch counts from there."""
    gpu, jobs, cache = mine.gpus[g], mine.jobs, world.cache
    request = int(gpu.working)
    while request != NONE:
        unlock(cache, g, jobs[request].node)
        request = int(jobs[request].next)
    for row in range(in_order(mine, g, mine.batch)):
        unlock(cache, g, jobs[mine.batch[row]].node)
    cache.control.evicted = 0
    evict(cache, g, cache.roots[g].evictable)
    gpu.kv_free = world.live[g].kv_tokens
    gpu.queued = gpu.least_need = gpu.waiting_tokens = gpu.steps = gpu.running = 0
    gpu.generated = gpu.context = gpu.node_depth = gpu.budget = gpu.batch_rows = 0
    gpu.window_first = gpu.window_rows = gpu.window_hit_tokens = gpu.window_prompt_tokens = 0
    gpu.working = gpu.fresh = NONE
    mine.turns[g, :] = 0


def give_back(mine: Any, world: Any, g: int) -> Longs:
    """The requests of its queue that have no token of this attempt: they are taken out of it."""
    gpu, live = mine.gpus[g], world.live[g]
    first = int(gpu.batch_offset)
    queue = mine.waiting[first : first + int(gpu.queued)]
    requests = queue.request.astype(np.int64)
    waits = np.isnan(world.seen.requests.ttft_s[requests])
    given = requests[waits]
    gpu.waiting_tokens -= (world.seen.requests.prompt_tokens[given] - queue.cached[waits]).sum()
    gpu.queued -= len(given)
    mine.waiting[first : first + int(gpu.queued)] = queue[~waits].copy()
    live.queued, live.waiting_tokens = gpu.queued, gpu.waiting_tokens
    return given
