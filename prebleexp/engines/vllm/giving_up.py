"""A request gives up (vllm/v1/core/sched/scheduler.py, `finish_requests`), before its first token or, if whoever waited
for it has gone, behind it: its blocks are given back, and those that are cached stay so. What is under way of it is not
looked at any more."""

from __future__ import annotations

from prebleexp.engines.vllm import reading
from prebleexp.engines.vllm.hearing import unheard
from prebleexp.engines.vllm.passed import waits_no_more
from prebleexp.engines.vllm.records import LOADED, PULLED, PULLS, STEPS, Engines
from prebleexp.engines.vllm.steady import end_steady
from prebleexp.engines.vllm.tables import release
from prebleexp.sim.compiled import compiled
from prebleexp.sim.plug import call_none
from prebleexp.sim.pools import is_loading
from prebleexp.sim.pulling import RESERVED
from prebleexp.sim.records import NONE, STEPPING, World
from prebleexp.sim.tiers import TIERS


@compiled
def leave(mine: Engines, world: World, g: int, request: int) -> int:
    """Whether it has left: 0, if it is in the step in hand."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    if job.running == 0 or world.servers[g].stage != STEPPING:
        call_none(world.engines[g].part, world.engines[g].own, world, request, world.control.now)
    if job.running == 0:  # whoever is done is passed over when its turn comes
        stop_waiting(mine, world, g, request)
        job.finished = 1
        return 1
    if world.servers[g].stage == STEPPING:
        return 0
    if job.steady_from != NONE:
        _not_steady(mine, world, g, request)
    else:
        _not_last(mine, g, request)
    gpu.generated -= job.known - world.seen.requests[request].prompt_tokens
    if job.filling != 0:
        gpu.waiting_tokens -= job.known - job.computed
    release(mine, g, request)
    job.finished, gpu.flush = 1, 1
    return 1


@compiled
def stop_waiting(mine: Engines, world: World, g: int, request: int) -> None:
    """Whoever does not run is not counted any more, and has no blocks."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    waits_no_more(mine, world, g, request)
    reading.lacks_no_more(mine, world, g, request)
    under_way = world.jobs[request].state == RESERVED or unheard(mine, g, request)
    if under_way:
        gpu.reserved -= 1
    else:
        gpu.queued -= 1
    if job.filling not in (PULLS, PULLED):
        loaded = world.tiers.ends[TIERS - 1, request] if job.filling == LOADED else 0
        gpu.waiting_tokens -= job.known - min(loaded * mine.settings.block_size, job.known - 1)
    if job.blocks > 0 and not is_loading(world, request):  # what a load writes to is held until that is heard of
        release(mine, g, request)


@compiled
def _not_last(mine: Engines, g: int, request: int) -> None:
    """Nor in the step that brings the last token of one that was steady, and is counted as such there."""
    gpu = mine.gpus[g]
    for number in range(int(gpu.over), gpu.scheduled):
        step, chosen = mine.steps[g, number % STEPS], mine.chosen[g, number % STEPS]
        for row in range(step.chosen):
            if chosen[row].request == request and chosen[row].tokens == 0:
                step.steady -= 1
                chosen[row].tokens = 1


@compiled
def _not_steady(mine: Engines, world: World, g: int, request: int) -> None:
    """Nor in the steps that are scheduled and not over, where it counts as one that is listed."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    for number in range(max(int(job.steady_from), int(gpu.over)), gpu.scheduled):
        step, chosen = mine.steps[g, number % STEPS], mine.chosen[g, number % STEPS]
        step.steady -= 1
        for row in range(step.chosen):
            if chosen[row].request == request:
                chosen[row].tokens = 1
    end_steady(mine, world, g, request)
