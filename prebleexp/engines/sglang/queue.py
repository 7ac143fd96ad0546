"""The requests that wait on a GPU, in order (sglang/srt/managers/schedule_policy.py)."""

from __future__ import annotations

from prebleexp.engines.segments import ALL, end_of, segment_of
from prebleexp.engines.sglang.records import IN_BATCH_PREFIX, MATCHED_WAITING, REFRESH_INTERVAL, WAITING, Engines
from prebleexp.engines.sglang.sorting import put_in_order
from prebleexp.engines.sglang.tree import match
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, World


@compiled
def join(mine: Engines, g: int, request: int) -> None:
    """A request joins the end of a GPU's queue."""
    gpu = mine.gpus[g]
    mine.jobs[request].behind = NONE
    mine.jobs[request].stage = WAITING
    if gpu.last_waiting == NONE:
        gpu.first_waiting = request
    else:
        mine.jobs[gpu.last_waiting].behind = request
    gpu.last_waiting = request
    gpu.queued += 1


@compiled
def leave(mine: Engines, g: int) -> None:
    """The first request leaves a GPU's queue."""
    gpu = mine.gpus[g]
    gpu.first_waiting = mine.jobs[gpu.first_waiting].behind
    if gpu.first_waiting == NONE:
        gpu.last_waiting = NONE
    gpu.queued -= 1


@compiled
def take_out(mine: Engines, g: int, request: int) -> None:
    """Take a request out of a GPU's queue, wherever it stands there."""
    gpu, before = mine.gpus[g], NONE
    one = int(gpu.first_waiting)
    while one != request:
        before, one = one, int(mine.jobs[one].behind)
    if before == NONE:
        leave(mine, g)
        return
    mine.jobs[before].behind = mine.jobs[request].behind
    if gpu.last_waiting == request:
        gpu.last_waiting = before
    gpu.queued -= 1


@compiled
def put_queue_in_order(mine: Engines, world: World, g: int) -> None:
    """By cached prefix, longest first, if that is the policy and not too many wait. Else what the first ones share is
    only kept from being evicted, now and then."""
    gpu = mine.gpus[g]
    if gpu.queued == 0:
        return
    if mine.settings.by_prefix and gpu.queued <= MATCHED_WAITING:
        _by_prefix(mine, world, g)
        return
    if gpu.passes % REFRESH_INTERVAL == 0:
        for row in range(_listed(mine, g) - 1, -1, -1):
            request = int(mine.ordered[0, row])
            match(mine, world, g, request, mine.jobs[request].prompt + mine.jobs[request].generated)
    gpu.passes += 1


@compiled
def _listed(mine: Engines, g: int) -> int:
    """List the first ones; returns how many they are."""
    request, size = int(mine.gpus[g].first_waiting), 0
    while request != NONE and size < MATCHED_WAITING:
        mine.ordered[0, size] = request
        size += 1
        request = int(mine.jobs[request].behind)
    return size


@compiled
def _by_prefix(mine: Engines, world: World, g: int) -> None:
    gpu, ordered, size, firsts = mine.gpus[g], mine.ordered, _listed(mine, g), 0
    for row in range(size):
        request = int(ordered[0, row])
        known = int(mine.jobs[request].prompt + mine.jobs[request].generated)
        found, _ = match(mine, world, g, request, known)
        mine.keys[0, row] = -min(found, known - 1)
        if found > IN_BATCH_PREFIX or known < IN_BATCH_PREFIX:
            continue
        shared = _shared_segment(mine, world, request)
        if _is_among(mine, firsts, shared):
            mine.keys[0, row] = ALL
        else:
            mine.firsts[firsts] = shared
            firsts += 1
    put_in_order(mine, size)
    for row in range(size - 1):
        mine.jobs[ordered[0, row]].behind = ordered[0, row + 1]
    mine.jobs[ordered[0, size - 1]].behind = NONE
    gpu.first_waiting, gpu.last_waiting = ordered[0, 0], ordered[0, size - 1]


@compiled
def _shared_segment(mine: Engines, world: World, request: int) -> int:
    """The segment in which the first `IN_BATCH_PREFIX` tokens of a context end: whoever has it shares them."""
    segment = 0
    while end_of(world, request, segment) < IN_BATCH_PREFIX:
        segment += 1
    return segment_of(mine, world, request, segment)


@compiled
def _is_among(mine: Engines, firsts: int, segment: int) -> bool:
    for row in range(firsts):  # noqa: SIM110  # numba has no any()
        if mine.firsts[row] == segment:
            return True
    return False
