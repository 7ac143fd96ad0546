"""The requests that wait on a GPU, by rank: a skew heap.

fcfs: those that arrive join behind the others, preempted ones in front. priority: by (priority, arrival), lower first
(vllm/v1/core/sched/request_queue.py).
"""

from __future__ import annotations

from prebleexp.engines.vllm.records import Engines
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, World
from prebleexp.sim.skew_heap import merge


@compiled
def join(mine: Engines, world: World, g: int, request: int) -> None:
    """A request joins the end of a GPU's queue."""
    gpu = mine.gpus[g]
    gpu.received += 1
    _rank(mine, world, g, request, gpu.received)


@compiled
def put_back(mine: Engines, world: World, g: int, request: int) -> None:
    """A request goes back to the front of a GPU's queue."""
    gpu = mine.gpus[g]
    gpu.put_back -= 1
    _rank(mine, world, g, request, gpu.put_back)


@compiled
def _rank(mine: Engines, world: World, g: int, request: int, turn: int) -> None:
    job = mine.jobs[request]
    job.heap_key = (
        int(world.seen.requests[request].priority) << 32 | int(world.jobs[request].number)
        if mine.settings.by_priority
        else turn
    )
    mine.gpus[g].queued += 1
    push(mine, g, request)


@compiled
def push(mine: Engines, g: int, request: int) -> None:
    """Into the heap, with the rank that it has: below the last one that came so, if it ranks behind that. Then a queue
    in order of arrival is a list, of which nobody's record is looked at but its ends."""
    gpu, job, last = mine.gpus[g], mine.jobs[request], int(mine.gpus[g].queue_last)
    job.heap_left = job.heap_right = NONE
    if last != NONE and mine.jobs[last].heap_left == NONE and mine.jobs[last].heap_key < job.heap_key:
        mine.jobs[last].heap_left = request
    else:
        gpu.queue = merge(mine.jobs, int(gpu.queue), request)
    if job.heap_left == NONE:
        gpu.queue_last = request


@compiled
def pop(mine: Engines, g: int) -> int:
    """Take the first request out of the heap, by the order of the scheduling policy, and return it."""
    gpu, first = mine.gpus[g], int(mine.gpus[g].queue)
    gpu.queue = merge(mine.jobs, int(mine.jobs[first].heap_left), int(mine.jobs[first].heap_right))
    if first == gpu.queue_last:
        gpu.queue_last = NONE
    return first


@compiled
def take_out(mine: Engines, g: int, request: int) -> None:
    """One out of the heap, wherever it is: those before it are put back."""
    gpu, before = mine.gpus[g], NONE
    while gpu.queue != request:
        first = pop(mine, g)
        mine.jobs[first].heap_left, before = before, first
    pop(mine, g)
    while before != NONE:
        one, before = before, int(mine.jobs[before].heap_left)
        push(mine, g, one)
