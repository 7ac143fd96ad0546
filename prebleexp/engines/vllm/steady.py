"""Running requests that decode steadily: every step computes a token of each, and nothing is kept up to date of them.

What such a request has computed follows from the number of steps since, so a step costs what happens in it, and not as
much as requests run. Blocks are taken for all that need one in this step together: those whose `phase` it is. Blocks
that generated tokens fill are cached when somebody could find them: at once if later prompts may contain the answer,
else when the request ceases to be steady, since nobody but itself would look for them. A request is looked at in its
last step, and in the one behind it, if that is scheduled before the results are there.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.vllm.blocks import remember
from prebleexp.engines.vllm.choosing import choose
from prebleexp.engines.vllm.records import ANONYMOUS, NEVER, STEPS, Engines
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, World


@compiled
def computed_of(job: Any, step: int) -> int:
    """Positions of a request that are scheduled before this step."""
    return int(job.computed) + (step - int(job.steady_from) if job.steady_from != NONE else 0)


@compiled
def known_of(job: Any, over: int) -> int:
    """Tokens that it has when so many steps of its GPU are over."""
    return int(job.known) + (max(0, over - int(job.steady_from)) if job.steady_from != NONE else 0)


@compiled
def last_is_due(job: Any) -> bool:
    """Whether the last token of a request that is not steady is under way."""
    return bool(job.expected > 0 and job.computed - job.expected + 2 >= job.limit)


@compiled
def is_whole(mine: Engines, job: Any) -> bool:
    """Whether a request has blocks for all that it will ever compute."""
    return bool(job.blocks * mine.settings.block_size + 1 >= job.limit)


@compiled
def begin_steady(mine: Engines, g: int, request: int) -> None:
    """From the step on that is being scheduled."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    job.steady_from = gpu.scheduled
    gpu.steady += 1
    gpu.context += job.computed
    mine.crossing[g, _phase(mine, gpu.scheduled - job.computed)] += int(not is_whole(mine, job))


@compiled
def end_steady(mine: Engines, world: World, g: int, request: int) -> int:
    """Write down what it has before the step that is being scheduled. Returns how many of its steps are not over."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    computed, known = computed_of(job, gpu.scheduled), known_of(job, gpu.over)
    pending = (computed - int(job.computed)) - (known - int(job.known))
    if known > job.known:
        world.jobs[request].latency_s = gpu.step_ended_s - world.seen.requests[request].arrival_s
    whole = is_whole(mine, job)
    mine.crossing[g, _phase(mine, gpu.scheduled - computed)] -= int(not whole)
    gpu.steady -= 1
    gpu.context -= computed
    job.computed, job.known, job.steady_from = computed, known, NONE
    if not whole:
        job.blocks = -(-computed // mine.settings.block_size)
    job.under_way += pending
    if mine.settings.async_scheduling:
        job.expected += pending
    return pending


@compiled
def _phase(mine: Engines, step: int) -> int:
    """Which of the steps that need a block, counted in a circle."""
    return step % mine.settings.block_size


@compiled
def crossing(mine: Engines, g: int) -> int:
    """How many steady requests need a block for the step that is being scheduled."""
    return int(mine.crossing[g, _phase(mine, mine.gpus[g].scheduled)])


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
    steps = job.limit - 2 - computed
    if steps == 0:  # its last step: what the results bring must be looked at as well
        choose(mine, g, gpu.scheduled, request, 0, NONE)
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
                choose(mine, g, gpu.scheduled - 1, request, 1, NONE)
                step.steady -= 1
