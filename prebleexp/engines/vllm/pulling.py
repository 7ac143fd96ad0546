"""Prompts whose KV was computed on another GPU, and is read from there (spec: clusters.md, 1.2).

vLLM has two queues: of those whose KV is under way or has come, in the order in which they took their blocks, and of
the others. The first is looked at before the second, and who has not got its KV yet is passed over. Here those are in
no queue until then, and come before the others: in `engines.vllm.queue`, by rank.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.hit_ratio import note
from prebleexp.engines.vllm import queue, reading
from prebleexp.engines.vllm.blocks import take
from prebleexp.engines.vllm.records import FAILED, PULLED, PULLS, STEPS, Engines
from prebleexp.engines.vllm.steady import blocks_of
from prebleexp.engines.vllm.tables import release, remember, tokens_of
from prebleexp.sim.compiled import compiled
from prebleexp.sim.pulling import read
from prebleexp.sim.records import NONE, World
from prebleexp.sim.tiers import FETCHING, GO_ON, NO_ROOM

FIRST = -(1 << 40)
"""rank before all that wait, and before those that were put in front of them"""


@compiled
def pull(self: Any, mine: Engines, world: World, request: int, now: float) -> int:
    """The first of a queue asks for what of its prompt is not cached here, if there are blocks for all of it, or has
    got that: then others find it from now on.

    A transfer cannot be preempted: what prompts that are computed again still need is left to them."""
    g, size = int(world.seen.requests[request].gpu), mine.settings.block_size
    gpu, job = mine.gpus[g], mine.jobs[request]
    if job.filling != PULLS:
        _enter_cache(mine, world, g, request)
        return GO_ON
    hits, need, idle = reading.room(mine, world, g, request, int(job.known))
    evicted = reserve(mine, world, g, request, need, idle + promised(mine, world, g), PULLED, int(job.known))
    if evicted == NONE:
        return NO_ROOM
    reading.waits_for_first_step(mine, world, g, request)
    step, known = mine.steps[g, gpu.scheduled % STEPS], int(job.known)
    step.evicted += evicted
    step.reserved += 1
    job.computed = known
    note(mine.recent, gpu, g, hits * size, known)
    for tier in range(len(world.tiers.tiers)):  # before it was lost, it may have been loaded
        world.tiers.tokens[tier, request] = 0
    read(world, request, tokens_of(mine, need))
    return FETCHING


@compiled
def _enter_cache(mine: Engines, world: World, g: int, request: int) -> None:
    """What has come of a prompt, whose last token is computed again; if nothing has, its blocks are given back."""
    job = mine.jobs[request]
    if job.filling == FAILED and job.computed == 0:
        reading.lacks_no_more(mine, world, g, request)
        release(mine, g, request)
        job.filling = 1
        return
    remember(mine, world, g, request, int(job.computed))
    job.computed -= int(job.computed == job.known)
    reading.comes_last(mine, world, g, request)


@compiled
def reserve(
    mine: Engines, world: World, g: int, request: int, need: int, others: int, filling: int, reached: int
) -> int:
    """The first of a queue leaves it with what is cached here and so many blocks more, up to a position; how many of
    those taken were cached. -1: there are not enough, since `others` are to be left, and what its first step with
    drafts will need."""
    gpu, job, settings = mine.gpus[g], mine.jobs[request], mine.settings
    kept = settings.blocks_kept_free if gpu.running > 0 else 0
    others += settings.tables * blocks_of(mine, settings.first_step)
    if need + others + kept > gpu.free:
        return NONE
    queue.pop(mine, g)
    gpu.queued -= 1
    gpu.reserved += 1
    gpu.reservations += 1
    reading.hold(mine, world, g, request, reached)
    evicted = take(mine, world, g, need)
    job.blocks = blocks_of(mine, reached)
    job.filling, job.heap_key = filling, FIRST + gpu.reservations
    return int(evicted)


@compiled
def promised(mine: Engines, world: World, g: int) -> int:
    """Blocks that running requests need for what they have not computed of their contexts, those whose KV is loaded
    from tiers, and those whose KV was asked for, for a first step with drafts. Of those that the step in hand admits,
    whose KV came are among them even if it computes all the rest."""
    gpu = mine.gpus[g]
    blocks = int(gpu.lacked)
    slot = gpu.scheduled % STEPS
    step = mine.steps[g, slot]
    for row in range(gpu.running):
        job, new = mine.jobs[mine.running[g, row]], row - gpu.running + step.admitted
        fills = job.filling != 0
        if new >= 0:
            one = mine.chosen[g, slot, step.chosen - step.admitted + new]
            fills = one.hits + one.tokens < job.known or job.heap_key < FIRST // 2
        if fills:
            blocks += reading.lacks(mine, job)
    for first in world.tiers.loading[g : g + 1]:  # none without tiers
        request = int(first)
        while request != NONE:
            if mine.jobs[request].finished == 0:  # else it gave up
                blocks += reading.lacks(mine, mine.jobs[request])
            request = int(world.tiers.fetches[request].next)
    return blocks


@compiled
def arrive(mine: Engines, world: World, g: int, request: int, computed: int) -> None:
    """So many tokens of what was reserved are there: others find them from now on, and the request waits again."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    gpu.reserved -= 1
    gpu.queued += 1
    job.computed = computed
    remember(mine, world, g, request, computed)
    queue.push(mine, g, request)
