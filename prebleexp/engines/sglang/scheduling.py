"""SGLang's scheduler: what the next step computes (sglang/srt/managers/scheduler.py, `get_next_batch_to_run`).

A prefill if there can be one, else a decode. A request whose prefill was scheduled last decodes from the next one on.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.sglang.contexts import checkpoint
from prebleexp.engines.sglang.decoding import decode
from prebleexp.engines.sglang.prefilling import prefill
from prebleexp.engines.sglang.records import DONE, STEPS, Engines
from prebleexp.engines.sglang.running import run
from prebleexp.sim.compiled import compiled
from prebleexp.sim.plug import call_none
from prebleexp.sim.pools import decodes, prefills
from prebleexp.sim.records import NONE, World


@compiled
def schedule(mine: Engines, world: World, g: int, now: float) -> bool:
    """Choose the next step's requests; whether there are any."""
    gpu = mine.gpus[g]
    slot = gpu.scheduled % STEPS
    step = mine.steps[g, slot]
    step.scheduled_s = now
    step.chosen = step.retracted = 0
    if gpu.part_way != NONE:
        job = mine.jobs[gpu.part_way]
        checkpoint(mine, world, g, int(gpu.part_way), int(job.computed))
        job.cached = job.computed
    if decodes(world, g):
        call_none(world.engines[g].reserve, world.engines[g].own, world, g, now)
    if gpu.joins != 0:
        _join(mine, world, g)
    if not decodes(world, g) and prefill(mine, world, g, step):
        step.prefill = gpu.joins = 1
    elif decode(mine, world, g, step):
        step.prefill = 0
    else:
        return False
    step.free, step.evictable, step.ratio, step.waiting = gpu.free, gpu.evictable, gpu.ratio, gpu.queued
    total = world.totals[g]
    total.peak_kv_tokens = max(total.peak_kv_tokens, mine.settings.kv_tokens - gpu.free)
    if world.rules.watched:
        _write_down(mine, g, step, slot)
    gpu.scheduled += 1
    return True


@compiled
def _join(mine: Engines, world: World, g: int) -> None:
    """The last prefill's requests decode from now on, but for those done and the one that goes on with its prompt. On a
    GPU for prompts nobody does."""
    gpu = mine.gpus[g]
    slot = (gpu.scheduled - 1) % STEPS
    last, chosen, was = mine.steps[g, slot], mine.chosen[g, slot], gpu.running
    for row in range(last.chosen):
        request = int(chosen[row].request)
        if request != last.part_way and mine.jobs[request].stage != DONE and not prefills(world, g):
            run(mine, g, request, int(mine.settings.overlap))  # its first token is not known yet
    if gpu.running - was < last.chosen or was == 0:
        gpu.full = 0
    gpu.joins = 0


@compiled
def _write_down(mine: Engines, g: int, step: Any, slot: int) -> None:
    """All that a step computes, in order, for those who watch."""
    gpu, whole = mine.gpus[g], mine.whole[g, slot]
    if step.prefill != 0:
        for row in range(step.chosen):
            whole[row] = mine.chosen[g, slot, row]
        return
    request, row = int(gpu.first_running), 0
    while request != NONE:
        job, one = mine.jobs[request], whole[row]
        one.request, one.tokens, one.begin = request, 1, job.computed + gpu.decodes - job.joined - 1
        request, row = int(job.behind), row + 1
