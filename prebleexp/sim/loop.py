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
from prebleexp.sim.events import ARRIVE, ENQUEUE, STEP, TOKENIZE, encode, pop, push
from prebleexp.sim.idle import next_idle_step
from prebleexp.sim.records import GPU, REQUEST, Memory, Prompts, Sim
from prebleexp.sim.state import EXAMPLE, EXAMPLE_COST, EXAMPLE_MEMORY
from prebleexp.sim.step import settle, step
from prebleexp.sim.types import State, StepCost

NONE = -1
QUEUED, RUNNING = int(State.QUEUED), int(State.RUNNING)

# Why the loop returned
DONE, NEEDS_NODES, NEEDS_ROWS, NEEDS_ROUTE, HAS_FINISHED, BAD_ROUTE, PAUSED = range(7)

_GPUS = types.Array(from_dtype(GPU), 1, "C")
_REQUEST = from_dtype(REQUEST)
_MEMORY, _PROMPTS = typeof(EXAMPLE_MEMORY), typeof(EXAMPLE.prompts)
ROUTE = int64(_MEMORY, _GPUS, _REQUEST, _PROMPTS, float64)
"""route(memory, gpus, request, prompts, now) -> the GPU to send it to"""
FINISH = void(_MEMORY, _GPUS, _REQUEST, _PROMPTS, int64, float64, float64, float64)
"""finish(memory, gpus, request, prompts, gpu, ttft_s, tpot_s, now): a request's last token was reported"""


@njit(ROUTE, **OPTIONS)
def no_route(memory: Any, gpus: Any, request: Any, prompts: Prompts, now: float) -> int:
    """Stands where a compiled policy's would, when the policy is plain Python."""
    return NONE


@njit(FINISH, **OPTIONS)
def no_finish(
    memory: Memory, gpus: Any, request: Any, prompts: Prompts, gpu: int, ttft_s: float, tpot_s: float, now: float
) -> None:
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
    pause: int
    """events after which to return for a moment, so that Python can look at signals"""


_EXAMPLE_RULES = Rules(1.0, 1.0, 1.0, True, False, 1)


@compiled
def _route(sim: Sim, rules: Rules, request: int, g: int) -> bool:
    """Send `request` to GPU g; returns False if there is no such GPU."""
    if not 0 <= g < len(sim.gpus):
        return False
    job, gpu, now = sim.jobs[request], sim.gpus[g], sim.control.now
    job.gpu, job.state = g, QUEUED
    gpu.outstanding += 1
    gpu.requests += 1
    if rules.stepwise or (sim.control.events > 0 and sim.events.times[0] <= now):
        push(sim.events, sim.control, now, encode(TOKENIZE, request))
    else:  # nothing else happens at this instant
        _tokenize(sim, request)
        _enqueue(sim, rules, request)
    return True


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
    if control.free_nodes < 5 * gpu.queued + 2 * gpu.running:
        return NEEDS_NODES
    if gpu.batch_capacity < gpu.running + gpu.queued or gpu.window_capacity <= gpu.window_rows:
        return NEEDS_ROWS
    return DONE


@compiled
def _notify(sim: Sim, finish: Any, memory: Memory, g: int) -> None:
    """Tell the router what finished."""
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
        _MEMORY,
    ),
    **OPTIONS,
)
def advance(sim: Sim, cost: StepCost, rules: Rules, route: Any, finish: Any, memory: Memory) -> int:
    """Run until the end, or until Python is needed; returns why."""
    control, events = sim.control, sim.events
    if control.request != NONE:
        if not _route(sim, rules, control.request, control.answer):
            return BAD_ROUTE
        control.request = NONE
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
        kind, subject = events.codes[0] & 3, events.codes[0] >> 2
        if kind == STEP:
            lack = _lack(sim, subject)
            if lack != DONE:
                return lack
        control.now, _ = pop(events, control)
        if kind == ARRIVE:
            control.clock = max(control.clock, control.now)
            control.request = subject
            if not rules.compiled:
                return NEEDS_ROUTE
            control.answer = route(memory, sim.gpus, sim.requests[subject], sim.prompts, control.now)
            if not _route(sim, rules, subject, control.answer):
                return BAD_ROUTE
            control.request = NONE
        elif kind == TOKENIZE:
            _tokenize(sim, subject)
            push(events, control, control.now, encode(ENQUEUE, subject))
        elif kind == ENQUEUE:
            _enqueue(sim, rules, subject)
        else:
            gpu = sim.gpus[subject]
            step(sim, cost, rules, subject, control.now)
            control.unfinished -= control.finished
            if _may_park(sim, gpu, control.now):
                gpu.parked = 1
            else:
                push(events, control, gpu.clock, encode(STEP, subject))
            if control.finished and not rules.compiled:
                return HAS_FINISHED
            _notify(sim, finish, memory, subject)
    return PAUSED
