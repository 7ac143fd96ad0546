"""What the next step computes of running requests: all together if there is enough for all, else one by one.

Steady requests are looked at where something happens to them, and are steady no more where all are scheduled one by one
(see `engines.vllm.steady`).
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.vllm.preemption import preempt, victim
from prebleexp.engines.vllm.records import ANONYMOUS, NEVER, STEPS, Engines
from prebleexp.engines.vllm.steady import (
    begin_steady,
    blocks_of,
    choose,
    computed_of,
    end_steady,
    known_of,
    last_is_due,
    not_chosen,
)
from prebleexp.engines.vllm.tables import cross, go_steadily, lengthen, move_on, remember, wants
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


TOGETHER = 16
"""rows that are looked at with a few instructions for all"""


@compiled
def plan(mine: Engines, g: int, cap: int) -> int:
    """Find the running requests that must be looked at: how many they are. -1: one by one, for the budget or the blocks
    may not suffice for all."""
    gpu, running, due = mine.gpus[g], mine.running[g], mine.due[g]
    budget = mine.settings.max_num_batched_tokens - gpu.steady
    free = int(gpu.free - mine.settings.tables * mine.crossing[g, gpu.scheduled % mine.settings.block_size])
    clock, found = gpu.scheduled, 0
    if budget < 0 or mine.settings.one_by_one:
        return -1
    row = -1
    while True:
        row = _next_due(due, row + 1, gpu.running, clock)
        if row == gpu.running:
            return found if free >= 0 else -1
        job = mine.jobs[running[row]]
        computed, new = computed_of(job, clock), 1
        if job.steady_from == NONE:
            new = _wanted(job, cap, budget)
            budget -= new
            if (
                budget == 0
            ):  # Steady ones behind it would have come before. There are none where whoever is part-way was
                behind = row + 1  # admitted last, as always under fcfs without long_prefill_token_threshold.
                while behind < gpu.running and mine.jobs[running[behind]].steady_from == NONE:
                    behind += 1
                if behind < gpu.running:
                    return -1
        elif computed + 1 >= job.limit:  # not its step any more
            new = 0
            budget += 1
        free -= wants(mine, job, computed, new)
        mine.looked_at[found] = row
        found += 1


@compiled
def _next_due(due: Any, row: int, size: int, clock: int) -> int:
    """The first row from `row` on that is due, or the size. Most are not: look at several at once."""
    while row < size:
        if row + TOGETHER <= size and _least(due[row : row + TOGETHER]) > clock:
            row += TOGETHER
            continue
        if due[row] <= clock:
            break
        row += 1
    return row


@compiled
def first_due(due: Any) -> int:
    """The step in which the first of running requests must be looked at."""
    first, row = NEVER, 0
    while row + TOGETHER <= len(due):
        first = min(first, _least(due[row : row + TOGETHER]))
        row += TOGETHER
    while row < len(due):
        first = min(first, due[row])
        row += 1
    return int(first)


@compiled
def _least(due: Any) -> int:
    """Of `TOGETHER` rows: a slice, in which no index can be negative, so that the compiler takes them all at once."""
    least = due[0]
    for row in range(1, TOGETHER):
        least = min(least, due[row])
    return int(least)


@compiled
def go_on(mine: Engines, world: World, g: int, step: Any, cap: int, looked_at: int) -> int:
    """Running requests, if there is enough for all; returns the budget that is left."""
    gpu, clock = mine.gpus[g], mine.gpus[g].scheduled
    budget = mine.settings.max_num_batched_tokens - gpu.steady
    for at in range(looked_at):
        row = int(mine.looked_at[at])
        request = int(mine.running[g, row])
        job = mine.jobs[request]
        cross(mine, world, g, request)
        if job.steady_from == NONE:
            new = _wanted(job, cap, budget)
            if new == 0:
                continue
            budget -= new
            if job.filling != 0:
                move_on(mine, world, g, request)
                need = max(0, blocks_of(mine, job.computed + new) - job.blocks)
                step.evicted += lengthen(mine, world, g, request, need)
                remember(mine, world, g, request, int(job.computed + new))
                choose(mine, g, clock, request, new, 0, NONE)
                continue
            begin_steady(mine, world, g, request)
        elif computed_of(job, clock) + 1 >= job.limit:
            budget += 1
        look_at(mine, world, g, row)
    step.steady = gpu.steady
    gpu.context += gpu.steady
    if looked_at > 0 or mine.stirred[g, clock % mine.settings.block_size] > 0:
        cross(mine, world, g, NONE)
    return budget


@compiled
def one_by_one(mine: Engines, world: World, g: int, step: Any, cap: int) -> int:
    """The same where the budget or the blocks may not suffice, in order of admission, of whom nobody is steady then."""
    unsettle(mine, world, g)
    gpu, running = mine.gpus[g], mine.running[g]
    budget, at = mine.settings.max_num_batched_tokens, 0
    waits = mine.settings.fenced
    while at < gpu.running and budget > 0:
        request = int(running[at])
        job = mine.jobs[request]
        new = _wanted(job, cap, budget) if gpu.held_back == 0 or job.filling == 0 else 0
        if new == 0:
            at += 1
            continue
        move_on(mine, world, g, request)
        need = max(0, blocks_of(mine, job.computed + new) - job.blocks)
        while need * mine.settings.tables > gpu.free:
            row = victim(mine, world, g)
            if waits and mine.jobs[running[row]].under_way > 0:
                return budget
            loser = int(running[row])
            budget += not_chosen(mine, g, step, loser) if mine.settings.by_priority else 0
            preempt(mine, world, g, step, row)
            at -= int(row < at)
            if loser == request:
                break
        if job.running == 0:
            if mine.settings.by_priority:
                continue
            break
        if need > 0:
            step.evicted += lengthen(mine, world, g, request, need)
        remember(mine, world, g, request, min(job.computed + new, job.known))
        choose(mine, g, gpu.scheduled, request, new, 0, NONE)
        budget -= new
        at += 1
    return budget


@compiled
def _wanted(job: Any, cap: int, budget: int) -> int:
    """Tokens that the next step computes of a request that is not steady."""
    return 0 if last_is_due(job) else min(job.known - job.computed + job.expected, budget, cap if cap > 0 else budget)
