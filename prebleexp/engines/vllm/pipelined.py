"""A pipeline of stages, through which several batches go at once (vllm/v1/engine/core.py, `step_with_batch_queue`).

As many batches are under way as there are stages. Another one is scheduled as long as there are fewer and there is
anybody to schedule; else the engine waits for the results of the oldest. A request that decodes is in one of them at a
time, and a prompt's chunks may be in several. Each stage has a batch at a time, for its share of the step, and passes
it on over a link.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.checks import require
from prebleexp.engines.vllm import stepping
from prebleexp.engines.vllm.publishing import publish
from prebleexp.engines.vllm.records import STEPS, Engines
from prebleexp.engines.vllm.scheduling import busy, schedule
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import World
from prebleexp.sim.types import Setup


class Pipeline(NamedTuple):
    stages: int
    host_s: float
    """of the host before a batch enters; hidden while the first stage has another"""
    free_s: Any
    """(GPUs, stages) when each stage is done with what has entered"""
    done_s: Any
    """(GPUs, `STEPS`) when each batch will be over"""


def parallel(setup: Setup, of: Any) -> Pipeline:
    """At time 0."""
    return Pipeline(setup.stages, of.host_step_s, np.zeros((setup.gpus, setup.stages)), np.zeros((setup.gpus, STEPS)))


def check(of: Any) -> None:
    """Raises InvalidInput for settings that a pipeline cannot have."""
    drafts, where = of.speculative_config, "with hardware.pipeline_parallel_size"
    valid = f"null {where}: drafts are not modelled there"
    require(not drafts.drafts, "engine.speculative_config.method", drafts.method, valid)
    valid = f"false {where}: as many batches are under way as there are stages, and no more"
    require(not of.async_scheduling, "engine.async_scheduling", True, valid)
    valid = f"true or null {where}: all layers keep all of a context there"
    disabled = of.disable_hybrid_kv_cache_manager
    require(disabled is not False, "engine.disable_hybrid_kv_cache_manager", disabled, valid)


def __getattr__(name: str) -> Any:
    """All else is as of a GPU that has a batch at a time."""
    return getattr(stepping, name)


@compiled
def begin(self: Any, mine: Engines, world: World, g: int, now: float) -> float:
    """Seconds until the oldest batch is over; negative: there is nothing to do."""
    gpu, of = mine.gpus[g], mine.parallel
    while True:
        more = True
        while more and gpu.scheduled - gpu.begun < of.stages and busy(gpu):
            schedule(mine, world, g, now)
            more = mine.steps[g, (gpu.scheduled - 1) % STEPS].requests > 0
            if more:
                _enter(mine, world, g, now)
        if gpu.scheduled == gpu.begun:
            return -1.0
        slot = gpu.begun % STEPS
        step = mine.steps[g, slot]
        gpu.begun += 1
        stepping.count(mine, world, g, step)
        if step.requests > 0:
            publish(mine, world, g)
            left_s, speed = float(of.done_s[g, slot] - now), float(world.servers[g].speed)
            world.totals[g].paced_s += left_s
            world.totals[g].stalled_s += left_s - step.seconds / of.stages / speed
            return left_s * speed
        gpu.over = gpu.begun
        step.free_after = gpu.free


@compiled
def _enter(mine: Engines, world: World, g: int, now: float) -> None:
    """The batch that was scheduled last enters the first stage as soon as that is free."""
    gpu, of, cost = mine.gpus[g], mine.parallel, world.seen.costs[g]
    slot = (gpu.scheduled - 1) % STEPS
    step = mine.steps[g, slot]
    stage_s = step.seconds / of.stages / world.servers[g].speed
    handoff_s = cost.handoff_s + cost.handoff_token_s * step.computed
    at = now + of.host_s
    for stage in range(of.stages):
        if gpu.scheduled - gpu.begun > 1:
            at = max(at, of.free_s[g, stage])
        at += stage_s
        of.free_s[g, stage] = at
        if stage + 1 < of.stages:
            at += handoff_s
    of.done_s[g, slot] = at
