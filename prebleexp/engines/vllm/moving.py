"""Requests are moved from one GPU to another, as Llumnix does it on vLLM (spec: clusters.md, section 6).

One that waits changes queues; if its prompt was computed elsewhere, it is read from there all the same. One that runs
decodes on while full blocks of its KV are copied; in the last stage it is in no step that is scheduled from then on,
and when those under way are over the rest is copied, with the block that is part full. The other GPU takes blocks for
each stage before that begins. When all is there the request comes before all that wait there, and needs no blocks, like
one whose prompt was computed elsewhere (`engines.vllm.pulling`).

The two may be of different kinds, each with an engine of its own: what one wants of the other it asks of that one's
engine.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.serving import QUEUED
from prebleexp.engines.vllm import queue
from prebleexp.engines.vllm.blocks import release, remember, take
from prebleexp.engines.vllm.preemption import leave_running
from prebleexp.engines.vllm.publishing import publish
from prebleexp.engines.vllm.pulling import FIRST
from prebleexp.engines.vllm.records import ANONYMOUS, PULLED, PULLS, STOPPED, Engines
from prebleexp.engines.vllm.running import unsettle
from prebleexp.engines.vllm.steady import blocks_of, known_of, last_is_due
from prebleexp.sim.compiled import compiled
from prebleexp.sim.moves import RUNNING, WAITING, ask_for, hand_over, note
from prebleexp.sim.plug import call_int, call_none
from prebleexp.sim.pools import prefills
from prebleexp.sim.records import DOWN, NONE, World
from prebleexp.sim.types import State
from prebleexp.sim.waking import wake

HELD = int(State.HELD)


@compiled
def move(self: Any, mine: Engines, world: World, g: int, now: float) -> None:
    """Begin to move a request of this GPU to the one that it is paired with, if there is one that can be."""
    one, chooses = world.moves.gpus[g], world.moves.rules[0].chooses
    waiting = NONE if chooses == RUNNING else _first_waiting(mine, g)
    if waiting != NONE:
        _move_waiting(mine, world, waiting, g, int(one.target))
    elif chooses != WAITING and not prefills(world, g):
        request = _shortest(mine, world, g)
        if request != NONE:
            one.request, one.mark = request, mine.preemptions[request]
            one.tokens = known_of(mine.jobs[request], mine.gpus[g].over)
            _next_stage(mine, world, g, now)


# ---------------------------------------------------------------- one that waits
@compiled
def _first_waiting(mine: Engines, g: int) -> int:
    """The first of the queue, unless tokens of it are under way, or it has blocks."""
    gpu = mine.gpus[g]
    while gpu.queue != NONE and mine.jobs[gpu.queue].finished != 0:
        queue.pop(mine, g)
    if gpu.queue == NONE or mine.jobs[gpu.queue].stale > 0 or mine.jobs[gpu.queue].filling >= PULLED:
        return NONE
    return int(gpu.queue)


@compiled
def _move_waiting(mine: Engines, world: World, request: int, source: int, target: int) -> None:
    known, engine = int(mine.jobs[request].known), world.engines[target]
    world.moves.gpus[source].tokens = known
    if call_int(engine.spares, engine.own, world, target, blocks_of(mine, known)) == 0:
        world.moves.requests[request].aborted += 1
        note(world, source, request, False, False)
        return
    queue.pop(mine, source)
    mine.gpus[source].queued -= 1
    mine.gpus[source].waiting_tokens -= known if mine.jobs[request].filling != PULLS else 0
    _hand_over(mine, world, request, source, target, 0)
    note(world, source, request, False, True)
    publish(mine, world, source)
    wake(world, source)


@compiled
def _hand_over(mine: Engines, world: World, request: int, source: int, target: int, blocks: int) -> None:
    """To a GPU whose tiers have nothing of it yet, as far as it knows; here it is as if it had never come."""
    hand_over(world, request, source, target)
    call_none(world.engines[source].part, world.engines[source].own, world, request, world.control.now)
    job, preempted, engine = mine.jobs[request], int(mine.preemptions[request]), world.engines[target]
    known, answer = int(job.known), int(job.answer)
    job.known, mine.preemptions[request] = world.seen.requests[request].prompt_tokens, 0
    job.running = job.computed = 0
    job.filling = 1
    job.answer = ANONYMOUS if world.seen.requests[request].answer_segment == NONE else NONE
    call_none(engine.take_in, engine.own, world, target, request, known, preempted, answer, blocks)


# ---------------------------------------------------------------- one that runs
@compiled
def _shortest(mine: Engines, world: World, g: int) -> int:
    """Of the running requests that have KV of all their tokens but the last the one with the fewest; of equals the one
    admitted first."""
    gpu, found, least = mine.gpus[g], NONE, 0
    for row in range(gpu.running):
        request = int(mine.running[g, row])
        job = mine.jobs[request]
        known = known_of(job, gpu.over)
        computed = int(job.computed - job.under_way) + (known - int(job.known))
        decodes = known > world.seen.requests[request].prompt_tokens and computed == known - 1
        if decodes and (found == NONE or known < least):
            found, least = request, known
    return found


@compiled
def _next_stage(mine: Engines, world: World, g: int, now: float) -> None:
    """Copy the full blocks that are not copied yet, or, if few blocks are left, let the request stop."""
    one, rules, gpu = world.moves.gpus[g], world.moves.rules[0], mine.gpus[g]
    computed = known_of(mine.jobs[one.request], gpu.over) - 1
    more = computed // mine.settings.block_size - int(one.copied)
    if blocks_of(mine, computed) - one.copied <= rules.last_blocks:
        gpu.moving = one.request
    elif one.stages + 1 >= rules.stages or not _take_room(world, g, more):
        _abort(mine, world, g)
    else:
        ask_for(world, g, more, now)


@compiled
def copied(self: Any, mine: Engines, world: World, g: int, now: float) -> None:
    """A stage of what leaves this GPU is over."""
    one = world.moves.gpus[g]
    one.busy = 0
    if one.request == NONE:  # it was given up
        return
    if mine.jobs[one.request].running == STOPPED:
        _commit(mine, world, g, now)
    elif _ran_on(mine, one):
        _next_stage(mine, world, g, now)
    else:
        _abort(mine, world, g)


@compiled
def _ran_on(mine: Engines, one: Any) -> bool:
    """Whether the request neither ended nor was preempted since its move began."""
    job = mine.jobs[one.request]
    return bool(job.finished == 0 and job.running != 0 and mine.preemptions[one.request] == one.mark)


@compiled
def stop(self: Any, mine: Engines, world: World, g: int, now: float) -> None:
    """A request is to leave this GPU's batch, or has left it: the rest is copied when no step under way has it."""
    gpu, one, request = mine.gpus[g], world.moves.gpus[g], int(mine.gpus[g].moving)
    job = mine.jobs[request]
    if job.running != STOPPED and not _leaves(mine, world, g, request):
        _abort(mine, world, g)
    elif job.under_way > 0:
        return
    elif one.request == NONE:  # it was given up
        gpu.moving, one.busy = NONE, 0
        _resume(mine, world, g, request)
    else:
        gpu.moving, one.stopped_s = NONE, now
        ask_for(world, g, blocks_of(mine, int(job.known) - 1) - int(one.copied), now)


@compiled
def _leaves(mine: Engines, world: World, g: int, request: int) -> bool:
    """Let it be in no more steps, if there is room for all of it where it goes, and its last token is not under way."""
    gpu, one, job = mine.gpus[g], world.moves.gpus[g], mine.jobs[request]
    if not _ran_on(mine, one):
        return False
    unsettle(mine, world, g)
    blocks = blocks_of(mine, int(job.known + job.expected)) - int(one.taken)
    if last_is_due(job) or not _take_room(world, g, blocks):
        return False
    leave_running(mine, g, request)
    job.running = STOPPED
    gpu.held += 1
    gpu.generated -= job.known - world.seen.requests[request].prompt_tokens
    return True


@compiled
def _commit(mine: Engines, world: World, g: int, now: float) -> None:
    """All of it is there: the request goes on, others find its blocks, and those that it had are cached only."""
    one = world.moves.gpus[g]
    request, target = int(one.request), int(one.target)
    moved = world.moves.requests[request]
    release(mine, g, request)
    mine.gpus[g].held -= 1
    moved.stopped_s += now - one.stopped_s
    _hand_over(mine, world, request, g, target, int(one.taken))
    note(world, g, request, True, True)
    one.request = NONE
    publish(mine, world, g)
    wake(world, g)


@compiled
def _wait_with_blocks(mine: Engines, world: World, g: int, request: int) -> None:
    """A request that came with its blocks waits before all others."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    gpu.reservations += 1
    gpu.queued += 1
    job.running, job.filling, job.heap_key = 0, PULLED, FIRST + gpu.reservations
    job.computed = job.known - 1
    world.jobs[request].state = QUEUED
    queue.push(mine, g, request)
    publish(mine, world, g)
    wake(world, g)


# ---------------------------------------------------------------- moves that come to nothing
@compiled
def abandon(self: Any, mine: Engines, world: World, g: int, now: float) -> None:
    """The move from this GPU is given up, wherever it is: one of the two GPUs is lost. What is on the link comes."""
    one, request = world.moves.gpus[g], int(world.moves.gpus[g].request)
    job = mine.jobs[request]
    stopped, begun = job.running == STOPPED, mine.gpus[g].moving == NONE
    if stopped and begun:
        world.moves.requests[request].stopped_s += now - one.stopped_s
    _abort(mine, world, g)
    if not stopped or world.servers[g].stage == DOWN:
        return
    if begun:
        _resume(mine, world, g, request)
    else:  # steps under way have it
        mine.gpus[g].moving, one.busy = request, 1


@compiled
def _abort(mine: Engines, world: World, g: int) -> None:
    """The other GPU gives its blocks back."""
    one = world.moves.gpus[g]
    target = int(one.target)
    world.moves.requests[one.request].aborted += 1
    note(world, g, int(one.request), True, False)
    mine.gpus[g].moving = one.request = NONE
    if one.taken > 0 and world.servers[target].stage != DOWN:
        engine = world.engines[target]
        call_none(engine.set_free, engine.own, world, target, int(one.taken))


@compiled
def _resume(mine: Engines, world: World, g: int, request: int) -> None:
    """A request that has stopped goes on where it was."""
    mine.gpus[g].held -= 1
    _wait_with_blocks(mine, world, g, request)


# ---------------------------------------------------------------- room where it goes
@compiled
def _take_room(world: World, g: int, blocks: int) -> bool:
    """Blocks for what leaves GPU g, where it goes; whether there were as many."""
    one = world.moves.gpus[g]
    target, engine = int(one.target), world.engines[one.target]
    if call_int(engine.spares, engine.own, world, target, blocks) == 0:
        return False
    call_none(engine.set_aside, engine.own, world, target, blocks, int(one.taken == 0))
    one.taken += blocks
    return True


# ---------------------------------------------------------------- the GPU to which it goes
@compiled
def spares(self: Any, mine: Engines, world: World, g: int, blocks: int) -> int:
    """Whether this GPU has so many blocks for what comes from another."""
    gpu = mine.gpus[g]
    kept = mine.settings.blocks_kept_free if gpu.running > 0 else 0
    return int(world.servers[g].stage != DOWN and blocks + kept <= gpu.free)


@compiled
def set_aside(self: Any, mine: Engines, world: World, g: int, blocks: int, first: int) -> None:
    """It keeps them for that; whether they are the first."""
    evicted = take(mine, world, g, blocks)
    world.totals[g].evicted_tokens += evicted * mine.settings.block_size
    mine.gpus[g].held += first
    publish(mine, world, g)


@compiled
def set_free(self: Any, mine: Engines, world: World, g: int, blocks: int) -> None:
    """It does not come: blocks that were set aside are free."""
    gpu = mine.gpus[g]
    gpu.free += blocks
    gpu.unkeyed += blocks
    gpu.held -= 1
    publish(mine, world, g)
    if gpu.queued > 0:
        wake(world, g)


@compiled
def take_in(
    self: Any, mine: Engines, world: World, g: int, request: int, known: int, preempted: int, answer: int, blocks: int
) -> None:
    """A request has come that knows so many tokens, with the blocks that were set aside for it; 0: it waits."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    job.known, job.answer, job.blocks, mine.preemptions[request] = known, answer, blocks, preempted
    if prefills(world, g):  # what was shown, and a token
        job.limit = known + 1
    if blocks == 0:
        if world.jobs[request].state == HELD:  # where its prompt was computed
            job.filling = PULLS
        else:
            gpu.waiting_tokens += known
        queue.join(mine, world, g, request)
        publish(mine, world, g)
        wake(world, g)
        return
    gpu.held -= 1
    remember(mine, world, g, request, known - 1)
    _wait_with_blocks(mine, world, g, request)
