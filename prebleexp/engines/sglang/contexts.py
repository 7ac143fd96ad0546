"""What requests give the tree, and what they get back: KV of their own, and locks."""

from __future__ import annotations

from prebleexp.engines.sglang.records import Engines
from prebleexp.engines.sglang.running import computed_of
from prebleexp.engines.sglang.tree import insert, lock, unlock
from prebleexp.sim.compiled import compiled
from prebleexp.sim.news import tell
from prebleexp.sim.notices import STORED
from prebleexp.sim.records import World


@compiled
def checkpoint(mine: Engines, world: World, g: int, request: int, end: int) -> None:
    """Give the tree a request's tokens up to `end`, which it locks there."""
    job = mine.jobs[request]
    node, old = _give(mine, world, g, request, end), int(job.lock)
    lock(mine, g, node)
    unlock(mine, g, old)
    job.lock, job.held = node, end


@compiled
def give_up(mine: Engines, world: World, g: int, request: int) -> None:
    """The same for all that it has computed, and it locks nothing any more."""
    job = mine.jobs[request]
    _give(mine, world, g, request, computed_of(mine.gpus[g], job))
    unlock(mine, g, int(job.lock))


@compiled
def hold(mine: Engines, world: World, g: int, request: int) -> None:
    """The same, but it locks it until it was sent."""
    checkpoint(mine, world, g, request, computed_of(mine.gpus[g], mine.jobs[request]))


@compiled
def drop(mine: Engines, g: int, request: int) -> None:
    """What is a request's own is free; what it has in the tree stays there."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    gpu.free += computed_of(gpu, job) - job.held
    unlock(mine, g, int(job.lock))


@compiled
def _give(mine: Engines, world: World, g: int, request: int, end: int) -> int:
    """Its own copies of what is there already are free; returns the node that ends there."""
    found, node = insert(mine, world, g, request, end)
    mine.gpus[g].free += found - mine.jobs[request].held
    if world.told.hears[STORED] != 0:
        tell(world, STORED, request, g, end)
    return node
