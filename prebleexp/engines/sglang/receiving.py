"""GPUs for outputs, which take room for a prompt before it is computed elsewhere (sglang/srt/disaggregation/decode.py).

Those that wait get room in order of arrival, until one does not fit: its prompt, and something for what it will
generate, beside something for every request that is here already. Whose KV has come decodes from the next step on; the
first token came with it, and is shown then. There is no cache.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.serving import finished, first_token
from prebleexp.engines.sglang import queue
from prebleexp.engines.sglang.records import CHOSEN, CLIP_MAX_NEW_TOKENS, DONE, READY, RETRACTED, Engines
from prebleexp.engines.sglang.running import run
from prebleexp.sim import pulling
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, World
from prebleexp.sim.router_queue import release
from prebleexp.sim.types import State

RUNS, RESERVED = int(State.RUNNING), int(State.RESERVED)


@compiled
def reserve(self: Any, mine: Engines, world: World, g: int, now: float) -> None:
    """Before a step is scheduled: whoever can gets room, and whoever is there joins those that run."""
    _resume(mine, g)
    if mine.lists[g, RETRACTED].length == 0:
        _reserve(mine, world, g)
    mine.gpus[g].room = mine.gpus[g].free
    ready = mine.lists[g, READY]
    while ready.length > 0 and mine.gpus[g].running < mine.settings.max_running_requests:
        _join(mine, world, g, _take_first(mine, g, READY), now)


@compiled
def arrive(mine: Engines, g: int, request: int) -> None:
    """All KV of a prompt has come."""
    mine.gpus[g].coming -= 1
    append(mine, g, READY, request)


@compiled
def leave(mine: Engines, world: World, g: int, request: int) -> None:
    """One that has room does not come, or does not join."""
    if world.jobs[request].state == RESERVED:
        mine.gpus[g].coming -= 1
        return
    ready, before, one = mine.lists[g, READY], NONE, int(mine.lists[g, READY].first)
    while one != request:
        before, one = one, int(mine.jobs[one].behind)
    if before == NONE:
        _take_first(mine, g, READY)
        return
    mine.jobs[before].behind = mine.jobs[request].behind
    if ready.last == request:
        ready.last = before
    ready.length -= 1


# ---------------------------------------------------------------- room
@compiled
def _resume(mine: Engines, g: int) -> None:
    """Those that were retracted, in order, until one does not fit: their KV comes back from the host, in no time."""
    gpu, retracted, kept = mine.gpus[g], mine.lists[g, RETRACTED], mine.settings.reserved_decode_tokens
    left = gpu.free - kept * _active(mine, g)
    while retracted.length > 0:
        job = mine.jobs[retracted.first]
        known = int(job.prompt + job.generated)
        if known + kept > left:
            return
        left -= known + kept
        _hold(mine, g, int(retracted.first), known - 1)
        append(mine, g, READY, _take_first(mine, g, RETRACTED))


@compiled
def _reserve(mine: Engines, world: World, g: int) -> None:
    """Those that wait, in order, until one does not fit."""
    gpu, kept = mine.gpus[g], mine.settings.reserved_decode_tokens
    if gpu.queued == 0:
        return
    retractable, longest = _of_running(mine, g)
    left = gpu.free - max(kept * _active(mine, g), longest - retractable)
    while gpu.queued > 0:
        request = int(gpu.first_waiting)
        job = mine.jobs[request]
        need = int(job.prompt) + kept
        if max(need, job.prompt + min(int(job.max_new), CLIP_MAX_NEW_TOKENS) - retractable) > left:
            return
        left -= need
        queue.leave(mine, g)
        _hold(mine, g, request, int(job.prompt))
        gpu.coming += 1
        pulling.reserve(world, request)


@compiled
def _active(mine: Engines, g: int) -> int:
    """Requests that have room on a GPU for outputs."""
    return int(mine.gpus[g].running + mine.gpus[g].coming + mine.lists[g, READY].length)


@compiled
def _of_running(mine: Engines, g: int) -> tuple[int, int]:
    """Tokens that the running requests have, and the most that one of them may have."""
    gpu = mine.gpus[g]
    tokens, longest, request = int(gpu.generated), 0, int(gpu.first_running)
    while request != NONE:
        job = mine.jobs[request]
        tokens += job.prompt
        longest = max(longest, int(job.prompt) + min(int(job.max_new), CLIP_MAX_NEW_TOKENS))
        request = int(job.behind)
    return tokens, longest


@compiled
def _hold(mine: Engines, g: int, request: int, tokens: int) -> None:
    """Room for so many tokens, of which nothing is in the tree."""
    job = mine.jobs[request]
    mine.gpus[g].free -= tokens
    job.stage, job.computed, job.lock, job.held = CHOSEN, tokens, g, 0


# ---------------------------------------------------------------- joining
@compiled
def _join(mine: Engines, world: World, g: int, request: int, now: float) -> None:
    """A request decodes from now on; its first token is shown, and with one it is finished."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    world.jobs[request].state = RUNS
    if job.generated == 0:
        job.generated = 1
        first_token(world, g, request, now)
        world.jobs[request].output_seen = world.seen.requests[request].output_seen = job.shown + 1
        if job.target == 1:
            gpu.free += job.computed
            job.stage = DONE
            finished(world, g, request, int(job.shown + 1), now)
            release(world)
            return
    run(mine, g, request, 0)


# ---------------------------------------------------------------- lists
@compiled
def append(mine: Engines, g: int, which: int, request: int) -> None:
    """Add a request to the end of one of a GPU's lists."""
    one = mine.lists[g, which]
    mine.jobs[request].behind = NONE
    if one.last == NONE:
        one.first = request
    else:
        mine.jobs[one.last].behind = request
    one.last = request
    one.length += 1


@compiled
def _take_first(mine: Engines, g: int, which: int) -> int:
    one = mine.lists[g, which]
    first = int(one.first)
    one.first = mine.jobs[first].behind
    if one.first == NONE:
        one.last = NONE
    one.length -= 1
    return first
