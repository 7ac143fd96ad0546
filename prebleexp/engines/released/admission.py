"""Admission: which queued requests a model step prefills (spec: engine-as-released, A model step, 1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.engines.batch import output_of
from prebleexp.engines.released.records import Sim
from prebleexp.sim.caches import lock, match, unlock
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE
from prebleexp.sim.types import State

QUEUED = int(State.QUEUED)
HIT_WINDOW_S = 30.0
"""over which a GPU's hit ratio is taken"""


@compiled
def enqueue(sim: Sim, g: int, request: int) -> None:
    gpu, job = sim.gpus[g], sim.jobs[request]
    job.next = NONE
    sim.made[request].state = QUEUED
    if gpu.queue_head == NONE:
        gpu.queue_head = request
    else:
        sim.jobs[gpu.queue_tail].next = request
    gpu.queue_tail = request
    gpu.queued += 1


@compiled
def admit(sim: Sim, g: int, now: float) -> int:
    """Match and sort the queue, lock the paths of what fits and list it in scratch.batch; returns how many fit."""
    gpu = sim.gpus[g]
    if gpu.queue_head == NONE:
        return 0
    queued, most = _match_queue(sim, g)
    queue = sim.scratch.queue[:queued]
    _sort(sim.jobs, queue, sim.scratch.merge)
    admitted = _select(sim, g, queue, _available(sim, g, most))
    if admitted:
        _record_hits(sim, gpu, sim.scratch.batch[:admitted], now)
    return admitted


@compiled
def _match_queue(sim: Sim, g: int) -> tuple[int, int]:
    """Match every queued request and list them in scratch.queue; returns how many, and the most tokens they could
    take."""
    queued, most = 0, 0
    request = sim.gpus[g].queue_head
    while request != NONE:
        job, row = sim.jobs[request], sim.seen.requests[request]
        job.cached, job.node = match(sim.cache, g, request, 0)
        job.rank = -job.cached
        job.new = row.prompt_tokens - job.cached
        most += max(job.new, 1) + row.max_new_tokens
        sim.scratch.queue[queued] = request
        queued += 1
        request = job.next
    return queued, most


@compiled
def _sort(jobs: Any, queue: Any, merge: Any) -> None:
    """Lowest rank first; stable. Bottom-up merge sort that skips what is in order, as most of a queue is."""
    width = 1
    while width < len(queue):
        for left in range(0, len(queue) - width, 2 * width):
            middle, right = left + width, min(left + 2 * width, len(queue))
            if jobs[queue[middle - 1]].rank <= jobs[queue[middle]].rank:
                continue
            for k in range(left, middle):
                merge[k] = queue[k]
            i, j = left, middle
            for k in range(left, right):
                if j == right or (i < middle and jobs[merge[i]].rank <= jobs[queue[j]].rank):
                    queue[k] = merge[i]
                    i += 1
                else:
                    queue[k] = queue[j]
                    j += 1
        width *= 2


@compiled
def _available(sim: Sim, g: int, most: int) -> float:
    """KV tokens that may be promised to new requests: what is free or evictable, less a share of what runs may still
    generate."""
    gpu, evictable = sim.gpus[g], sim.cache.roots[g].evictable
    if gpu.running == 0:
        return float(gpu.kv_free + evictable)
    to_come = gpu.budget - gpu.running * gpu.decode_steps
    if not sim.rules.stepwise and most < gpu.kv_free - to_come * gpu.new_token_ratio - 1:
        return np.inf  # all fits without evicting anything, so the exact number does not matter
    reserved = 0.0
    for row in range(gpu.batch_offset, gpu.batch_offset + gpu.batch_rows):
        request = sim.batches.order[row]
        if request != NONE:
            output = output_of(gpu, sim.jobs[request])
            reserved += (sim.seen.requests[request].max_new_tokens - output) * gpu.new_token_ratio
    return gpu.kv_free + evictable - reserved


@compiled
def _select(sim: Sim, g: int, queue: Any, available: float) -> int:
    """Lock what fits and list it in scratch.batch; link the rest anew, in its new order. Returns how many fit."""
    gpu = sim.gpus[g]
    admitted, promised, prefill, full = 0, 0, 0, False
    gpu.queue_head = gpu.queue_tail = NONE
    gpu.queued = 0
    for request in queue:
        job = sim.jobs[request]
        if job.new == 0:  # one token at least must be computed
            job.new, job.cached = 1, job.cached - 1
        need = job.new + sim.seen.requests[request].max_new_tokens
        if not full and need + promised < available and job.new + prefill < gpu.max_prefill:
            available += lock(sim.cache, g, job.node)
            if need + promised < available:
                sim.scratch.batch[admitted] = request
                admitted += 1
                promised += need
                prefill += job.new
                sim.made[request].hit_tokens, sim.made[request].prefilled_tokens = job.cached, job.new
                sim.totals[g].hit_tokens += job.cached
                continue
            unlock(sim.cache, g, job.node)
            full = True
        enqueue(sim, g, request)
    return admitted


@compiled
def _record_hits(sim: Sim, gpu: Any, batch: Any, now: float) -> None:
    """Add a prefill to the hit window; those older than the window leave it only now."""
    window, size = sim.window, gpu.window_capacity
    hits, prompts = 0, 0
    for request in batch:
        hits += sim.jobs[request].cached
        prompts += sim.seen.requests[request].prompt_tokens
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
