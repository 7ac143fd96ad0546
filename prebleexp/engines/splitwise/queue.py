"""The queue of a machine: who waits, in which order, and how often each was passed over.

Every time that a batch is formed, each waiting request's first task that is not chosen is passed over once more. That
is not counted task by task: it is the number of batches formed since it waits.
"""

from __future__ import annotations

from prebleexp.engines.splitwise.records import DONE, PREEMPTED, QUEUED, Sim
from prebleexp.engines.splitwise.rows import insert, remove
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE


@compiled
def is_prompt(task: int) -> bool:
    return task & 1 == 0


@compiled
def first_task(sim: Sim, request: int) -> int:
    """Of a request, on the machine where it is: its prompt until that is done."""
    return 2 * request + (1 if sim.tasks[2 * request].state == DONE else 0)


@compiled
def passed_over(sim: Sim, task: int) -> int:
    """How often a task was passed over."""
    one = sim.tasks[task]
    return one.passes if one.since == NONE else one.passes + sim.machines[one.machine].batches - one.since


@compiled
def pass_over(sim: Sim, task: int) -> None:
    """From now on it is counted how often: it is its request's first."""
    sim.tasks[task].since = sim.machines[sim.tasks[task].machine].batches


@compiled
def queue(sim: Sim, task: int) -> None:
    """Let a task wait: fewest passes first, then by arrival, as far as those who wait are in that order; its place is
    found by bisection, as they stand now. In orca's queue it is the last."""
    g = int(sim.tasks[task].machine)
    machine, waiting = sim.machines[g], sim.lists.waiting
    low, high = 0, int(machine.waiting)
    if sim.rules.orca:
        low = high
    passes, arrival_s = passed_over(sim, task), sim.requests[task >> 1].arrival_s
    while low < high:
        middle = (low + high) // 2
        other = int(waiting[g, middle])
        theirs = passed_over(sim, other)
        if passes < theirs or (passes == theirs and arrival_s < sim.requests[other >> 1].arrival_s):
            high = middle
        else:
            low = middle + 1
    insert(waiting, g, machine.waiting, low, task)
    machine.waiting += 1
    if is_prompt(task):
        sim.lists.prompts[g, machine.prompts] = task
        machine.prompts += 1
    if sim.tasks[task].state == PREEMPTED:
        sim.lists.preempted[g, machine.preempted] = task
        machine.preempted += 1


@compiled
def unqueue(sim: Sim, task: int) -> None:
    """A task no longer waits on its machine."""
    one = sim.tasks[task]
    g = int(one.machine)
    machine, lists = sim.machines[g], sim.lists
    one.passes, one.since = passed_over(sim, task), NONE
    machine.waiting = remove(lists.waiting, g, machine.waiting, task)
    if is_prompt(task):
        machine.prompts = remove(lists.prompts, g, machine.prompts, task)
    if one.state == PREEMPTED:
        machine.preempted = remove(lists.preempted, g, machine.preempted, task)


@compiled
def enter(sim: Sim, task: int) -> None:
    """A task comes to its machine, its request with it if that is not there."""
    one, request = sim.tasks[task], task >> 1
    g = int(one.machine)
    machine = sim.machines[g]
    one.state = QUEUED
    if first_task(sim, request) == task:
        requests, arrival_s = sim.lists.requests, sim.requests[request].arrival_s
        low, high = 0, int(machine.requests)
        while low < high:
            middle = (low + high) // 2
            if arrival_s < sim.requests[requests[g, middle]].arrival_s:
                high = middle
            else:
                low = middle + 1
        insert(requests, g, machine.requests, low, request)
        machine.requests += 1
        sim.control.most_requests = max(sim.control.most_requests, machine.requests)
        pass_over(sim, task)
    queue(sim, task)
