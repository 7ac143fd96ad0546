"""Prompts whose KV was computed on another GPU, and is read from there (spec: clusters.md, 1.2).

vLLM has two queues: of those whose KV is under way or has come, in the order in which they took their blocks, and of
the others. The first is looked at before the second, and who has not got its KV yet is passed over. Here those are in
no queue until then, and come before the others: in `engines.vllm.queue`, by rank.
"""

from __future__ import annotations

from prebleexp.engines.hit_ratio import note
from prebleexp.engines.vllm import queue
from prebleexp.engines.vllm.blocks import cached, hold, remember, take
from prebleexp.engines.vllm.choosing import blocks_of
from prebleexp.engines.vllm.records import PULLED, Engines
from prebleexp.sim.compiled import compiled
from prebleexp.sim.pulling import pull
from prebleexp.sim.records import World

FIRST = -(1 << 40)
"""rank before all that wait, and before those that were put in front of them"""


@compiled
def reserve(mine: Engines, world: World, g: int, request: int) -> tuple[bool, int]:
    """Take blocks for all of a prompt, and ask for what of it is not cached here; whether there are enough, and how
    many of those taken were cached.

    A transfer cannot be preempted: what prompts that are computed again still need is left to them."""
    gpu, job, size = mine.gpus[g], mine.jobs[request], mine.settings.block_size
    hits, idle = cached(mine, world, g, request)
    need = blocks_of(mine, int(job.known)) - hits
    kept = mine.settings.blocks_kept_free if gpu.running > 0 else 0
    again = promised(mine, g) if gpu.put_back != 0 else 0  # nobody was ever preempted, and computes again
    if need + idle + kept + again > gpu.free:
        return False, 0
    queue.pop(mine, g)
    gpu.queued -= 1
    gpu.reserved += 1
    gpu.reservations += 1
    hold(mine, world, g, request)
    evicted = take(mine, world, g, need)
    job.blocks += need
    job.filling, job.heap_key = PULLED, FIRST + gpu.reservations
    note(mine.recent, gpu, g, hits * size, int(job.known))
    pull(world, request, need * size)
    return True, evicted


@compiled
def promised(mine: Engines, g: int) -> int:
    """Blocks that running requests need for what they have not computed of their contexts."""
    blocks = 0
    for row in range(mine.gpus[g].running):
        job = mine.jobs[mine.running[g, row]]
        if job.filling != 0:
            blocks += max(0, blocks_of(mine, int(job.known)) - job.blocks)
    return blocks


@compiled
def arrive(mine: Engines, world: World, g: int, request: int) -> None:
    """All of a prompt is there: it is found by others from now on, but the last token is computed again."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    gpu.reserved -= 1
    gpu.queued += 1
    job.computed = job.known - 1
    remember(mine, world, g, request, int(job.computed))
    queue.push(mine, g, request)
