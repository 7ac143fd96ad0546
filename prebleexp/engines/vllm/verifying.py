"""What the next step computes of running requests that have drafts: in order of admission, one by one.

A request's known token goes first, and drafts are cut from the end where the budget ends. Blocks are taken for what it
would have were all accepted, and for what is drafted next behind that; they stay when drafts are rejected.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.vllm.drafts import proposed
from prebleexp.engines.vllm.preemption import preempt, victim
from prebleexp.engines.vllm.records import STEPS, Engines
from prebleexp.engines.vllm.steady import last_is_due, not_chosen
from prebleexp.engines.vllm.tables import lengthen, move_on, remember
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, World


@compiled
def verify_one_by_one(mine: Engines, world: World, g: int, step: Any, cap: int) -> int:
    """Returns the budget that is left: to a request that takes slots beside its tokens, none of it is lent."""
    gpu, running, settings, spec = mine.gpus[g], mine.running[g], mine.settings, mine.speculation
    chosen = mine.chosen[g, gpu.scheduled % STEPS]
    budget, at = settings.max_num_batched_tokens - settings.slots, 0
    waits, spec.prefills[g] = settings.fenced, 0
    while at < gpu.running and budget > 0:
        request = int(running[at])
        job = mine.jobs[request]
        if settings.async_scheduling or job.filling != 0:  # calls that are handed all that there is take most of a step
            drafts = 0 if job.filling != 0 else settings.drafts
        else:
            drafts = proposed(spec, request)
        lacks = int(job.known) - int(job.computed) + int(job.expected)
        left_out = last_is_due(job) or (gpu.held_back != 0 and job.filling != 0)
        new = 0 if left_out else min(lacks + drafts, budget, cap if cap > 0 else budget)
        new = min(new, settings.context_length - int(job.computed) - 1)
        if new == 0:
            at += 1
            continue
        if settings.grouped:
            move_on(mine, world, g, request)
        reach = min(int(job.computed) + new + settings.lookahead, settings.context_length)
        need = max(0, -(-reach // settings.block_size) - int(job.blocks))
        while need * settings.tables > gpu.free:
            row = victim(mine, world, g)
            if waits and mine.jobs[running[row]].under_way > 0:
                return budget
            loser = int(running[row])
            gone = not_chosen(mine, g, step, loser) if settings.by_priority else 0
            budget += gone + settings.slots * int(gone > 0)
            preempt(mine, world, g, step, row)
            at -= int(row < at)
            if loser == request:
                break
        if job.running == 0:
            if settings.by_priority:
                continue
            break
        if need > 0:
            step.evicted += lengthen(mine, world, g, request, need)
        full = min(int(job.computed) + new, int(job.known) - settings.key_ahead)
        if full >= (job.keyed + 1) * settings.block_size:
            remember(mine, world, g, request, full)
        spec.prefills[g] |= int(job.filling)
        one = chosen[step.chosen]
        one.request, one.tokens, one.hits = request, new, NONE
        one.samples = 1 + min(drafts, max(0, new - lacks))
        step.chosen += 1
        budget -= new + settings.slots
        at += 1
    return budget
