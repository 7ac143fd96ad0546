"""Steady requests are looked at where something happens to them, and are steady no more where all are scheduled one by
one (see `engines.vllm.steady`)."""

from __future__ import annotations

from prebleexp.engines.vllm.choosing import choose
from prebleexp.engines.vllm.records import ANONYMOUS, NEVER, STEPS, Engines
from prebleexp.engines.vllm.steady import computed_of, end_steady, known_of
from prebleexp.engines.vllm.tables import go_steadily, remember
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, World


@compiled
def look_at(mine: Engines, world: World, g: int, row: int) -> None:
    """See what the step that is being scheduled is to a steady request, and find the next one to look at it."""
    gpu, request = mine.gpus[g], int(mine.running[g, row])
    job = mine.jobs[request]
    computed = computed_of(job, gpu.scheduled)
    if computed + 1 >= job.limit:  # its last token is under way
        end_steady(mine, world, g, request)
        mine.due[g, row] = NEVER
        return
    steps = min(job.limit - 2 - computed, go_steadily(mine, world, g, request))
    if job.limit - 2 == computed:  # its last step: what the results bring must be looked at as well
        choose(mine, g, gpu.scheduled, request, 0, 0, NONE)
        steps = 1
    if mine.settings.enable_prefix_caching and job.answer != ANONYMOUS:
        remember(mine, world, g, request, min(computed + 1, known_of(job, gpu.over)))
        filled = (job.keyed + 1) * mine.settings.block_size - computed
        steps = min(steps, filled if mine.settings.async_scheduling else filled - 1)
    mine.due[g, row] = gpu.scheduled + steps


@compiled
def unsettle(mine: Engines, world: World, g: int) -> None:
    """Let no request be steady: the next step is scheduled one by one. What is under way of them is listed as well."""
    gpu = mine.gpus[g]
    slot = (gpu.scheduled - 1) % STEPS
    step, chosen = mine.steps[g, slot], mine.chosen[g, slot]
    if gpu.scheduled > gpu.over:
        step.fresh = 0
        for at in range(step.chosen):
            if chosen[at].tokens == 0:
                chosen[at].tokens = 1
                step.steady -= 1
    for row in range(gpu.running):
        request = int(mine.running[g, row])
        steady, ceased = mine.jobs[request].steady_from != NONE, mine.due[g, row] == NEVER
        mine.due[g, row] = 0
        pending = end_steady(mine, world, g, request) if steady else 0
        if steady or ceased:
            remember(mine, world, g, request, int(mine.jobs[request].known) - 1)
            if pending > 0 and mine.jobs[request].computed + 1 < mine.jobs[request].limit:
                choose(mine, g, gpu.scheduled - 1, request, 1, 0, NONE)
                step.steady -= 1
