"""The event loop: arrivals are routed, GPUs step, the router hears of what finished (spec: engine-as-released, Time).

The loop is entered once a run, or goes on where it stopped when it needed something only Python can do: more
memory, or a plain-Python policy's answer. All its state is in `Sim`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import float64, from_dtype, int64, njit, typeof, types, void

from prebleexp.sim.admission import enqueue
from prebleexp.sim.compiled import OPTIONS, compiled
from prebleexp.sim.events import ARRIVE, DISPATCH, ENQUEUE, STEP, TOKENIZE, decode, encode, pop, push
from prebleexp.sim.idle import next_idle_step
from prebleexp.sim.memory import Memory
from prebleexp.sim.records import GPU, REQUEST, Prompts, Sim
from prebleexp.sim.refined import refine
from prebleexp.sim.room import lacks_room
from prebleexp.sim.running_mean import expect, learn
from prebleexp.sim.serving import settle
from prebleexp.sim.state import EXAMPLE, EXAMPLE_COST, EXAMPLE_MEMORY
from prebleexp.sim.step import step
from prebleexp.sim.types import State, StepCost

NONE = -1
QUEUED, RUNNING = int(State.QUEUED), int(State.RUNNING)

# Why the loop returned
DONE, NEEDS_NODES, NEEDS_ROWS, NEEDS_ROOM, NEEDS_ROUTE, HAS_NEWS, BAD_ROUTE, PAUSED = range(8)

# How the router's own time counts
NO_OVERHEAD, RECORDED, SERIAL = range(3)

_GPUS = types.Array(from_dtype(GPU), 1, "C")
_REQUEST = from_dtype(REQUEST)
_MEMORY, _PROMPTS = typeof(EXAMPLE_MEMORY), typeof(EXAMPLE.prompts)
ROUTE = int64(_MEMORY, _GPUS, _REQUEST, _PROMPTS, float64)
"""route(memory, gpus, request, prompts, now) -> the GPU to send it to"""
FINISH = void(_MEMORY, _GPUS, _REQUEST, _PROMPTS, int64, float64, float64, float64)
"""finish(memory, gpus, request, prompts, gpu, ttft_s, tpot_s, now): a request's last token was reported"""
EVICTED = void(_MEMORY, _GPUS, _REQUEST, _PROMPTS, int64, int64, float64)
"""evicted(memory, gpus, request, prompts, gpu, tokens, now): a GPU dropped a part of a request's context, which it
kept in its prefix cache: what lies beyond so many tokens"""


@njit(ROUTE, **OPTIONS)
def no_route(memory: Any, gpus: Any, request: Any, prompts: Prompts, now: float) -> int:
    """Stands where a compiled policy's would, when the policy is plain Python."""
    return NONE


@njit(FINISH, **OPTIONS)
def no_finish(
    memory: Memory, gpus: Any, request: Any, prompts: Prompts, gpu: int, ttft_s: float, tpot_s: float, now: float
) -> None:
    """Likewise."""


@njit(EVICTED, **OPTIONS)
def no_evicted(memory: Memory, gpus: Any, request: Any, prompts: Prompts, gpu: int, tokens: int, now: float) -> None:
    """Likewise."""


class Rules(NamedTuple):
    """What stays the same during a run."""

    step_cost_s: float
    output_step_cost_s: float
    end_s: float
    """the run ends when a clock exceeds it"""
    compiled: bool
    """whether the policy is compiled; if not, the loop returns to ask"""
    stepwise: bool
    """take every idle step, route through every event, admit by the exact sum: slow, for tests"""
    mean_window_s: float
    """over which the mean length of finished outputs is what is expected of the next; 0: what is expected is known
    from the start"""
    mean_per_prefix: bool
    follow: bool
    """tell the router what each running request has left, whenever it takes a request up"""
    overhead: int
    """`NO_OVERHEAD`, `RECORDED` or `SERIAL`"""
    prediction_s: float
    """what the router waits for before it can take a request up"""
    decision_s: float
    """what each decision takes, and on top of it …"""
    unit_s: tuple[float, float, float, float]
    """… each unit of what `Memory.work` counts"""
    queue: int
    """as `queue.LPM` … `queue.PRIORITY_GROUPS`"""
    groups: int
    chunk_tokens: int
    """0: prefills are whole"""
    block_tokens: int
    pause: int
    """events after which to return for a moment, so that Python can look at signals"""


_EXAMPLE_RULES = Rules(1.0, 1.0, 1.0, True, False, 0.0, False, False, 0, 0.0, 0.0, (0.0, 0.0, 0.0, 0.0), 0, 0, 0, 1, 1)


@compiled
def _take_up(sim: Sim, rules: Rules) -> None:
    """The router turns to the next request that arrived."""
    control = sim.control
    control.request = sim.scratch.arrived[control.taken_up]
    control.taken_up += 1
    if rules.mean_window_s > 0:
        expect(sim, rules, control.request)
    if rules.follow:
        refine(sim)


@compiled
def _ask(sim: Sim, route: Any, memory: Memory) -> int:
    control = sim.control
    return route(memory, sim.gpus, sim.requests[control.request], sim.prompts, control.now)


@compiled
def _decided(sim: Sim, rules: Rules, work: Any) -> bool:
    """The request in hand is to go to GPU control.answer, now or when the decision has taken its time; returns False
    if there is no such GPU."""
    control = sim.control
    request, g = control.request, control.answer
    if not 0 <= g < len(sim.gpus):
        return False
    if rules.overhead == NO_OVERHEAD:
        _dispatch(sim, rules, request, g)
    else:
        seconds = _decision_s(rules, work)
        waited = control.now - sim.requests[request].arrival_s
        sim.jobs[request].overhead_s = rules.prediction_s + seconds
        if rules.overhead == SERIAL:
            waited = max(0.0, waited - rules.prediction_s)
            control.deciding = 1
            push(sim.events, control, control.now + seconds, encode(DISPATCH, request))
        else:
            _dispatch(sim, rules, request, g)
        sim.jobs[request].router_wait_s = waited
    control.request = NONE
    return True


@compiled
def _decision_s(rules: Rules, work: Any) -> float:
    seconds = rules.decision_s
    for unit in range(4):
        seconds += rules.unit_s[unit] * work[unit]
        work[unit] = 0
    return seconds


@compiled
def _dispatch(sim: Sim, rules: Rules, request: int, g: int) -> None:
    """Send `request` to GPU g."""
    job, gpu, now = sim.jobs[request], sim.gpus[g], sim.control.now
    job.gpu, job.state = g, QUEUED
    gpu.outstanding += 1
    gpu.requests += 1
    if rules.stepwise or (sim.control.events > 0 and sim.events.times[0] <= now):
        push(sim.events, sim.control, now, encode(TOKENIZE, request))
    else:  # nothing else happens at this instant
        _tokenize(sim, request)
        _enqueue(sim, rules, request)


@compiled
def _tokenize(sim: Sim, request: int) -> None:
    """Takes no time in itself; but the run's clock now counts this GPU's."""
    gpu = sim.gpus[sim.jobs[request].gpu]
    sim.control.clock = max(sim.control.clock, sim.control.now, gpu.clock)


@compiled
def _enqueue(sim: Sim, rules: Rules, request: int) -> None:
    g = sim.jobs[request].gpu
    enqueue(sim, g, request)
    if sim.gpus[g].parked:
        _unpark(sim, rules, g, sim.control.now)


@compiled
def _unpark(sim: Sim, rules: Rules, g: int, time: float) -> None:
    """Put an idle GPU's next step, not before `time`, back into the queue."""
    gpu = sim.gpus[g]
    gpu.parked = 0
    gpu.clock = next_idle_step(gpu.clock, rules.step_cost_s, time)
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
    gpu, control = sim.gpus[g], sim.control
    control.gpu = g
    waiting = gpu.outstanding - gpu.running  # in the queue or part-way
    if control.free_nodes < 5 * waiting + 2 * gpu.running:
        return NEEDS_NODES
    if gpu.batch_capacity < gpu.outstanding or gpu.window_capacity <= gpu.window_rows:
        return NEEDS_ROWS
    return DONE


@compiled
def _notify(sim: Sim, finish: Any, evicted: Any, memory: Memory, g: int) -> None:
    """Tell the router what was evicted and what finished."""
    for row in range(sim.control.evicted):
        owner, tokens = int(sim.cache.evicted_owner[row]), int(sim.cache.evicted_beyond[row])
        evicted(memory, sim.gpus, sim.requests[owner], sim.prompts, g, tokens, sim.control.now)
    for request in sim.scratch.finished[: sim.control.finished]:
        job = sim.jobs[request]
        sim.gpus[g].outstanding -= 1
        tpot = (job.latency_s - job.ttft_s) / job.output_seen
        finish(memory, sim.gpus, sim.requests[request], sim.prompts, g, job.ttft_s, tpot, sim.control.now)


@compiled
def _end_parking(sim: Sim, rules: Rules) -> None:
    """Let idle GPUs step again: close to the end of a run it is their clocks that may end it."""
    sim.control.parking = 0
    for g in range(len(sim.gpus)):
        if sim.gpus[g].parked:
            _unpark(sim, rules, g, rules.end_s - 2 * rules.step_cost_s)


@compiled
def _end(sim: Sim) -> int:
    """Give unfinished requests what they last reported."""
    for request in range(len(sim.jobs)):
        if sim.jobs[request].state == RUNNING:
            settle(sim, sim.jobs[request].gpu, request)
    return DONE


@njit(
    int64(
        typeof(EXAMPLE),
        typeof(EXAMPLE_COST),
        typeof(_EXAMPLE_RULES),
        types.FunctionType(ROUTE),
        types.FunctionType(FINISH),
        types.FunctionType(EVICTED),
        _MEMORY,
    ),
    **OPTIONS,
)
def advance(sim: Sim, cost: StepCost, rules: Rules, route: Any, finish: Any, evicted: Any, memory: Memory) -> int:
    """Run until the end, or until Python is needed; returns why."""
    control, events = sim.control, sim.events
    if control.request != NONE:  # Python has answered, or has made room for the answer
        if rules.compiled:
            control.answer = _ask(sim, route, memory)
        if not _decided(sim, rules, memory.work):
            return BAD_ROUTE
    for _ in range(rules.pause):
        if control.clock > rules.end_s or control.unfinished == 0:
            return _end(sim)
        if (
            control.parking
            and rules.end_s < np.inf
            and (control.events == 0 or events.times[0] > rules.end_s - 2 * rules.step_cost_s)
        ):
            _end_parking(sim, rules)
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
                _dispatch(sim, rules, subject, control.answer)
            else:
                sim.scratch.arrived[control.arrived] = subject
                control.arrived += 1
            if control.deciding or control.taken_up == control.arrived:
                continue
            _take_up(sim, rules)
            if not rules.compiled:
                return NEEDS_ROUTE
            if lacks_room(memory, len(sim.gpus), sim.requests[control.request].segments):
                return NEEDS_ROOM
            control.answer = _ask(sim, route, memory)
            if not _decided(sim, rules, memory.work):
                return BAD_ROUTE
        elif kind == TOKENIZE:
            _tokenize(sim, subject)
            push(events, control, control.now, encode(ENQUEUE, subject))
        elif kind == ENQUEUE:
            _enqueue(sim, rules, subject)
        else:
            gpu = sim.gpus[subject]
            step(sim, cost, rules, subject, control.now)
            control.unfinished -= control.finished
            if rules.mean_window_s > 0:
                for request in sim.scratch.finished[: control.finished]:
                    learn(sim, rules, request)
            if _may_park(sim, gpu, control.now):
                gpu.parked = 1
            else:
                push(events, control, gpu.clock, encode(STEP, subject))
            if not rules.compiled and control.finished + control.evicted > 0:
                control.gpu = subject
                return HAS_NEWS
            _notify(sim, finish, evicted, memory, subject)
    return PAUSED
