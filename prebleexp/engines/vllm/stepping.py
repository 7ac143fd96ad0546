"""vLLM's engine loop (vllm/v1/engine/core.py): synchronous, or with two batches in flight.

Asynchronous: the step after the next is scheduled when a step's results are in, that is, when the next begins."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.segments import segment_of
from prebleexp.engines.serving import QUEUED
from prebleexp.engines.vllm import giving_up, pulling, pushing, queue
from prebleexp.engines.vllm.hearing import give_up, tell, unheard
from prebleexp.engines.vllm.hearing import hear as hear
from prebleexp.engines.vllm.preemption import leave_running
from prebleexp.engines.vllm.publishing import publish
from prebleexp.engines.vllm.pulling import pull as pull
from prebleexp.engines.vllm.quiet import decode as decode
from prebleexp.engines.vllm.records import PULLS, STEPS, TOLD, Engines
from prebleexp.engines.vllm.results import finish, serve
from prebleexp.engines.vllm.scheduling import busy, schedule
from prebleexp.engines.vllm.steady import end_steady, known_of, show_each
from prebleexp.engines.vllm.tables import cached, remember, tokens_of
from prebleexp.engines.vllm.verified import verify
from prebleexp.sim.children import expect_child
from prebleexp.sim.compiled import compiled
from prebleexp.sim.gaps import alike, token
from prebleexp.sim.plug import call_int, call_none
from prebleexp.sim.pools import PULL, decodes, leg_of, prefills
from prebleexp.sim.records import NONE, World
from prebleexp.sim.waking import wake


def __getattr__(name: str) -> Any:
    """What only runs need in which KV goes elsewhere, and is imported for them alone."""
    if name.startswith("__"):
        raise AttributeError(name)
    from prebleexp.engines.vllm import elsewhere

    return getattr(elsewhere, name)


@compiled
def submit(self: Any, mine: Engines, world: World, request: int, now: float) -> None:
    g = int(world.seen.requests[request].gpu)
    for row in range(request, min(request + 1, len(world.tiers.jobs))):  # none without tiers
        world.tiers.tried[:, row] = 0
        if world.tiers.jobs[row] > 0:  # what is being stored of an attempt before is not this one's
            world.tiers.jobs[row] = 0
            for store in range(world.tiers.control[0].stores):
                if world.tiers.stores[store].request == row:
                    world.tiers.stores[store].counts = 0
    elsewhere = decodes(world, g) and world.jobs[leg_of(world, request)].reached != 0
    if elsewhere and call_int(world.engines[g].push, world.engines[g].own, world, request, now) != 0:
        return
    job = mine.jobs[request]
    job.known = world.seen.requests[request].prompt_tokens + world.jobs[request].shown
    if prefills(world, g):  # what was shown, and a token
        job.limit = job.known + 1
    if elsewhere:
        job.filling = PULLS
    else:
        mine.gpus[g].waiting_tokens += job.known
        world.jobs[request].state = QUEUED
    queue.join(mine, world, g, request)
    last = segment_of(mine, world, request, int(world.seen.requests[request].segments) - 1)
    expect_child(mine.blocks, g, last * mine.settings.tables)  # which hardly anybody else has
    publish(mine, world, g)


@compiled
def begin(self: Any, mine: Engines, world: World, g: int, now: float) -> float:
    """Seconds that the step takes; negative: there is nothing to do."""
    gpu, ahead = mine.gpus[g], 2 if mine.settings.async_scheduling else 1
    waits = hears = False
    comes = call_int(world.engines[g].offload, world.engines[g].own, world, g, now)
    while True:
        while not waits and gpu.scheduled - gpu.begun < ahead and busy(gpu):
            schedule(mine, world, g, now)
            # An empty step, and the next will be, until KV has come or has been read: vLLM would go on with empty ones.
            idle = gpu.running == 0 and mine.steps[g, (gpu.scheduled - 1) % STEPS].counts == 0
            waits = bool(idle and gpu.held + gpu.reserved + comes > 0)
        if gpu.scheduled == gpu.begun:
            if gpu.held + gpu.reserved + comes > 0 or hears:  # it may have preempted, or reserved
                publish(mine, world, g)
            gpu.idle_s = now
            call_int(world.engines[g].offload, world.engines[g].own, world, g, now)
            return -1.0
        step = mine.steps[g, gpu.begun % STEPS]
        if step.waits > 0:  # for blocks that are being stored
            publish(mine, world, g)
            return -1.0
        gpu.begun += 1
        count(mine, world, g, step)
        if step.requests > 0:
            publish(mine, world, g)
            return float(step.seconds)
        gpu.over = gpu.begun  # an empty one takes no time
        told = step.news != NONE or step.stored != NONE
        if told or (mine.settings.hears_at_results and gpu.news != NONE):
            call_none(world.engines[g].hear, world.engines[g].own, world, g, now)
            waits, hears = False, True
        step.free_after = gpu.free


@compiled
def count(mine: Engines, world: World, g: int, step: Any) -> None:
    """A step begins, perhaps long after it was scheduled."""
    total = world.totals[g]
    total.decode_steps += int(step.requests > 0)
    total.hit_tokens += step.hits
    total.prefilled_tokens += step.prefilled
    total.forwarded_tokens += step.computed
    total.recomputed_tokens += step.recomputed
    total.retracted += step.preempted
    total.evicted_tokens += tokens_of(mine, step.evicted)


@compiled
def end(self: Any, mine: Engines, world: World, g: int, now: float) -> None:
    """The results of the step that began last."""
    gpu = mine.gpus[g]
    slot = (gpu.begun - 1) % STEPS
    step, chosen = mine.steps[g, slot], mine.chosen[g, slot]
    if world.gaps.each:
        show_each(mine, world, g, slot, now)
    else:  # here, since a call that is handed all of the world takes a tenth of a step
        others = int(step.steady)  # had a token when the step before was over, but for those that are fresh
        for row in range(step.fresh):
            one = int(mine.fresh[g, slot, row])
            if mine.jobs[one].finished == 0:  # it did not give up
                token(world.gaps, one, now)
                others -= 1
        alike(world.gaps.classes[0], now - gpu.step_ended_s, others)
    gpu.over, gpu.step_ended_s = gpu.begun, now
    gpu.generated += step.steady
    for row in range(min(int(step.chosen), verify(mine, world, g, slot))):
        one = chosen[row]
        request = int(one.request)
        job = mine.jobs[request]
        if job.finished != 0:  # it gave up
            continue
        if one.tokens == 0:
            if job.steady_from != NONE:  # the last token of one that decoded steadily
                end_steady(mine, world, g, request)
            job.known, job.finished = job.limit, 1
            remember(mine, world, g, request, int(job.limit) - 1)
            finish(mine, world, g, request, now)
        else:
            stale = job.stale > 0
            job.under_way -= one.tokens
            job.stale -= one.tokens if stale else 0
            if one.samples == 0 or (stale and prefills(world, g)):  # a producer's is dropped
                continue
            serve(mine, world, g, request, stale, 1, 0, now)
        if job.finished != 0:
            mine.finished[g, slot, step.finished] = request
            step.finished += 1
    if step.finished > 0:
        for row in range(step.finished):  # finished requests leave the running ones
            request = int(mine.finished[g, slot, row])
            if mine.jobs[request].running != 0:
                leave_running(mine, g, request)
        gpu.flush = 1
    if gpu.moving != NONE:
        call_none(world.engines[g].stop, world.engines[g].own, world, g, now)
    if step.news != NONE or step.stored != NONE or (mine.settings.hears_at_results and gpu.news != NONE):
        call_none(world.engines[g].hear, world.engines[g].own, world, g, now)
    step.free_after = gpu.free
    publish(mine, world, g)


@compiled
def cancel(self: Any, mine: Engines, world: World, request: int, now: float) -> int:
    """A request without its first token leaves, unless it is in the step in hand; whether it has left."""
    g, job = int(world.seen.requests[request].gpu), mine.jobs[request]
    left = giving_up.leave(mine, world, g, request)
    if left != 0 and job.running != 0:
        leave_running(mine, g, request)
        job.running = 0
    publish(mine, world, g)
    return left


@compiled
def found(self: Any, mine: Engines, world: World, request: int, now: float) -> int:
    """Tokens of a request's prompt that are cached on its GPU, or, if it was lost, of what was shown behind that."""
    mine.jobs[request].known = world.seen.requests[request].prompt_tokens + world.jobs[request].shown
    hits, _ = cached(mine, world, int(world.seen.requests[request].gpu), request)
    return int(hits * mine.settings.block_size)


@compiled
def arrive(self: Any, mine: Engines, world: World, request: int, now: float) -> None:
    """The KV of a prompt is there, and the last token that is known is to be computed: of a prompt, again."""
    g = int(world.seen.requests[request].gpu)
    world.jobs[request].state = QUEUED
    if world.pools.protocol == PULL:
        tell(mine, world, g, request)
        return
    pulling.arrive(mine, world, g, request, int(mine.jobs[request].known) - 1)
    publish(mine, world, g)
    wake(world, g)


@compiled
def push(self: Any, mine: Engines, world: World, request: int, now: float) -> int:
    """A prompt is computed elsewhere, and its KV is to be sent here."""
    pushing.receive(mine, world, int(world.seen.requests[request].gpu), request, now)
    return 1


@compiled
def let_go(self: Any, mine: Engines, world: World, leg: int, now: float) -> None:
    """The KV of a prompt was read, and stays cached; if that is said again, the prompt begins anew."""
    g, job = int(world.seen.requests[leg].gpu), mine.jobs[leg]
    if world.pools.protocol == PULL and job.finished == 1:
        job.finished = TOLD
        tell(mine, world, g, leg)
    elif job.finished != 0:
        unheard(mine, g, leg)
        give_up(mine, world, g, leg)
        publish(mine, world, g)
        wake(world, g)


@compiled
def settle(self: Any, mine: Engines, world: World, request: int, now: float) -> None:
    """The run is over: an unfinished request has reported every token that it has."""
    job, seen = mine.jobs[request], world.seen.requests[request]
    gpu, made = mine.gpus[seen.gpu], world.jobs[request]
    output = known_of(job, gpu.over) - seen.prompt_tokens
    if job.finished == 0 and output > 0:
        made.output_seen = output
        if output > job.known - seen.prompt_tokens:  # its last token is of the last step
            made.latency_s = gpu.step_ended_s - seen.arrival_s


@compiled
def lacks_room(self: Any, mine: Engines, world: World, g: int, now: float) -> int:
    """Whether what may be scheduled at once may need more keys than there is room for."""
    return int(len(mine.blocks.slot_keys) < 2 * (mine.blocks.control.keys + mine.settings.keys_ahead))
