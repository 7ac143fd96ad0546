"""A request gives up (sglang/srt/managers/scheduler.py, `abort_request`), before its first token or, if whoever waited
for it has gone, behind it: what is computed of it goes to the tree. What is under way of it is not looked at any
more."""

from __future__ import annotations

from prebleexp.engines.sglang import queue
from prebleexp.engines.sglang.contexts import give_up
from prebleexp.engines.sglang.records import CHOSEN, DONE, RUNNING, WAITING, Engines
from prebleexp.engines.sglang.running import stop
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, STEPPING, World


@compiled
def leave(mine: Engines, world: World, g: int, request: int) -> int:
    """Whether it has left: 0, if it is in the step in hand, or in one that is scheduled behind that."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    if job.stage == WAITING:
        queue.take_out(mine, g, request)
        gpu.waiting_tokens -= job.prompt + job.generated
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
