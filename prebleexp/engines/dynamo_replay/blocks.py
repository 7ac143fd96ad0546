"""A worker's blocks of KV: held, cached with nobody who holds them, or unused.

There may be several copies of a block; a lookup takes the oldest. Blocks that a request gives back are evicted from its
last one on, and after all that were given back before.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.dynamo_replay.records import Sim
from prebleexp.sim.children import child_of, remove_child, set_child
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE


@compiled
def key_of(sim: Sim, request: int, block: int) -> int:
    """What a request's block is called once it is full."""
    one = sim.requests[request]
    if block < one.prompt // sim.rules.block_size:
        return int(sim.keys[one.first_key + block])
    return int(one.own_key + block)


@compiled
def cached(sim: Sim, w: int, request: int, most: int) -> int:
    """How many of a request's first blocks a worker has, of at most so many."""
    at = 0
    while at < most and child_of(sim.pool, w, key_of(sim, request, at)) != NONE:
        at += 1
    return at


@compiled
def fits(sim: Sim, w: int, request: int, hits: int, blocks: int) -> bool:
    """Whether a worker has room for so many blocks of a request, the first `hits` of which it has."""
    worker, idle = sim.workers[w], 0
    if worker.used + blocks <= worker.blocks:
        return True
    for i in range(hits):
        idle += sim.pool.blocks[child_of(sim.pool, w, key_of(sim, request, i))].holders == 0
    return blocks - hits <= worker.blocks - worker.used - idle


@compiled
def hold(sim: Sim, w: int, request: int, blocks: Any, first: int, hits: int) -> None:
    """Let a request hold the blocks that it shares: they are put in its list of blocks, from `first` on."""
    worker = sim.workers[w]
    for i in range(hits):
        at = child_of(sim.pool, w, key_of(sim, request, i))
        block = sim.pool.blocks[at]
        if block.holders == 0:
            _leave_queue(sim, w, at)
            worker.used += 1
        block.holders += 1
        blocks[first + i] = at


@compiled
def take(sim: Sim, w: int, blocks: Any, first: int, number: int) -> None:
    """So many blocks for a request, which `fits`: unused ones, then those that were idle for longest."""
    worker = sim.workers[w]
    for i in range(number):
        at = int(worker.unused)
        if at != NONE:
            worker.unused = sim.pool.blocks[at].behind
        else:
            at = int(worker.oldest)
            _leave_queue(sim, w, at)
            _forget(sim, w, at)
            sim.totals[w].evicted_tokens += sim.rules.block_size
        block = sim.pool.blocks[at]
        block.key, block.holders = NONE, 1
        blocks[first + i] = at
    worker.used += number
    sim.totals[w].peak_kv_tokens = max(sim.totals[w].peak_kv_tokens, worker.used * sim.rules.block_size)


@compiled
def remember(sim: Sim, w: int, request: int, blocks: Any, first: int, low: int, high: int) -> None:
    """Cache blocks low … high − 1 of a request's."""
    for i in range(low, high):
        at, key = int(blocks[first + i]), key_of(sim, request, i)
        block, oldest = sim.pool.blocks[at], child_of(sim.pool, w, key)
        block.key = key
        if oldest == NONE:
            block.older = block.newer = at
            set_child(sim.pool, w, key, at)
        else:  # in a ring, before the oldest is behind the newest
            newest = int(sim.pool.blocks[oldest].older)
            block.older, block.newer = newest, oldest
            sim.pool.blocks[newest].newer = sim.pool.blocks[oldest].older = at


@compiled
def give_back(sim: Sim, w: int, blocks: Any, first: int, number: int) -> None:
    """A request's blocks, from the last on."""
    worker = sim.workers[w]
    for i in range(number - 1, -1, -1):
        at = int(blocks[first + i])
        block = sim.pool.blocks[at]
        block.holders -= 1
        if block.holders > 0:
            continue
        worker.used -= 1
        if block.key != NONE:
            _join_queue(sim, w, at)
        else:
            block.behind = worker.unused
            worker.unused = at


@compiled
def _forget(sim: Sim, w: int, at: int) -> None:
    """A copy of a block is no longer cached."""
    blocks = sim.pool.blocks
    block = blocks[at]
    key, newer, older = int(block.key), int(block.newer), int(block.older)
    if newer == at:
        remove_child(sim.pool, w, key)
        return
    blocks[older].newer, blocks[newer].older = newer, older
    if child_of(sim.pool, w, key) == at:
        set_child(sim.pool, w, key, newer)


@compiled
def _join_queue(sim: Sim, w: int, at: int) -> None:
    worker, blocks = sim.workers[w], sim.pool.blocks
    blocks[at].before, blocks[at].behind = worker.newest, NONE
    if worker.newest == NONE:
        worker.oldest = at
    else:
        blocks[worker.newest].behind = at
    worker.newest = at


@compiled
def _leave_queue(sim: Sim, w: int, at: int) -> None:
    worker, blocks = sim.workers[w], sim.pool.blocks
    before, behind = int(blocks[at].before), int(blocks[at].behind)
    if before == NONE:
        worker.oldest = behind
    else:
        blocks[before].behind = behind
    if behind == NONE:
        worker.newest = before
    else:
        blocks[behind].before = before
