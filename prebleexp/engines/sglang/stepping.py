"""SGLang's event loops (sglang/srt/managers/scheduler.py): without overlap, or with a step scheduled while the one
before it runs, and before its results are known."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.serving import ahead_of, finished, first_token
from prebleexp.engines.sglang import giving_up, queue, receiving
from prebleexp.engines.sglang.contexts import checkpoint, drop, give_up, hold
from prebleexp.engines.sglang.receiving import reserve as reserve
from prebleexp.engines.sglang.records import (
    AT_ONCE,
    DONE,
    ELSEWHERE,
    READY,
    RETRACTED,
    RUNNING,
    STEPS,
    WAITING,
    Engines,
)
from prebleexp.engines.sglang.running import generated_of, last_due, set_last_due, show_each, stop, take_fresh
from prebleexp.engines.sglang.scheduling import schedule
from prebleexp.engines.sglang.tree import unlock
from prebleexp.sim.compiled import compiled
from prebleexp.sim.gaps import alike, token
from prebleexp.sim.pools import decodes, prefills, request_of
from prebleexp.sim.pulling import computed, computes
from prebleexp.sim.records import NONE, World
from prebleexp.sim.types import State
from prebleexp.sim.waking import wake

QUEUED, RUNS = int(State.QUEUED), int(State.RUNNING)

NODES = 8
"""nodes that a request makes at most while its GPU ends one step and schedules others: three when it is given to the
tree, one when it is looked up"""


@compiled
def submit(self: Any, mine: Engines, world: World, request: int, now: float) -> None:
    g = int(world.seen.requests[request].gpu)
    _comes_with(mine, world, g, request)
    mine.gpus[g].waiting_tokens += 0 if decodes(world, g) else mine.jobs[request].prompt
    world.jobs[request].state = QUEUED
    queue.join(mine, g, request)
    publish(mine, world, g)


@compiled
def _comes_with(mine: Engines, world: World, g: int, row: int) -> None:
    """What was shown of a request before its GPU was lost is as of its prompt."""
    job = mine.jobs[row]
    more = int(world.jobs[request_of(world, row)].shown) - int(job.shown)
    job.shown += more
    job.prompt += more
    if prefills(world, g):  # a token is made, whatever was shown
        job.target = job.max_new = 1
    else:
        job.target -= more
        job.max_new -= more


@compiled
def begin(self: Any, mine: Engines, world: World, g: int, now: float) -> float:
    """Seconds that the step takes; negative: there is nothing to do."""
    gpu, ahead = mine.gpus[g], AT_ONCE if mine.settings.overlap else 1
    while gpu.scheduled - gpu.begun < ahead:
        if not schedule(mine, world, g, now) and (gpu.scheduled > gpu.begun or gpu.free <= gpu.room):
            break  # else somebody was retracted, or over with one token: where outputs are made, others have room now
    if gpu.scheduled == gpu.begun:
        gpu.ratio = mine.settings.ratio
        if decodes(world, g):  # room may be taken, or requests be over
            publish(mine, world, g)
        return -1.0
    step, total = mine.steps[g, gpu.begun % STEPS], world.totals[g]
    gpu.begun += 1
    total.forwarded_tokens += step.tokens
    total.prefilled_tokens += step.prompts
    total.decode_steps += 1
    if prefills(world, g):
        chosen = mine.chosen[g, (gpu.begun - 1) % STEPS]
        seconds = float(step.seconds / world.servers[g].speed)
        for row in range(step.chosen):
            if _goes_on(mine, int(chosen[row].request)):
                computes(world, int(chosen[row].request), int(chosen[row].begin + chosen[row].tokens), seconds)
    publish(mine, world, g)
    return float(step.seconds)


@compiled
def end(self: Any, mine: Engines, world: World, g: int, now: float) -> None:
    """The results of the step that began last."""
    gpu = mine.gpus[g]
    slot = (gpu.begun - 1) % STEPS
    if mine.steps[g, slot].prefill != 0:
        _prefilled(mine, world, g, slot, now)
    else:
        fresh = NONE if gpu.fresh == NONE else take_fresh(mine.jobs, gpu)
        if world.gaps.each:
            show_each(mine, world, g, now)
        else:  # here, since a call that is handed all of the world takes a tenth of a step
            others = int(gpu.running - gpu.late + gpu.leaving)  # had a token when the step before was over
            while fresh != NONE:
                token(world.gaps, fresh, now)
                others -= 1
                fresh = int(mine.jobs[fresh].next_fresh)
            alike(world.gaps.classes[0], now - gpu.decoded_s, others)
        gpu.leaving = 0
        gpu.decodes_over += 1
        gpu.decoded_s = now
        gpu.generated += gpu.running - gpu.late
        gpu.late = 0
        _finish_due(mine, world, g, now)
    publish(mine, world, g)


@compiled
def cancel(self: Any, mine: Engines, world: World, request: int, now: float) -> int:
    """A request without its first token leaves, unless it is in the step in hand; whether it has left."""
    g = int(world.seen.requests[request].gpu)
    left = giving_up.leave(mine, world, g, request)
    publish(mine, world, g)
    return left


@compiled
def arrive(self: Any, mine: Engines, world: World, request: int, now: float) -> None:
    """The KV of a prompt is there."""
    g = int(world.seen.requests[request].gpu)
    receiving.arrive(mine, g, request)
    world.jobs[request].state = QUEUED
    publish(mine, world, g)
    wake(world, g)


@compiled
def let_go(self: Any, mine: Engines, world: World, leg: int, now: float) -> None:
    """The KV of a prompt was sent, or nobody waits for it, and it stays cached."""
    g = int(world.seen.requests[leg].gpu)
    job = mine.jobs[leg]
    unlock(mine, g, int(job.lock))
    job.stage, job.generated, mine.retractions[leg] = ELSEWHERE, 0, 0
    publish(mine, world, g)
    wake(world, g)


@compiled
def settle(self: Any, mine: Engines, world: World, request: int, now: float) -> None:
    """The run is over: an unfinished request has reported every token that it has."""
    job, seen, made = mine.jobs[request], world.seen.requests[request], world.jobs[request]
    gpu = mine.gpus[seen.gpu]
    output = generated_of(gpu, job)
    if job.stage != DONE and output > 0:
        made.output_seen = job.shown + output
        if output > job.generated:  # its last token is of the last decode
            made.latency_s = gpu.decoded_s - seen.arrival_s


@compiled
def lacks_room(self: Any, mine: Engines, world: World, g: int, now: float) -> int:
    """Whether all GPUs together may need more nodes than there are."""
    tree = mine.tree
    return int(len(tree.nodes) - tree.control.nodes < NODES * (world.control.present + 2 * len(mine.gpus)))


@compiled
def _goes_on(mine: Engines, request: int) -> bool:
    """Whether somebody waits for what is computed of it."""
    return request != NONE and mine.jobs[request].stage != DONE


@compiled
def _prefilled(mine: Engines, world: World, g: int, slot: int, now: float) -> None:
    """A request whose prompt is computed gets a token, unless it was retracted meanwhile."""
    gpu, step, chosen = mine.gpus[g], mine.steps[g, slot], mine.chosen[g, slot]
    for row in range(step.chosen):
        request = int(chosen[row].request)
        job = mine.jobs[request]
        if request == NONE:  # it was taken back
            continue
        if prefills(world, g) and _goes_on(mine, request):
            computed(world, request, int(chosen[row].begin + chosen[row].tokens))
        if job.stage == WAITING or job.stage == DONE or request == step.part_way:
            continue
        job.generated += 1
        gpu.generated += int(job.stage == RUNNING)
        world.jobs[request].latency_s = now - world.seen.requests[request].arrival_s
        if job.generated == 1:
            first_token(world, g, request, now)
            world.jobs[request].output_seen = world.seen.requests[request].output_seen = job.shown + 1
            world.jobs[request].state = RUNS
        else:
            token(world.gaps, request, now)
        if job.generated >= job.target:
            _finish(mine, world, g, request, now)
        else:
            checkpoint(mine, world, g, request, int(chosen[row].begin + chosen[row].tokens))
    if mine.settings.overlap:
        set_last_due(mine, g, int(gpu.decodes_over), NONE)  # those of them that are due with it


@compiled
def _finish_due(mine: Engines, world: World, g: int, now: float) -> None:
    """Those whose last token the last decode brought."""
    jobs, decode = mine.jobs, int(mine.gpus[g].decodes_over)
    last = last_due(mine, g, decode)
    set_last_due(mine, g, decode, NONE)
    if last == NONE:
        return
    request = int(jobs[last].next_due)
    while True:
        following = int(jobs[request].next_due)
        _finish(mine, world, g, request, now)
        if request == last:
            return
        request = following


@compiled
def _finish(mine: Engines, world: World, g: int, request: int, now: float) -> None:
    job = mine.jobs[request]
    if job.stage == DONE:
        return  # it gave up
    if prefills(world, g):
        hold(mine, world, g, request)
    elif decodes(world, g):
        drop(mine, g, request)
    else:
        give_up(mine, world, g, request)
    if job.stage == RUNNING:
        stop(mine, g, request, DONE)
    job.stage = DONE
    finished(world, g, request, int(job.shown + job.target), now)


@compiled
def publish(mine: Engines, world: World, g: int) -> None:
    """What the GPU tells of itself."""
    gpu, live = mine.gpus[g], world.live[g]
    live.queued, live.running, live.waiting_tokens = gpu.queued, gpu.running, gpu.waiting_tokens
    if decodes(world, g):
        live.queued += gpu.coming + mine.lists[g, READY].length + mine.lists[g, RETRACTED].length
    live.kv_free, live.evictable = gpu.free, gpu.evictable
    live.generated = gpu.generated
    live.window_hit_tokens, live.window_prompt_tokens = gpu.recent_hits, gpu.recent_prompts
    if world.rules.follow:
        live.ahead = _ahead(mine, world, g)


@compiled
def _ahead(mine: Engines, world: World, g: int) -> float:
    """Of all running requests (see `ahead_of`)."""
    gpu, tokens = mine.gpus[g], 0.0
    request = int(gpu.first_running)
    while request != NONE:
        job = mine.jobs[request]
        tokens += ahead_of(world, request, int(job.shown) + generated_of(gpu, job))
        request = int(job.behind)
    return tokens
