"""Data-parallel ranks of one deployment in lockstep (vllm/v1/engine/core.py, `DPEngineCoreProc`).

Experts are spread over the GPUs of all ranks, so that each rank needs the others in each layer: while any rank has
work, all step together, those that have nothing an empty step of one token, and a step takes as long as that of the
slowest. Whether all are idle they ask each other after the first step and after every `dp_sync_interval`; until then
they go on with empty steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.checks import require
from prebleexp.engines.vllm import stepping
from prebleexp.engines.vllm.records import STEPS, Engines
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import decode_s, wave_s
from prebleexp.sim.events import END, key
from prebleexp.sim.events import push as push_event
from prebleexp.sim.records import STEPPING, World
from prebleexp.sim.touching import touch
from prebleexp.sim.types import Setup


class Ranks(NamedTuple):
    size: int
    """GPUs of a deployment, one after the other"""
    first: int
    """GPU of the first deployment"""
    sync_interval: int
    """steps after which all ask each other whether any has work"""
    steps: Any
    """(GPUs,) of a deployment, at its first GPU: since the last pause"""
    own_s: Any
    """(GPUs,) what the step in hand takes of each alone; negative: it has nothing to do"""
    empty: Any
    """(GPUs,) whether the step in hand is an empty one"""


def parallel(setup: Setup, of: Any) -> Ranks:
    """What ranks remember of each other at time 0. Raises InvalidInput for settings that they cannot have."""
    interval, valid = of.prefill_schedule_interval, "1 with hardware.data_parallel_size: ranks would share the count"
    require(interval == 1, "engine.prefill_schedule_interval", interval, valid)
    counts = np.zeros(setup.gpus, np.int64)
    return Ranks(setup.ranks, setup.first, of.dp_sync_interval, counts, np.zeros(setup.gpus), counts.copy())


def __getattr__(name: str) -> Any:
    """All else that an engine has, each rank has as a GPU that steps alone."""
    return getattr(stepping, name)


@compiled
def begin(self: Any, mine: Engines, world: World, g: int, now: float) -> float:
    """All ranks of GPU g's deployment begin a step: the seconds that it takes; negative: they pause."""
    of = mine.parallel
    first = g - (g - of.first) % of.size
    works = False
    for rank in range(first, first + of.size):
        of.own_s[rank] = stepping.begin(self, mine, world, rank, now)
        works = works or of.own_s[rank] >= 0
    asked = of.steps[first] == 1 or of.steps[first] % of.sync_interval == 0
    if not works and asked:
        of.steps[first] = 0
        return -1.0
    of.steps[first] += 1
    seconds = _together(mine, world, first)
    for rank in range(first, first + of.size):
        if rank != g:
            server = world.servers[rank]
            server.stage, server.begun_s, server.ends_s = STEPPING, now, now + seconds
            push_event(world.events, world.control, server.ends_s, key(END, rank))
            touch(world, rank)
    return seconds


@compiled
def _together(mine: Engines, world: World, first: int) -> float:
    """Seconds of a step of all ranks: of the slowest, with what they do in common for the tokens of all."""
    of, slowest, all_tokens = mine.parallel, 0.0, 0
    cost = world.seen.costs[first]
    for rank in range(first, first + of.size):
        of.empty[rank] = int(of.own_s[rank] < 0)
        tokens = 1
        if of.empty[rank] != 0:
            of.own_s[rank] = decode_s(cost, 1, 0, 0, 1)
        else:
            tokens = int(mine.steps[rank, (mine.gpus[rank].begun - 1) % STEPS].computed)
        of.own_s[rank] -= wave_s(cost, tokens * of.size)
        slowest = max(slowest, of.own_s[rank])
        all_tokens += tokens
    seconds = slowest + wave_s(cost, all_tokens)
    for rank in range(first, first + of.size):
        total = world.totals[rank]
        total.wave_steps += 1
        total.empty_steps += of.empty[rank]
        total.paced_s += seconds
        total.stalled_s += slowest - of.own_s[rank]
    return seconds


@compiled
def end(self: Any, mine: Engines, world: World, g: int, now: float) -> None:
    """The results of the step that began last, if it was no empty one."""
    if mine.parallel.empty[g] == 0:
        stepping.end(self, mine, world, g, now)
