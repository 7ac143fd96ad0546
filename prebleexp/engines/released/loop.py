"""The event loop of the released simulator: arrivals are routed, GPUs step, the router hears of what finished (spec:
engine-as-released, Time).

It is entered once a run, or goes on where it stopped when it needed something only Python can do: more memory, or a
plain-Python policy's answer. All its state is in `Sim`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.engines.batch import output_of
from prebleexp.engines.released.admission import enqueue
from prebleexp.engines.released.events import ARRIVE, DISPATCH, ENQUEUE, STEP, TOKENIZE, decode, encode, pop, push
from prebleexp.engines.released.idle import next_idle_step
from prebleexp.engines.released.records import Sim
from prebleexp.engines.released.serving import settle
from prebleexp.engines.released.state import EXAMPLE
from prebleexp.engines.released.step import step
from prebleexp.sim.compiled import compiled
from prebleexp.sim.entry import compiled_for
from prebleexp.sim.notices import FINISHED
from prebleexp.sim.plug import call_int, call_none
from prebleexp.sim.records import NO_OVERHEAD, NONE, SERIAL
from prebleexp.sim.running_mean import expect, learn
from prebleexp.sim.types import State

QUEUED, RUNNING = int(State.QUEUED), int(State.RUNNING)

# Why the loop returned
DONE, NEEDS_NODES, NEEDS_ROWS, NEEDS_ROOM, NEEDS_ROUTE, HAS_NEWS, BAD_ROUTE, PAUSED = range(8)


@compiled
def _take_up(sim: Sim) -> None:
    """The router turns to the next request that arrived."""
    control = sim.control
    control.request = sim.scratch.arrived[control.taken_up]
    control.taken_up += 1
    if sim.rules.mean_window_s > 0:
        expect(sim, control.request)
    if sim.rules.follow:
        _follow(sim)


@compiled
def _follow(sim: Sim) -> None:
    """Look at each running request, one by one: by how many tokens it has less left than what was expected of it less
    what it has. Unless lengths are refined, one that is beyond what was expected has none left, and not less."""
    for g in range(len(sim.gpus)):
        gpu, seen = sim.gpus[g], sim.seen.gpus[g]
        seen.ahead = 0.0
        for row in range(gpu.batch_offset, gpu.batch_offset + gpu.batch_rows):
            request = int(sim.batches.order[row])
            if request == NONE:
                continue
            output, expected = output_of(gpu, sim.jobs[request]), sim.seen.requests[request].expected_output
            if len(sim.left) == 0:
                seen.ahead += min(0.0, expected - output)
            else:
                left = sim.left[sim.made[request].length_class, min(output, sim.left.shape[1] - 1)]
                seen.ahead += expected - output - left


@compiled
def _ask(sim: Sim) -> int:
    control, router = sim.control, sim.router
    if router.compiled == 0:
        return NEEDS_ROUTE
    if router.lacks_room != 0 and call_int(router.lacks_room, router.own, sim.seen, control.request) != 0:
        return NEEDS_ROOM
    control.answer = call_int(router.route, router.own, sim.seen, control.request, control.now)
    return DONE if _decided(sim) else BAD_ROUTE


@compiled
def _decided(sim: Sim) -> bool:
    """The request in hand is to go to GPU control.answer, now or when the decision has taken its time; returns False
    if there is no such GPU."""
    control, rules = sim.control, sim.rules
    request, g = control.request, control.answer
    if not 0 <= g < len(sim.gpus):
        return False
    if rules.overhead == NO_OVERHEAD:
        _dispatch(sim, request, g)
    else:
        seconds = rules.decision_s
        for unit in range(4):
            seconds += rules.unit_s[unit] * sim.seen.work[unit]
            sim.seen.work[unit] = 0
        waited = control.now - sim.seen.requests[request].arrival_s
        sim.made[request].overhead_s = rules.prediction_s + seconds
        if rules.overhead == SERIAL:
            waited = max(0.0, waited - rules.prediction_s)
            control.deciding = 1
            push(sim.events, control, control.now + seconds, encode(DISPATCH, request))
        else:
            _dispatch(sim, request, g)
        sim.made[request].router_wait_s = waited
    control.request = NONE
    return True


@compiled
def _dispatch(sim: Sim, request: int, g: int) -> None:
    """Send `request` to GPU g."""
    sent, now = sim.seen.sent[g], sim.control.now
    sim.seen.requests[request].gpu, sim.made[request].state = g, QUEUED
    sent.outstanding += 1
    sent.tokens += sim.seen.requests[request].prompt_tokens
    sent.requests += 1
    if sim.rules.stepwise or (sim.control.events > 0 and sim.events.times[0] <= now):
        push(sim.events, sim.control, now, encode(TOKENIZE, request))
    else:  # nothing else happens at this instant
        _tokenize(sim, request)
        _enqueue(sim, request)


@compiled
def _tokenize(sim: Sim, request: int) -> None:
    """Takes no time in itself; but the run's clock now counts this GPU's."""
    gpu = sim.gpus[sim.seen.requests[request].gpu]
    sim.control.clock = max(sim.control.clock, sim.control.now, gpu.clock)


@compiled
def _enqueue(sim: Sim, request: int) -> None:
    g = int(sim.seen.requests[request].gpu)
    enqueue(sim, g, request)
    _show(sim, g)
    if sim.gpus[g].parked:
        _unpark(sim, g, sim.control.now)


@compiled
def _unpark(sim: Sim, g: int, time: float) -> None:
    """Put an idle GPU's next step, not before `time`, back into the queue."""
    gpu = sim.gpus[g]
    gpu.parked = 0
    gpu.clock = next_idle_step(gpu.clock, sim.rules.step_cost_s, time)
    push(sim.events, sim.control, gpu.clock, encode(STEP, g))


@compiled
def _may_park(sim: Sim, gpu: Any, now: float) -> bool:
    """Whether the GPU's steps change nothing until a request comes. All GPUs step at time 0, and push in the
    released order then.

    A queue of which nothing fits settles into its sorted order in the first step and is the same after the second.
    """
    return sim.control.parking and now > 0 and ((gpu.fruitless > 0 and gpu.queued == 0) or gpu.fruitless > 2)


@compiled
def _lack(sim: Sim, g: int) -> int:
    """What the next step may run out of, or DONE. A match adds one cache node at most, an insert two."""
    gpu, control, outstanding = sim.gpus[g], sim.control, sim.seen.sent[g].outstanding
    control.gpu = g
    if sim.cache.control.free_nodes < 5 * (outstanding - gpu.running) + 2 * gpu.running:
        return NEEDS_NODES
    if gpu.batch_capacity < outstanding or gpu.window_capacity <= gpu.window_rows:
        return NEEDS_ROWS
    return DONE


@compiled
def _show(sim: Sim, g: int) -> None:
    """Routers see a GPU as it is, which is as it will be at the end of its step."""
    gpu, seen = sim.gpus[g], sim.seen.gpus[g]
    seen.queued, seen.running, seen.kv_free, seen.generated = gpu.queued, gpu.running, gpu.kv_free, gpu.generated
    seen.evictable = sim.cache.roots[g].evictable
    seen.window_hit_tokens, seen.window_prompt_tokens = gpu.window_hit_tokens, gpu.window_prompt_tokens


@compiled
def hear(sim: Sim, g: int, request: int) -> None:
    """The router hears that a request is finished."""
    made, seen = sim.made[request], sim.seen.requests[request]
    sim.seen.sent[g].outstanding -= 1
    sim.seen.sent[g].tokens -= seen.prompt_tokens
    seen.ttft_s, seen.latency_s, seen.output_seen = made.ttft_s, made.latency_s, made.output_seen


@compiled
def _tell(sim: Sim, g: int) -> None:
    router = sim.router
    for request in sim.scratch.finished[: sim.control.finished]:
        hear(sim, g, request)
        if router.hears[FINISHED] != 0:
            call_none(router.hears[FINISHED], router.own, sim.seen, request, sim.control.now)


@compiled
def _end_parking(sim: Sim) -> None:
    """Let idle GPUs step again: close to the end of a run it is their clocks that may end it."""
    sim.control.parking = 0
    for g in range(len(sim.gpus)):
        if sim.gpus[g].parked:
            _unpark(sim, g, sim.rules.end_s - 2 * sim.rules.step_cost_s)


@compiled
def _end(sim: Sim) -> int:
    """Give unfinished requests what they last reported."""
    for request in range(len(sim.made)):
        if sim.made[request].state == RUNNING:
            settle(sim, int(sim.seen.requests[request].gpu), request)
    return DONE


@compiled_for(EXAMPLE)
def advance(sim: Sim) -> int:
    """Run until the end, or until Python is needed; returns why."""
    control, events, rules = sim.control, sim.events, sim.rules
    if control.request != NONE:  # Python has answered, or has made room for the answer
        if sim.router.compiled == 0:
            if not _decided(sim):
                return BAD_ROUTE
        else:
            status = _ask(sim)
            if status != DONE:
                return status
    for _ in range(rules.pause):
        if control.clock > rules.end_s or control.unfinished == 0:
            return _end(sim)
        if (
            control.parking
            and rules.end_s < np.inf
            and (control.events == 0 or events.times[0] > rules.end_s - 2 * rules.step_cost_s)
        ):
            _end_parking(sim)
        if control.events == 0:
            return _end(sim)
        kind, subject = decode(events.codes[0])
        if kind == STEP:
            lack = _lack(sim, subject)
            if lack != DONE:
                return lack
        control.now, _ = pop(events, control)
        if kind in (ARRIVE, DISPATCH):
            control.clock = max(control.clock, control.now)
            if kind == DISPATCH:
                control.deciding = 0
                _dispatch(sim, subject, control.answer)
            else:
                sim.scratch.arrived[control.arrived] = subject
                control.arrived += 1
            if control.deciding or control.taken_up == control.arrived:
                continue
            _take_up(sim)
            status = _ask(sim)
            if status != DONE:
                return status
        elif kind == TOKENIZE:
            _tokenize(sim, subject)
            push(events, control, control.now, encode(ENQUEUE, subject))
        elif kind == ENQUEUE:
            _enqueue(sim, subject)
        else:
            gpu = sim.gpus[subject]
            step(sim, subject, control.now)
            _show(sim, subject)
            control.unfinished -= control.finished
            if rules.mean_window_s > 0:
                for request in sim.scratch.finished[: control.finished]:
                    learn(sim, request)
            if _may_park(sim, gpu, control.now):
                gpu.parked = 1
            else:
                push(events, control, gpu.clock, encode(STEP, subject))
            if sim.router.compiled == 0 and control.finished > 0:
                control.gpu = subject
                return HAS_NEWS
            _tell(sim, subject)
    return PAUSED
