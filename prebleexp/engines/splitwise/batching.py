"""Who is in a machine's next batch, of at most 512 tasks and 2,048 tokens; the first may have more.

In this order: those who were passed over four times; prompts by arrival, until one does not fit; those who were
preempted; those of the last batch; then all by arrival, until one does not fit.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.splitwise.queue import first_task, is_prompt, passed_over, queue, unqueue
from prebleexp.engines.splitwise.records import PREEMPTED, QUEUED, RUNNING, Sim
from prebleexp.engines.splitwise.rows import remove
from prebleexp.engines.splitwise.tables import MEMORY
from prebleexp.sim.compiled import compiled

MOST_TASKS, MOST_TOKENS = 512, 2048
MOST_PASSES = 4


@compiled
def form(sim: Sim, g: int) -> None:
    """Choose machine g's batch. Who was in the last and is not in this one is preempted, and keeps its memory."""
    machine, pick = sim.machines[g], sim.pick
    pick.number += 1
    pick.tasks = pick.tokens = 0
    pick.memory = machine.memory
    if sim.rules.orca:
        _choose_by_arrival(sim, g)
    else:
        _choose(sim, g)
    _preempt_others(sim, g)
    for i in range(pick.tasks):
        if sim.tasks[sim.picked[i]].state != RUNNING:
            _join(sim, g, int(sim.picked[i]))
    machine.batch_tokens = pick.tokens
    machine.batches += 1


@compiled
def _choose(sim: Sim, g: int) -> None:
    machine, lists, pick = sim.machines[g], sim.lists, sim.pick
    for i in range(machine.waiting):
        task = int(lists.waiting[g, i])
        if passed_over(sim, task) < MOST_PASSES or not _has_place(pick, sim.tasks[task]):
            break
        if not _is_picked(sim, task):
            _take_if_it_fits(sim, task)
    for i in range(machine.prompts):
        task = int(lists.prompts[g, i])
        if not _has_place(pick, sim.tasks[task]):
            break
        if not _is_picked(sim, task) and not _take_if_it_fits(sim, task):
            break
    for i in range(machine.preempted):
        task = int(lists.preempted[g, i])
        if not _has_place(pick, sim.tasks[task]):
            break
        if not _is_picked(sim, task):
            _take(sim, task)
    for i in range(machine.batch):
        task = int(lists.batch[g, i])
        if not _has_place(pick, sim.tasks[task]):
            break
        if not _is_picked(sim, task):
            _take(sim, task)
    for i in range(machine.requests):
        if pick.tasks == MOST_TASKS:
            break
        task = first_task(sim, int(lists.requests[g, i]))
        if not _is_picked(sim, task) and not (_has_place(pick, sim.tasks[task]) and _take_if_it_fits(sim, task)):
            break


@compiled
def _choose_by_arrival(sim: Sim, g: int) -> None:
    """Orca: those of the last batch, then all by arrival, until one finds no memory; tokens have no limit."""
    machine, lists, pick = sim.machines[g], sim.lists, sim.pick
    for i in range(machine.batch):
        _take(sim, int(lists.batch[g, i]))
    for i in range(machine.requests):
        if pick.tasks == MOST_TASKS:
            break
        task = first_task(sim, int(lists.requests[g, i]))
        if not _is_picked(sim, task) and not _take_if_it_fits(sim, task):
            break


@compiled
def _has_place(pick: Any, task: Any) -> bool:
    return pick.tasks < MOST_TASKS and (pick.tasks == 0 or pick.tokens + task.tokens <= MOST_TOKENS)


@compiled
def _is_picked(sim: Sim, task: int) -> bool:
    """Whether its request is: no more than one task of it can be."""
    return sim.requests[task >> 1].picked == sim.pick.number


@compiled
def _take_if_it_fits(sim: Sim, task: int) -> bool:
    one, pick = sim.tasks[task], sim.pick
    if one.state == QUEUED:
        if pick.memory + one.bytes > MEMORY:
            return False
        pick.memory += one.bytes
    _take(sim, task)
    return True


@compiled
def _take(sim: Sim, task: int) -> None:
    pick = sim.pick
    sim.picked[pick.tasks] = task
    sim.requests[task >> 1].picked = pick.number
    pick.tasks += 1
    pick.tokens += sim.tasks[task].tokens


@compiled
def _preempt_others(sim: Sim, g: int) -> None:
    machine, batch = sim.machines[g], sim.lists.batch
    stay = 0
    for i in range(machine.batch):
        task = int(batch[g, i])
        if _is_picked(sim, task):
            batch[g, stay] = task
            stay += 1
        else:
            one = sim.tasks[task]
            one.state, one.left, one.since = PREEMPTED, one.goal - machine.iterations, machine.batches
            one.end_s = sim.control.now
            queue(sim, task)
    machine.batch = stay


@compiled
def _join(sim: Sim, g: int, task: int) -> None:
    machine, one = sim.machines[g], sim.tasks[task]
    unqueue(sim, task)
    sim.lists.batch[g, machine.batch] = task
    machine.batch += 1
    machine.batch_prompts += is_prompt(task)
    one.goal = machine.iterations + one.left


@compiled
def leave(sim: Sim, g: int, task: int) -> None:
    """A task is done: so is its request on this machine, unless its tokens are made here too."""
    machine, request = sim.machines[g], task >> 1
    machine.batch_prompts -= is_prompt(task)
    if is_prompt(task) and not sim.requests[request].moves:
        sim.tasks[task + 1].since = machine.batches
    else:
        machine.requests = remove(sim.lists.requests, g, machine.requests, request)
