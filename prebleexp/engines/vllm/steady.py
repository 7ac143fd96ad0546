"""Running requests that decode steadily: every step computes a token of each, and nothing is kept up to date of them.

What such a request has computed follows from the number of steps since, so a step costs what happens in it, and not as
much as requests run. Blocks are taken for all that need one in this step together: those whose `phase` it is. Blocks
that generated tokens fill are cached when somebody could find them: at once if later prompts may contain the answer,
else when the request ceases to be steady, since nobody but itself would look for them. A request is looked at in its
last step, and in the one behind it, if that is scheduled before the results are there.

What a step computes of each other request that it chooses is listed.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.vllm.phases import link, unlink
from prebleexp.engines.vllm.records import STEPS, Engines
from prebleexp.sim.compiled import compiled
from prebleexp.sim.gaps import token
from prebleexp.sim.pools import request_of
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
    """Whether no block is to be taken for a request any more: it has them for all that it will ever compute."""
    return bool(job.blocks * mine.settings.block_size + 1 >= job.limit)


@compiled
def begin_steady(mine: Engines, world: World, g: int, request: int) -> None:
    """From the step on that is being scheduled."""
    gpu, job, slot = mine.gpus[g], mine.jobs[request], mine.gpus[g].scheduled % STEPS
    if job.expected == 0 and world.gaps.last_s[request_of(world, request)] != gpu.step_ended_s:
        mine.fresh[g, slot, mine.steps[g, slot].fresh] = request
        mine.steps[g, slot].fresh += 1
    job.steady_from = gpu.scheduled
    gpu.steady += 1
    gpu.context += job.computed
    mine.crossing[g, (gpu.scheduled - job.computed) % mine.settings.block_size] += int(not is_whole(mine, job))
    link(mine, world, g, request)


@compiled
def end_steady(mine: Engines, world: World, g: int, request: int) -> int:
    """Write down what it has before the step that is being scheduled. Returns how many of its steps are not over."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    unlink(mine, world, g, request)
    computed, known = computed_of(job, gpu.scheduled), known_of(job, gpu.over)
    pending = (computed - int(job.computed)) - (known - int(job.known))
    if known > job.known:
        world.jobs[request].latency_s = gpu.step_ended_s - world.seen.requests[request].arrival_s
        world.gaps.last_s[request_of(world, request)] = gpu.step_ended_s
    whole = is_whole(mine, job)
    mine.crossing[g, (gpu.scheduled - computed) % mine.settings.block_size] -= int(not whole)
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
def show_each(mine: Engines, world: World, g: int, slot: int, now: float) -> None:
    """A step is over: all that decode steadily in it have a token, one by one."""
    gpu, step = mine.gpus[g], mine.steps[g, slot]
    for row in range(gpu.running):
        request = int(mine.running[g, row])
        if mine.jobs[request].steady_from != NONE and mine.jobs[request].steady_from < gpu.begun:
            token(world.gaps, request, now)
    for row in range(step.chosen):
        one = mine.chosen[g, slot, row]
        if one.tokens == 0 and mine.jobs[one.request].steady_from == NONE and mine.jobs[one.request].finished == 0:
            token(world.gaps, int(one.request), now)


@compiled
def choose(mine: Engines, g: int, number: int, request: int, tokens: int, drafts: int, hits: int) -> None:
    """List a request for step `number`. Whether its tokens bring one is seen when the step is whole."""
    step = mine.steps[g, number % STEPS]
    one = mine.chosen[g, number % STEPS, step.chosen]
    one.request, one.tokens, one.samples, one.hits = request, tokens, 1 + drafts, hits
    step.chosen += 1
    step.quiet = 0  # nor is one that was, where requests are listed afterwards


@compiled
def not_chosen(mine: Engines, g: int, step: Any, request: int) -> int:
    """Take a request out of the step, if it is in it; returns its tokens."""
    chosen = mine.chosen[g, mine.gpus[g].scheduled % STEPS]
    for row in range(step.chosen):
        if chosen[row].request == request:
            tokens = int(chosen[row].tokens)
            step.chosen -= 1
            for other in range(row, step.chosen):
                chosen[other] = chosen[other + 1]
            return tokens
    return 0


@compiled
def blocks_of(mine: Engines, tokens: int) -> int:
    """that hold so many tokens"""
    return -(-tokens // mine.settings.block_size)
