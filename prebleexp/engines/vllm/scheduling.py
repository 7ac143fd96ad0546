"""vLLM's V1 scheduler: what the next step computes (vllm/v1/core/sched/scheduler.py, `schedule`).

There is no prefill phase and no decode phase. A request knows some tokens, of which some are computed; running requests
get, in order of admission, what the step's budget leaves of the rest, and then waiting ones are admitted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.engines.largest import keep_largest
from prebleexp.engines.vllm.admission import admit
from prebleexp.engines.vllm.records import STEPS, Engines
from prebleexp.engines.vllm.running import go_on, plan
from prebleexp.engines.vllm.running import one_by_one as without_drafts
from prebleexp.engines.vllm.tables import held, tokens_of, write_held
from prebleexp.engines.vllm.verifying import verify_one_by_one
from prebleexp.sim.compiled import chosen_by, compiled
from prebleexp.sim.cost import decode_s, request_ms, step_s
from prebleexp.sim.plug import call_int, call_none
from prebleexp.sim.records import NONE, World

one_by_one = chosen_by("speculation", without_drafts, verify_one_by_one)


@compiled
def busy(gpu: Any) -> bool:
    """Whether there is anything to schedule."""
    return bool(gpu.queued > 0 or gpu.running > 0 or gpu.flush != 0 or gpu.news != NONE or gpu.stored != NONE)


@compiled
def _at_any_time(mine: Engines, world: World, g: int, now: float) -> None:
    gpu = mine.gpus[g]
    if gpu.moving != NONE:
        call_none(world.engines[g].stop, world.engines[g].own, world, g, now)
    step = mine.steps[g, gpu.scheduled % STEPS]
    empty(step, now)
    cap = mine.settings.long_prefill_token_threshold if gpu.running + gpu.queued + gpu.reserved > 1 else 0
    gpu.flush = gpu.quiet_until = 0
    looked_at = plan(mine, g, cap)
    budget = go_on(mine, world, g, step, cap, looked_at) if looked_at >= 0 else one_by_one(mine, world, g, step, cap)
    if step.preempted == 0:
        admit(mine, world, g, step, cap, budget)
    step.free, step.waiting, step.running = gpu.free, gpu.queued + gpu.reserved, gpu.running
    if not mine.settings.hears_at_results:
        step.news, step.last_news, gpu.news = gpu.news, gpu.last_news, NONE
        step.stored, step.last_stored, gpu.stored = gpu.stored, gpu.last_stored, NONE
    seconds = max(0.0, account(mine, world, g, step))  # a fitted cost may be negative somewhere
    step.seconds = seconds + mine.settings.host_s if step.requests > 0 else 0.0
    step.counts = int(step.requests > 0 or step.preempted > 0 or step.reserved > 0)
    step.quiet = int(step.requests > 0 and step.chosen + step.preempted + step.reserved == 0)
    if world.rules.watched:
        _write_down(mine, g, step)
    gpu.scheduled += 1
    call_int(world.engines[g].offload, world.engines[g].own, world, g, now)


@compiled
def empty(step: Any, now: float) -> None:
    """A step that is scheduled now, and of which nothing is chosen yet."""
    step.scheduled_s = now
    step.requests = step.steady = step.chosen = step.admitted = 0
    step.preempted = step.finished = step.fresh = step.evicted = step.reserved = step.heard = 0
    step.computed = step.prefilled = step.hits = step.recomputed = step.dropped = step.refused = 0
    step.news, step.stored, step.waits, step.waited_s = NONE, NONE, 0, 0.0


@compiled
def _account(mine: Engines, world: World, g: int, step: Any) -> float:
    """The chosen tokens count as computed; returns the seconds that the model takes for them."""
    gpu, cost = mine.gpus[g], world.seen.costs[g]
    chosen = mine.chosen[g, gpu.scheduled % STEPS]
    prefills, new, length, milliseconds = 0, 0, 0, 0.0
    running, context = int(step.steady), int(gpu.context)
    for row in range(step.chosen):
        one = chosen[row]
        job, tokens = mine.jobs[one.request], int(one.tokens)
        if tokens == 0:
            continue
        job.computed += tokens
        job.under_way += tokens
        one.samples *= int(job.computed >= job.known + job.expected)
        if job.filling == 0:
            running += 1
            context += int(job.computed)
            new += tokens - 1
        else:
            prefills += 1
            new += tokens
            length += int(job.computed)
            milliseconds += request_ms(cost, tokens, int(job.computed))
            gpu.waiting_tokens -= tokens - max(0, int(one.samples) - 1)
            prompt = int(world.seen.requests[one.request].prompt_tokens)
            step.prefilled += max(0, min(prompt, int(job.computed)) - int(job.computed - tokens))
            job.filling = int(one.samples == 0)
        if mine.settings.async_scheduling:
            job.expected += one.samples
    step.requests = running + prefills
    if step.requests == 0:
        return 0.0
    step.computed = new + running
    used = tokens_of(mine, mine.settings.blocks - gpu.unkeyed)
    world.totals[g].peak_kv_tokens = max(world.totals[g].peak_kv_tokens, used)
    keep_largest(world.totals[g], running, context)
    unique = min(length + context, held(mine, g))
    if prefills + new == 0:
        return float(decode_s(cost, running, context, unique, 1))
    return float(step_s(cost, prefills, new, length, running, context, unique, milliseconds))


@compiled
def _account_with_drafts(mine: Engines, world: World, g: int, step: Any) -> float:
    """The same, and what is drafted behind them: the first pass goes through all tokens of the step, each further one
    through one of each request that samples."""
    seconds, cost, sampling, theirs = _account(mine, world, g, step), world.seen.costs[g], 0, 0
    for row in range(step.chosen if step.requests > 0 else 0):
        one = mine.chosen[g, mine.gpus[g].scheduled % STEPS, row]
        if one.samples != 0:
            sampling += 1
            theirs += int(mine.jobs[one.request].computed)
            world.totals[g].drafted_tokens += one.samples - 1
    if sampling > 0:
        passes = (mine.settings.drafts - 1) * decode_s(cost, sampling, theirs, min(theirs, held(mine, g)), 1)
        seconds += mine.settings.draft_cost * (seconds + passes)
    return float(seconds)


account = chosen_by("speculation", _account, _account_with_drafts)


@compiled
def _write_down(mine: Engines, g: int, step: Any) -> None:
    """All that a step computes, in the order in which it was chosen, for those who watch."""
    slot = mine.gpus[g].scheduled % STEPS
    chosen, whole, at, size = mine.chosen[g, slot], mine.whole[g, slot], 0, 0
    for row in range(mine.gpus[g].running):
        request = int(mine.running[g, row])
        while at < step.chosen and chosen[at].tokens == 0:
            at += 1
        if mine.jobs[request].steady_from != NONE:
            one = whole[size]
            one.request, one.tokens, one.samples, one.hits = request, 1, 1, NONE
            write_held(mine, g, size, request)
            size += 1
        elif at < step.chosen and chosen[at].request == request:
            whole[size] = chosen[at]
            write_held(mine, g, size, request)
            size += 1
            at += 1


# ---------------------------------------------------------------- prompts in every so many steps
class Cadence(NamedTuple):
    """vLLM's `prefill_schedule_interval`: a step leaves out prompts, whole ones and chunks, if fewer steps than that
    were executed since the last one with any, if anybody decodes, and unless the last step that could have prompts left
    somebody waiting."""

    interval: int
    executed: Any
    """(GPUs,) steps that computed anything"""
    last: Any
    """(GPUs,) how many these were with the last one that had a prompt"""
    bound: Any
    """(GPUs,) whether the last step that could have prompts left somebody waiting"""
    part: Any
    """(n,) whether each request was part-way in its prompt before the step"""
    passed: Any
    """(GPUs,) waiting requests that were passed over: see `engines.vllm.passed`"""
    was_passed: Any
    """(n,) whether each is one of them"""


def cadence(gpus: int, requests: int, interval: int) -> Cadence | None:
    """None: every step may have prompts."""
    if interval == 1:
        return None
    last = np.full(gpus, -interval, np.int64)
    zeros = [np.zeros(size, np.int64) for size in (gpus, gpus, requests, gpus, requests)]
    return Cadence(interval, zeros[0], last, *zeros[1:])


@compiled
def _at_intervals(mine: Engines, world: World, g: int, now: float) -> None:
    gpu, of, decodes = mine.gpus[g], mine.cadence, False
    for row in range(gpu.running):
        request = int(mine.running[g, row])
        of.part[request] = mine.jobs[request].filling
        decodes |= mine.jobs[request].filling == 0
    early = of.executed[g] + 1 - of.last[g] < of.interval
    gpu.held_back = int(early and decodes and of.bound[g] == 0)
    _at_any_time(mine, world, g, now)
    slot = (gpu.scheduled - 1) % STEPS
    step, has = mine.steps[g, slot], False
    for row in range(step.chosen):
        one = mine.chosen[g, slot, row]
        before = int(mine.jobs[one.request].known) - 1
        has |= of.part[one.request] != 0 if one.hits == NONE else one.hits < before
    if step.preempted == 0 and gpu.held_back == 0:
        of.bound[g] = int(gpu.queued > of.passed[g])
    of.executed[g] += int(step.requests > 0)
    if has:
        of.last[g] = of.executed[g]


schedule = chosen_by("cadence", _at_any_time, _at_intervals)
"""choose the next step's requests"""
