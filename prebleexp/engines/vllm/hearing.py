"""Transfers between GPUs that are over, and of which vLLM's scheduler has not heard (vllm/v1/worker, `get_finished`).

The worker asks for them when it launches a step, and the scheduler hears of them with that step's results: with two
batches in flight a step or two later. A GPU that has nothing to compute asks every `idle_poll_s`. Until then, who waits
for KV is not admitted, and KV that was read keeps its blocks.
"""

from __future__ import annotations

import math
from typing import Any

from prebleexp.engines.vllm import queue
from prebleexp.engines.vllm.records import FAILED, PULLED, STEPS, Engines
from prebleexp.engines.vllm.tables import release
from prebleexp.sim.compiled import compiled
from prebleexp.sim.plug import call_none
from prebleexp.sim.pools import is_loading, prefills
from prebleexp.sim.records import IDLE, NONE, World
from prebleexp.sim.tiers import TIERS
from prebleexp.sim.waking import wake_at


@compiled
def tell(mine: Engines, world: World, g: int, row: int) -> None:
    """The KV of a request is there, or that of a prompt was read."""
    add_news(mine, mine.gpus[g], row)
    if world.servers[g].stage == IDLE:
        wake_at(world, g, next_look(mine, g, world.control.now))


@compiled
def add_news(mine: Engines, to: Any, row: int) -> None:
    """Behind the other news of a GPU, or of a step."""
    mine.jobs[row].heap_left = NONE
    if to.news == NONE:
        to.news = row
    else:
        mine.jobs[to.last_news].heap_left = row
    to.last_news = row


@compiled
def next_look(mine: Engines, g: int, now: float) -> float:
    """When a GPU that has had nothing to compute for a while looks next."""
    idle_s, poll_s = mine.gpus[g].idle_s, mine.settings.idle_poll_s
    if poll_s == 0:
        return now
    return float(max(now, idle_s + math.ceil((now - idle_s) / poll_s) * poll_s))


@compiled
def hear(self: Any, mine: Engines, world: World, g: int, now: float) -> None:
    """The results of the step that began last are taken up."""
    gpu = mine.gpus[g]
    step = mine.steps[g, (gpu.begun - 1) % STEPS]
    row = int(step.news)
    if mine.settings.hears_at_results:
        row, gpu.news = int(gpu.news), NONE
    while row != NONE:
        behind = int(mine.jobs[row].heap_left)
        if is_loading(world, row):
            call_none(world.engines[g].heard, world.engines[g].own, world, row, now)
        elif prefills(world, g):
            give_up(mine, world, g, row)
        else:
            _is_there(mine, world, g, row)
        step.heard += 1
        row = behind
    step.news = NONE
    store = int(step.stored)
    while store != NONE:
        behind, subject = int(world.tiers.stores[store].next), TIERS * len(world.jobs) + store
        call_none(world.engines[g].heard, world.engines[g].own, world, subject, now)
        store = behind
    step.stored = NONE


@compiled
def _is_there(mine: Engines, world: World, g: int, request: int) -> None:
    """It waits to be admitted, unless its KV did not arrive."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    gpu.reserved -= 1
    gpu.queued += 1
    if job.filling == PULLED and job.computed < job.known:
        if mine.settings.fails:
            call_none(world.engines[g].fail, world.engines[g].own, world, request, world.control.now)
            return
        job.filling = FAILED
        gpu.waiting_tokens += job.known - job.computed
    queue.push(mine, g, request)


@compiled
def begin_anew(mine: Engines, row: int) -> None:
    """Who holds nothing any more is as if it had not been here."""
    job = mine.jobs[row]
    job.running = job.computed = job.keyed = job.segment = job.finished = 0
    job.filling, mine.preemptions[row] = 1, 0


@compiled
def give_up(mine: Engines, world: World, g: int, leg: int) -> None:
    """A prompt that was read gives its blocks back, and stays cached; should it be lost since, it begins anew."""
    job = mine.jobs[leg]
    release(mine, g, leg)
    job.known = world.seen.requests[leg].prompt_tokens
    begin_anew(mine, leg)
    mine.gpus[g].held -= 1


@compiled
def unheard(mine: Engines, g: int, row: int) -> bool:
    """Whether a GPU was to hear of a transfer; it will not any more."""
    gpu = mine.gpus[g]
    before = _before(mine, int(gpu.news), row)
    if before != NONE:
        behind = mine.jobs[row].heap_left
        if before == row:
            gpu.news = behind
        else:
            mine.jobs[before].heap_left = behind
        if gpu.last_news == row:
            gpu.last_news = before
        return True
    for number in range(gpu.over, gpu.scheduled):
        step = mine.steps[g, number % STEPS]
        before = _before(mine, int(step.news), row)
        if before == row:
            step.news = mine.jobs[row].heap_left
        elif before != NONE:
            mine.jobs[before].heap_left = mine.jobs[row].heap_left
        if before != NONE:
            return True
    return False


@compiled
def _before(mine: Engines, first: int, row: int) -> int:
    """Who is before it in a list that begins there: itself, if it is the first; -1: it is not in the list."""
    if first == row:
        return row
    one = first
    while one != NONE and mine.jobs[one].heap_left != row:
        one = int(mine.jobs[one].heap_left)
    return one


@compiled
def hear_all(mine: Engines, world: World, g: int) -> None:
    """A GPU that computes prompts is emptied: what was read there is held no more."""
    gpu = mine.gpus[g]
    for number in range(gpu.over - 1, gpu.scheduled):
        row = int(mine.steps[g, number % STEPS].news) if number >= gpu.over else int(gpu.news)
        while row != NONE:
            behind = int(mine.jobs[row].heap_left)
            give_up(mine, world, g, row)
            row = behind
