"""A request gives up (sglang/srt/managers/scheduler.py, `abort_request`), before its first token or, if whoever waited
for it has gone, behind it: what is computed of it goes to the tree. What is under way of it is not looked at any
more. Or it is taken back, since another GPU that has a part in it is down."""

from __future__ import annotations

from prebleexp.engines.sglang import queue, receiving
from prebleexp.engines.sglang.contexts import drop, give_up
from prebleexp.engines.sglang.records import CHOSEN, DONE, ELSEWHERE, RUNNING, STEPS, WAITING, Engines
from prebleexp.engines.sglang.running import stop
from prebleexp.sim.compiled import compiled
from prebleexp.sim.pools import decodes
from prebleexp.sim.records import NONE, STEPPING, World


@compiled
def leave(mine: Engines, world: World, g: int, request: int) -> int:
    """Whether it has left: 0, if it is in the step in hand, or in one that is scheduled behind that."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    if job.stage == WAITING or job.stage == ELSEWHERE or decodes(world, g):
        take_back(mine, world, g, request)
    elif world.servers[g].stage == STEPPING:
        return 0
    else:
        if job.stage == CHOSEN:
            gpu.waiting_tokens -= job.prompt - job.computed
        give_up(mine, world, g, request)
        if job.stage == RUNNING:
            stop(mine, g, request, DONE)
        if gpu.part_way == request:
            gpu.part_way = NONE
    job.stage = DONE
    gpu.full = 0
    return 1


@compiled
def take_back(mine: Engines, world: World, g: int, request: int) -> None:
    """What is a request's own is free, and nobody looks at what is under way of it any more."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    if job.stage == WAITING:
        queue.take_out(mine, g, request)
        gpu.waiting_tokens -= 0 if decodes(world, g) else job.prompt + job.generated
    elif job.stage == CHOSEN:
        drop(mine, g, request)
        if decodes(world, g):
            receiving.leave(mine, world, g, request)
        else:
            gpu.waiting_tokens -= job.prompt - job.computed
            _strike(mine, g, request)
        gpu.full = 0
    job.stage = ELSEWHERE


@compiled
def _strike(mine: Engines, g: int, request: int) -> None:
    """From the steps that are scheduled and not over."""
    gpu = mine.gpus[g]
    if gpu.part_way == request:
        gpu.part_way = NONE
    for number in range(max(0, int(gpu.begun) - 1), int(gpu.scheduled)):
        chosen = mine.chosen[g, number % STEPS]
        for row in range(mine.steps[g, number % STEPS].chosen):
            if chosen[row].request == request:
                chosen[row].request = NONE
