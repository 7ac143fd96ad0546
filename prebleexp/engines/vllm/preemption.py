"""Running requests leave the batch: they are over, or blocks run out, and they lose theirs and wait again."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.serving import QUEUED
from prebleexp.engines.vllm import queue
from prebleexp.engines.vllm.records import NEVER, STEPS, Engines
from prebleexp.engines.vllm.tables import release
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import World
from prebleexp.sim.tiers import want


@compiled
def victim(mine: Engines, world: World, g: int) -> int:
    """The row of the running request that is preempted next: the last one; by priority, the first of those with the
    largest (priority, arrival)."""
    size = int(mine.gpus[g].running)
    if not mine.settings.by_priority:
        return size - 1
    found = 0
    for row in range(1, size):
        one, most = world.seen.requests[mine.running[g, row]], world.seen.requests[mine.running[g, found]]
        if one.priority > most.priority or (one.priority == most.priority and one.arrival_s > most.arrival_s):
            found = row
    return found


@compiled
def preempt(mine: Engines, world: World, g: int, step: Any, row: int) -> None:
    """A request loses its place and its blocks, but what is cached of them may be found again."""
    gpu, running = mine.gpus[g], mine.running[g]
    request = int(running[row])
    job = mine.jobs[request]
    for other in range(row, gpu.running - 1):  # `due` is the same for all
        running[other] = running[other + 1]
    gpu.running -= 1
    for stores in world.tiers.jobs[request : request + 1]:  # what is being stored of it must be over before
        for table in range(mine.settings.tables if stores > 0 else 0):
            want(world.tiers, g, request, int(mine.preemptions[request]), table, 0, NEVER)
    release(mine, g, request)
    gpu.waiting_tokens += job.computed if job.filling != 0 else job.known
    gpu.generated -= job.known - world.seen.requests[request].prompt_tokens
    step.recomputed += min(job.computed, world.seen.requests[request].prompt_tokens)
    job.running = job.computed = job.expected = 0
    job.filling = 1
    job.stale = job.under_way
    mine.preemptions[request] += 1
    world.jobs[request].state = QUEUED
    mine.preempted[g, gpu.scheduled % STEPS, step.preempted] = request
    step.preempted += 1
    queue.put_back(mine, world, g, request)


@compiled
def leave_running(mine: Engines, g: int, request: int) -> None:
    gpu, running, row = mine.gpus[g], mine.running[g], 0
    while running[row] != request:
        row += 1
    _take_out(running[row : gpu.running])
    _take_out(mine.due[g, row : gpu.running])
    gpu.running -= 1


@compiled
def _take_out(rows: Any) -> None:
    """The first of them, and the others move up: a slice, in which no index can be negative, is moved as a whole."""
    for row in range(len(rows) - 1):
        rows[row] = rows[row + 1]
