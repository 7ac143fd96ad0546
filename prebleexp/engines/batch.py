"""A GPU's running batch: who finishes at which decode step, and the order in which requests joined.

A heap of (decode step at which a request finishes, order of joining) tells without a look at the others whether a
decode step finishes anything. The order of joining matters where the release walks its list: sums of floats,
simultaneous finishes, retraction.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE


class Batches(NamedTuple):
    """Running batches: per GPU a heap by (decode step at which it finishes, order of joining), and the order of
    joining."""

    keys: Any
    jobs: Any
    order: Any
    """job numbers, -1 where one has left"""


# `sim` is what an engine remembers: `gpus` and `jobs`, records of which the fields here are a part, and `batches`.


@compiled
def output_of(gpu: Any, job: Any) -> int:
    """Output tokens that a running request has: one from its prefill, one from each decode step since."""
    return 1 + gpu.decode_steps - job.joined_step


@compiled
def first_finish(gpu: Any, batches: Batches) -> int:
    """The decode step at which the next request finishes; the batch is not empty."""
    return batches.keys[gpu.batch_offset] >> 32


@compiled
def join(sim: Any, nodes: Any, requests: Any, g: int, request: int) -> None:
    """Append a request that has its first token, and whose cache path is locked."""
    gpu, job, batches = sim.gpus[g], sim.jobs[request], sim.batches
    job.joined_step = gpu.decode_steps
    if gpu.batch_rows == gpu.batch_capacity:
        _close_holes(gpu, sim.jobs, batches)
    _add(sim, nodes, requests, gpu, request)


@compiled
def _add(sim: Any, nodes: Any, requests: Any, gpu: Any, request: int) -> None:
    """Put a request behind the others, and its share into the batch's sums."""
    job, row = sim.jobs[request], requests[request]
    gpu.kv_free -= gpu.slack
    gpu.least_kv_free = min(gpu.least_kv_free, gpu.kv_free)
    gpu.budget += row.max_new_tokens - 1 + job.joined_step
    gpu.context += row.prompt_tokens + gpu.decode_steps - job.joined_step
    gpu.generated += output_of(gpu, job)
    gpu.node_depth += int(nodes[job.node].depth)
    job.row = gpu.batch_rows
    sim.batches.order[gpu.batch_offset + gpu.batch_rows] = request
    gpu.batch_rows += 1
    _heap_push(gpu, sim.batches, int(job.joined_step + job.target - 1) << 32 | gpu.joined, request)
    gpu.joined += 1
    gpu.running += 1


@compiled
def leave_first(sim: Any, nodes: Any, requests: Any, g: int) -> int:
    """Take out the request that finishes first; returns it."""
    gpu, batches = sim.gpus[g], sim.batches
    keys, jobs, offset = batches.keys, batches.jobs, gpu.batch_offset
    request = int(jobs[offset])
    gpu.running -= 1
    size = gpu.running
    key, moved = keys[offset + size], jobs[offset + size]
    position, child = 0, 1
    while child < size:
        if child + 1 < size and keys[offset + child + 1] < keys[offset + child]:
            child += 1
        if keys[offset + child] >= key:
            break
        keys[offset + position], jobs[offset + position] = keys[offset + child], jobs[offset + child]
        position = child
        child = 2 * position + 1
    keys[offset + position], jobs[offset + position] = key, moved
    batches.order[offset + sim.jobs[request].row] = NONE
    _forget(sim, nodes, requests, gpu, request)
    return request


@compiled
def in_order(sim: Any, g: int, into: Any) -> int:
    """Write the batch in order of joining to `into`; returns its size."""
    gpu, size = sim.gpus[g], 0
    for row in range(gpu.batch_offset, gpu.batch_offset + gpu.batch_rows):
        if sim.batches.order[row] != NONE:
            into[size] = sim.batches.order[row]
            size += 1
    return size


@compiled
def replace(sim: Any, nodes: Any, requests: Any, g: int, batch: Any) -> None:
    """Make of the running requests those of `batch` the whole batch, in this order."""
    gpu, batches = sim.gpus[g], sim.batches
    for row in range(gpu.batch_offset, gpu.batch_offset + gpu.batch_rows):
        request = int(batches.order[row])
        if request != NONE:
            _forget(sim, nodes, requests, gpu, request)
    gpu.running = gpu.batch_rows = 0
    for request in batch:
        _add(sim, nodes, requests, gpu, request)


@compiled
def _forget(sim: Any, nodes: Any, requests: Any, gpu: Any, request: int) -> None:
    """Take a request's share out of the batch's sums."""
    job, row = sim.jobs[request], requests[request]
    gpu.kv_free += gpu.slack
    gpu.budget -= row.max_new_tokens - 1 + job.joined_step
    gpu.context -= row.prompt_tokens + gpu.decode_steps - job.joined_step
    gpu.generated -= output_of(gpu, job)
    gpu.node_depth -= int(nodes[job.node].depth)


@compiled
def _heap_push(gpu: Any, batches: Batches, key: int, request: int) -> None:
    keys, jobs, offset = batches.keys, batches.jobs, gpu.batch_offset
    position = gpu.running
    while position > 0:
        parent = (position - 1) >> 1
        if keys[offset + parent] <= key:
            break
        keys[offset + position], jobs[offset + position] = keys[offset + parent], jobs[offset + parent]
        position = parent
    keys[offset + position], jobs[offset + position] = key, request


@compiled
def _close_holes(gpu: Any, jobs: Any, batches: Batches) -> None:
    kept = 0
    for row in range(gpu.batch_rows):
        request = int(batches.order[gpu.batch_offset + row])
        if request != NONE:
            batches.order[gpu.batch_offset + kept] = request
            jobs[request].row = kept
            kept += 1
    gpu.batch_rows = kept
