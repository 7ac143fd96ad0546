"""A model step of one GPU: a prefill of everything admitted, or else a burst of decode steps (spec:
engine-as-released)."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.largest import keep_largest
from prebleexp.engines.released.admission import admit
from prebleexp.engines.released.records import Sim
from prebleexp.engines.released.serving import (
    REPORT_INTERVAL,
    decode_token,
    evict_kv,
    finish,
    finish_decoded,
    make_room,
    report,
    start_decoding,
    use_kv,
)
from prebleexp.sim.caches import stamp, unseen_tokens
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import decode_s, request_ms, step_s

BURST = 10
"""decode steps at most in one model step"""


@compiled
def step(sim: Sim, g: int, now: float) -> None:
    """Run one model step. Its reports carry the GPU's clock at its end. Finished requests are left in
    scratch.finished."""
    gpu, control = sim.gpus[g], sim.control
    control.finished = 0
    seconds, reported = 0.0, False
    admitted = admit(sim, g, now)
    gpu.fruitless = 0 if admitted > 0 or gpu.running > 0 else gpu.fruitless + 1
    if admitted > 0:
        seconds, reported = _prefill(sim, g, sim.scratch.batch[:admitted]), True
    elif gpu.running > 0:
        seconds, reported = _decode_burst(sim, g)
    decoded = reported and gpu.decode_steps % REPORT_INTERVAL == 0 and admitted == 0
    host = sim.rules.output_step_cost_s if reported else sim.rules.step_cost_s
    gpu.clock = max(gpu.clock, now) + (0.0 + seconds + host)
    control.clock = max(control.clock, gpu.clock)
    if decoded:
        gpu.report_clock, gpu.report_step = gpu.clock, gpu.decode_steps
    if gpu.fruitless == 0:
        sim.servers[g].begun_s, sim.servers[g].ends_s = now, gpu.clock
    for request in sim.scratch.batch[:admitted]:
        report(sim, gpu, request, 1)
    for request in sim.scratch.finished[: control.finished]:
        report(sim, gpu, request, sim.jobs[request].target)
        sim.made[request].finish_s = gpu.clock


@compiled
def _prefill(sim: Sim, g: int, batch: Any) -> float:
    """All new tokens of the batch at once; each request gets its first token. Returns GPU seconds."""
    gpu, cost, seen = sim.gpus[g], sim.seen.costs[g], stamp(sim.cache)
    new, context, unique, requests_ms = 0, 0, 0, 0.0
    for request in batch:
        job, length = sim.jobs[request], sim.seen.requests[request].prompt_tokens
        new += job.new
        context += length
        requests_ms += request_ms(cost, job.new, length)
    if gpu.kv_free < new:
        evict_kv(sim, g, new)  # the release asks for the whole need, not for the shortfall
    use_kv(sim, g, new)
    sim.totals[g].prefilled_tokens += new
    for request in batch:
        node = sim.jobs[request].node
        unique += sim.seen.requests[request].prompt_tokens - int(sim.cache.nodes[node].depth)
        unique += unseen_tokens(sim.cache, g, node, seen)
    seconds = step_s(cost, len(batch), new, context, 0, 0, unique, requests_ms)
    for request in batch:
        if sim.jobs[request].target == 1:
            finish(sim, g, request)
    for request in batch:
        if sim.jobs[request].target > 1:
            start_decoding(sim, g, request)
    return seconds


@compiled
def _decode_burst(sim: Sim, g: int) -> tuple[float, bool]:
    """Decode steps until one reports, the batch is empty or the burst is over. Returns (GPU seconds, whether one
    reported)."""
    gpu = sim.gpus[g]
    seconds, reported = 0.0, False
    for _ in range(BURST):
        make_room(sim, g)
        decode_token(sim, g)
        # The locked nodes are those of the running requests, so the batch's distinct KV needs no walk through the tree.
        unique = gpu.context - gpu.node_depth + sim.cache.roots[g].locked
        keep_largest(sim.totals[g], gpu.running, gpu.context)
        seconds += decode_s(sim.seen.costs[g], gpu.running, gpu.context, unique, 1)
        reported = finish_decoded(sim, g)
        if reported or gpu.running == 0:
            break
    return seconds, reported
