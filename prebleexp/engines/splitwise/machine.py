"""A machine at work: batches begin, are cut, and end.

A batch with prompts in it is looked at after an iteration. One of tokens alone runs until the first of them is done,
as one event; it is cut at the end of the iteration in hand when something comes that may join it.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.splitwise.batching import MOST_TASKS, MOST_TOKENS, form, leave
from prebleexp.engines.splitwise.events import BATCH, push
from prebleexp.engines.splitwise.pools import come_home
from prebleexp.engines.splitwise.queue import enter, is_prompt
from prebleexp.engines.splitwise.records import DONE, QUEUED, RUNNING, Sim
from prebleexp.engines.splitwise.tables import MEMORY
from prebleexp.engines.splitwise.transfers import send
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE

MIXED_COST = 1.1
"""of an iteration of prompts and tokens, as a multiple of one of as many prompt tokens"""


@compiled
def come(sim: Sim, task: int) -> None:
    """A task comes to its machine, which begins or is cut for it, if it may join a batch."""
    enter(sim, task)
    one = sim.tasks[task]
    g = int(one.machine)
    machine = sim.machines[g]
    tokens, others = machine.batch_tokens + one.tokens, machine.batch - machine.batch_prompts
    if machine.batch == 0:
        if machine.memory + one.bytes <= MEMORY:
            work(sim, g)
    elif (
        sim.rules.orca
        or (machine.batch < MOST_TASKS and tokens <= MOST_TOKENS)
        or (is_prompt(task) and others > 0 and tokens - others <= MOST_TOKENS)
    ):
        cut(sim, g)


@compiled
def freed(sim: Sim, g: int) -> None:
    """Memory of a machine was freed: who waits there may join."""
    machine = sim.machines[g]
    if machine.waiting == 0:
        return
    if machine.batch == 0:
        if machine.memory + sim.tasks[sim.lists.waiting[g, 0]].bytes <= MEMORY:
            work(sim, g)
    elif machine.batch < MOST_TASKS and (sim.rules.orca or machine.batch_tokens < MOST_TOKENS):
        cut(sim, g)


@compiled
def cut(sim: Sim, g: int) -> None:
    """Let a run of iterations end with the one in hand. One with a prompt has no others."""
    machine, now = sim.machines[g], sim.control.now
    if machine.cut or machine.batch_prompts > 0:
        return
    machine.cut = 1
    begun_s = machine.ends_s - machine.step_s * machine.steps  # as the release finds it, to the last bit
    elapsed_s = now - begun_s
    machine.steps = int(elapsed_s // machine.step_s) + 1
    rest_s = machine.step_s * machine.steps - elapsed_s
    machine.ends_s = now + rest_s
    if rest_s > 0:
        machine.event = push(sim, machine.ends_s, BATCH, g)
    else:
        end(sim, g)
        work(sim, g)


@compiled
def work(sim: Sim, g: int) -> None:
    """Begin machine g's next batch. One that takes no time, of a request with no second token, ends at once."""
    while _begin(sim, g):
        end(sim, g)


@compiled
def _begin(sim: Sim, g: int) -> bool:
    """Returns whether it has ended with that."""
    machine, now = sim.machines[g], sim.control.now
    form(sim, g)
    if machine.batch == 0:
        if machine.requests == 0 and machine.mixed:
            come_home(sim, g)
        return False
    steps = 1
    if machine.batch_prompts == 0:
        goal = sim.tasks[sim.lists.batch[g, 0]].goal
        for i in range(1, machine.batch):
            goal = min(goal, sim.tasks[sim.lists.batch[g, i]].goal)
        steps = goal - machine.iterations
    for i in range(machine.batch):
        task = sim.lists.batch[g, i]
        one = sim.tasks[task]
        if one.state == QUEUED:
            one.start_s = now
            machine.memory += one.bytes
            sim.requests[task >> 1].memory += one.bytes
        one.state = RUNNING
    machine.most_memory = max(machine.most_memory, machine.memory)
    machine.step_s, machine.steps, machine.begun_s = _step_s(sim, g), steps, now
    machine.ends_s = now + machine.step_s * steps
    sim.control.moving += 1
    if steps > 0:
        machine.event = push(sim, machine.ends_s, BATCH, g)
    _show(sim, g)
    return steps == 0


@compiled
def _step_s(sim: Sim, g: int) -> float:
    """Seconds of an iteration: by the prompt table if there is a prompt in it, else by the token table, though what is
    counted there is prompt tokens and here tasks."""
    machine, tokens = sim.machines[g], sim.pick.tokens
    if machine.batch_prompts == 0:
        return _interpolated(sim.step_times.tokens[machine.kind], sim.step_times.token_s[machine.kind], tokens)
    alone_s = _interpolated(sim.step_times.tokens[machine.kind], sim.step_times.prompt_s[machine.kind], tokens)
    return alone_s if machine.batch_prompts == machine.batch else alone_s * MIXED_COST


@compiled
def _interpolated(x: Any, y: Any, at: int) -> float:
    """Between the two points about `at`, or on the line through the two that are nearest."""
    i = 1
    while i < len(x) - 1 and x[i] < at:
        i += 1
    return y[i - 1] + (y[i] - y[i - 1]) * (at - x[i - 1]) / (x[i] - x[i - 1])


@compiled
def end(sim: Sim, g: int) -> None:
    """A batch is over: who is done leaves, one by one; a prompt whose tokens are made elsewhere is sent at once."""
    machine, control, batch, now = sim.machines[g], sim.control, sim.lists.batch, sim.control.now
    control.moving -= 1
    machine.iterations += machine.steps
    machine.event, machine.cut = NONE, 0
    _count(sim, g)
    stay, done = 0, 0
    for i in range(machine.batch):
        task = batch[g, i]
        if sim.tasks[task].goal <= machine.iterations:
            sim.picked[done] = task
            done += 1
        else:
            batch[g, stay] = task
            stay += 1
    machine.batch = stay
    for i in range(done):
        task = int(sim.picked[i])
        one, request = sim.tasks[task], sim.requests[task >> 1]
        one.state, one.end_s = DONE, now
        leave(sim, g, task)
        machine.pending -= one.tokens
        if not is_prompt(task):
            machine.memory -= request.memory
            machine.booked -= request.memory
            request.memory = 0
            control.unfinished -= 1
        elif request.moves:
            send(sim, task >> 1)


@compiled
def _count(sim: Sim, g: int) -> None:
    """For time lines: what the batch that has ended computed, and when."""
    machine, totals, server = sim.machines[g], sim.totals[g], sim.servers[g]
    server.begun_s, server.ends_s = machine.begun_s, sim.control.now
    totals.decode_steps += machine.steps
    for i in range(machine.batch):
        task = sim.lists.batch[g, i]
        if is_prompt(task):
            totals.prefilled_tokens += sim.tasks[task].tokens
            totals.forwarded_tokens += sim.tasks[task].tokens
        else:
            totals.forwarded_tokens += machine.steps


@compiled
def _show(sim: Sim, g: int) -> None:
    machine, live = sim.machines[g], sim.live[g]
    live.queued, live.running = machine.requests - machine.batch, machine.batch
    live.kv_free = (MEMORY - machine.memory) // sim.rules.token_bytes
