"""What every model step is made of: tokens are computed and reported, requests join the batch, finish, or are sent back
(spec: engine-as-released)."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.engines.batch import first_finish, in_order, join, leave_first, output_of, replace
from prebleexp.engines.released.admission import enqueue
from prebleexp.engines.released.records import Sim
from prebleexp.sim.caches import evict, insert, lock, match, unlock
from prebleexp.sim.compiled import compiled
from prebleexp.sim.types import State

RUNNING, FINISHED = int(State.RUNNING), int(State.FINISHED)
REPORT_INTERVAL = 8
"""decode steps between two reports of running requests"""
NEW_TOKEN_RATIO = 0.4
"""of the tokens that running requests may still generate, the share that is kept free for them at first"""
RATIO_DECAY, RATIO_LEAST = 0.0001, 0.2
"""after each decode step that finds room"""
RATIO_GROWTH, RATIO_MOST = 0.05, 1.0
"""after one that does not"""


@compiled
def report(sim: Sim, gpu: Any, request: int, output: int) -> None:
    """`output` tokens of a request are reported at the GPU's clock."""
    made = sim.made[request]
    made.latency_s = gpu.clock - sim.seen.requests[request].arrival_s
    made.output_seen = output
    if np.isnan(made.ttft_s):
        made.ttft_s = made.latency_s


@compiled
def settle(sim: Sim, g: int, request: int) -> None:
    """Give a running request what it last reported: its first token, or what the last report of all running
    requests said."""
    gpu, job, made = sim.gpus[g], sim.jobs[request], sim.made[request]
    if gpu.report_step > job.joined_step:
        made.latency_s = gpu.report_clock - sim.seen.requests[request].arrival_s
        made.output_seen = 1 + gpu.report_step - job.joined_step


@compiled
def finish(sim: Sim, g: int, request: int) -> None:
    """Keep a finished request's context in the cache, unlocked."""
    job, control = sim.jobs[request], sim.control
    insert_context(sim, g, request, job.target)
    unlock(sim.cache, g, job.node)
    sim.made[request].state = FINISHED
    sim.scratch.finished[control.finished] = request
    control.finished += 1


@compiled
def insert_context(sim: Sim, g: int, request: int, output: int) -> None:
    """Insert prompt and output but the last token, whose KV is not computed yet; what was cached already is freed."""
    known = insert(sim.cache, g, request, output - 1)
    sim.gpus[g].kv_free += max(0, known - sim.jobs[request].cached)


@compiled
def evict_kv(sim: Sim, g: int, wanted: int) -> None:
    """Drop what the cache alone holds until so many tokens are free of it. The release's router does not hear of it."""
    sim.cache.control.evicted = 0
    freed = evict(sim.cache, g, wanted)
    sim.totals[g].evicted_tokens += freed
    sim.gpus[g].kv_free += freed


@compiled
def use_kv(sim: Sim, g: int, tokens: int) -> None:
    gpu = sim.gpus[g]
    gpu.kv_free -= tokens
    gpu.least_kv_free = min(gpu.least_kv_free, gpu.kv_free)
    sim.totals[g].forwarded_tokens += tokens


@compiled
def start_decoding(sim: Sim, g: int, request: int) -> None:
    """A request's prompt is computed and it has its first token: keep its context, and let it join the batch."""
    job = sim.jobs[request]
    insert_context(sim, g, request, 1)
    matched, node = match(sim.cache, g, request, 0)
    unlock(sim.cache, g, job.node)
    lock(sim.cache, g, node)
    job.cached, job.node, sim.made[request].state = matched, node, RUNNING
    join(sim, sim.cache.nodes, sim.seen.requests, g, request)


@compiled
def make_room(sim: Sim, g: int) -> None:
    """Let there be a token of KV for each running request, by eviction, else by sending some back."""
    gpu = sim.gpus[g]
    if gpu.kv_free < gpu.running:
        evict_kv(sim, g, gpu.running)
    if gpu.kv_free >= gpu.running:
        gpu.new_token_ratio = max(gpu.new_token_ratio - RATIO_DECAY, RATIO_LEAST)
    else:
        gpu.new_token_ratio = min(gpu.new_token_ratio + RATIO_GROWTH, RATIO_MOST)
        _retract(sim, g)


@compiled
def decode_token(sim: Sim, g: int) -> None:
    """Every running request takes a token of KV and gets a token."""
    gpu = sim.gpus[g]
    gpu.decode_steps += 1
    sim.totals[g].decode_steps += 1
    gpu.context += gpu.running
    gpu.generated += gpu.running
    use_kv(sim, g, gpu.running)


@compiled
def finish_decoded(sim: Sim, g: int) -> bool:
    """Take out who got the last token; returns whether the decode step reports anything."""
    gpu = sim.gpus[g]
    reported = gpu.running > 0 and gpu.decode_steps % REPORT_INTERVAL == 0
    while gpu.running > 0 and first_finish(gpu, sim.batches) == gpu.decode_steps:
        finish(sim, g, leave_first(sim, sim.cache.nodes, sim.seen.requests, g))
        reported = True
    return reported


@compiled
def _retract(sim: Sim, g: int) -> None:
    """Out of memory: send the latest arrivals back to the queue until there is room for one token of each of the
    batch."""
    gpu = sim.gpus[g]
    batch = sim.scratch.batch
    size = in_order(sim, g, batch)
    _sort_by_arrival(sim, gpu, batch[:size])
    wanted, kept = size, size
    while gpu.kv_free < wanted and kept > 0:
        kept -= 1
        request = int(batch[kept])
        job, prompt = sim.jobs[request], sim.seen.requests[request].prompt_tokens
        settle(sim, g, request)
        gpu.kv_free += prompt + output_of(gpu, job) - 1 - job.cached
        unlock(sim.cache, g, job.node)
        sim.totals[g].recomputed_tokens += prompt
        sim.totals[g].retracted += 1
        enqueue(sim, g, request)
    replace(sim, sim.cache.nodes, sim.seen.requests, g, batch[:kept])


@compiled
def _sort_by_arrival(sim: Sim, gpu: Any, batch: Any) -> None:
    """Earliest first, then shortest output; stable. By insertion: a batch is nearly in order of arrival."""
    for i in range(1, len(batch)):
        request = batch[i]
        arrival, output = sim.seen.requests[request].arrival_s, output_of(gpu, sim.jobs[request])
        j = i - 1
        while j >= 0:
            other = batch[j]
            other_arrival = sim.seen.requests[other].arrival_s
            if other_arrival < arrival:
                break
            if other_arrival == arrival and output_of(gpu, sim.jobs[other]) <= output:
                break
            batch[j + 1] = other
            j -= 1
        batch[j + 1] = request
