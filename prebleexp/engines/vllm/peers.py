"""What other GPUs have of a context, in their caches or their hosts' memory, and lend to the GPU where it is wanted.

A GPU's cache has blocks as soon as a step that computes them is scheduled; others may have them when it is over. What
is lent stays where it is until it has arrived. GPUs may be of several kinds, each with an engine of its own: what one
wants of another it asks of that one's engine.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.vllm import blocks
from prebleexp.engines.vllm.blocks import found_until, hold_between, key_of, most_of
from prebleexp.engines.vllm.copies import copy_of_gpu
from prebleexp.engines.vllm.publishing import publish
from prebleexp.engines.vllm.records import STEPS, Engines
from prebleexp.sim.compiled import compiled
from prebleexp.sim.keeping import touch
from prebleexp.sim.plug import call_int, call_none
from prebleexp.sim.records import DOWN, NONE, World
from prebleexp.sim.tiers import HOST, pin, unpin
from prebleexp.sim.waking import wake


# ---------------------------------------------------------------- the GPU where it is wanted
@compiled
def find(mine: Engines, world: World, request: int, low: int) -> int:
    """Until where another GPU has blocks of a context from `low` on: the one that has most, of equals the first; its
    cache, if its host has no more."""
    g, most, until = int(world.seen.requests[request].gpu), most_of(mine, request), low
    one = world.tiers.fetches[request]
    for other in range(len(world.live)):
        if other != g:
            engine = world.engines[other]
            here = call_int(engine.has, engine.own, world, other, request, most)
            there = _copied_until(mine, world, other, request, low, most)
            if max(here, there) > until:
                until, one.peer, one.copied = max(here, there), other, int(there > here)
    return until


@compiled
def borrow(mine: Engines, world: World, request: int, low: int, high: int) -> None:
    """The blocks stay where `find` found them."""
    one = world.tiers.fetches[request]
    if one.copied != 0:
        for block in range(high - 1, low - 1, -1):
            copy = copy_of_gpu(mine, world, HOST, int(one.peer), request, 0, block)
            pin(world.tiers, copy)
            touch(world.tiers, copy)
        return
    engine = world.engines[one.peer]
    call_none(engine.lend, engine.own, world, request, low, high)


@compiled
def give_back(mine: Engines, world: World, request: int, low: int, high: int) -> None:
    """They have arrived, or will not."""
    one = world.tiers.fetches[request]
    if one.copied != 0:
        for block in range(low, high):
            unpin(world.tiers, copy_of_gpu(mine, world, HOST, int(one.peer), request, 0, block))
        return
    engine = world.engines[one.peer]
    call_none(engine.take_back, engine.own, world, request, world.control.now)


@compiled
def _copied_until(mine: Engines, world: World, g: int, request: int, low: int, most: int) -> int:
    """Until where a GPU's host has a context from block `low` on, but for what is on its way there."""
    until = low
    while until < most:
        copy = copy_of_gpu(mine, world, HOST, g, request, 0, until)
        if copy == NONE or world.tiers.copies[copy].store != NONE:
            break
        until += 1
    return until


# ---------------------------------------------------------------- the GPU that lends
@compiled
def has(self: Any, mine: Engines, world: World, g: int, request: int, most: int) -> int:
    """How many of a context's first blocks a GPU's cache has, of which no step under way computes any."""
    gpu, until = mine.gpus[g], found_until(mine, world, g, request, most)
    for step in range(gpu.over, gpu.scheduled):
        slot = step % STEPS
        for row in range(mine.steps[g, slot].chosen):
            until = min(until, _begins(mine, world, int(mine.chosen[g, slot, row].request), request, until))
    return until


@compiled
def lend(self: Any, mine: Engines, world: World, request: int, low: int, high: int) -> None:
    """Let blocks that a request has found in this cache stay there."""
    one = world.tiers.fetches[request]
    one.holds = NONE
    hold_between(mine, world, int(one.peer), request, one, low, high, 0)
    publish(mine, world, int(one.peer))


@compiled
def take_back(self: Any, mine: Engines, world: World, request: int, now: float) -> None:
    """They need not stay any more."""
    one = world.tiers.fetches[request]
    blocks.give_back(mine, int(one.peer), one)
    if world.servers[one.peer].stage != DOWN:
        publish(mine, world, int(one.peer))
        wake(world, int(one.peer))


@compiled
def _begins(mine: Engines, world: World, other: int, request: int, until: int) -> int:
    """The first block that a step under way computes for another request, if it is one of the context's too."""
    job, size = mine.jobs[other], mine.settings.block_size
    if job.finished != 0:
        return until
    begin, end = 0, int(job.known) // size  # of one that was preempted, nobody knows
    if job.running != 0:
        begin, end = int(job.computed - job.under_way) // size, min(int(job.computed), int(job.known)) // size
    shared = begin < min(end, until) and key_of(mine, world, other, begin) == key_of(mine, world, request, begin)
    return begin if shared else until
