"""A GPU goes down: its queue, its batch and its blocks are gone. Or it gives back what waits there. And a request whose
KV was to come from a GPU that is down leaves."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.engines.vllm import queue as waiting
from prebleexp.engines.vllm.blocks import clear
from prebleexp.engines.vllm.giving_up import stop_waiting
from prebleexp.engines.vllm.hearing import hear_all
from prebleexp.engines.vllm.publishing import publish
from prebleexp.engines.vllm.records import GPU, JOB, PULLS, STEPS, Engines
from prebleexp.engines.vllm.rooms import begin_gpus, begin_groups, begin_jobs
from prebleexp.engines.vllm.tables import release
from prebleexp.engines.vllm.tiering import break_off
from prebleexp.sim.compiled import compiled
from prebleexp.sim.keeping import forget_uses
from prebleexp.sim.pools import PUSH_AT_END, prefills
from prebleexp.sim.pulling import RESERVED
from prebleexp.sim.records import NONE, World
from prebleexp.sim.states import State
from prebleexp.sim.types import Longs, records

HELD = int(State.HELD)


def lose(mine: Any, world: Any, g: int, requests: Longs) -> None:
    """`requests` are as if they had never come, or know what was shown of them. Nobody is told."""
    if mine.settings.tiered:
        break_off(mine, world, g)
    _drop(mine, world, g, requests)
    gpus = records(1, GPU)
    begin_gpus(gpus, mine.settings)
    mine.gpus[g] = gpus[0]
    mine.crossing[g] = mine.recent[g] = 0
    if mine.groups is not None:
        begin_groups(mine, g)
    forget(mine, world, requests)


def withdraw(mine: Any, world: Any, g: int, request: int) -> None:
    """One that waits for KV, or has blocks for it, leaves as if it had never come."""
    if not (world.pools.protocol == PUSH_AT_END and world.jobs[request].state == HELD):  # else it looks for room
        _leave(mine, world, g, request)
    forget(mine, world, np.array([request]))


def give_back(mine: Any, world: Any, g: int) -> Longs:
    """The requests of its queue that hold nothing, of which nothing is under way, and which have no token of this
    attempt: they are taken out of it, and so is whoever gave up."""
    gpu, live, queue = mine.gpus[g], world.live[g], _queue(mine, g)
    jobs = mine.jobs[queue]
    waits = (jobs.finished == 0) & (jobs.under_way == 0) & (jobs.blocks == 0)
    waits &= np.isnan(world.seen.requests.ttft_s[queue])
    given, kept = queue[waits], queue[~waits & (jobs.finished == 0)]
    gpu.queued -= len(given)
    gpu.waiting_tokens -= jobs.known[waits & (jobs.filling != PULLS)].sum()
    mine.jobs.heap_left[kept], mine.jobs.heap_right[kept] = np.append(kept[1:], NONE)[: len(kept)], NONE
    gpu.queue, gpu.queue_last = (kept[0], kept[-1]) if len(kept) else (NONE, NONE)
    forget(mine, world, given)
    live.queued, live.waiting_tokens = gpu.queued + gpu.reserved, gpu.waiting_tokens
    return given


def _queue(mine: Any, g: int) -> Longs:
    """All that is in a GPU's heap, in order: what is in order is a heap."""
    found = [int(mine.gpus[g].queue)] if mine.gpus[g].queue != NONE else []
    for one in found:
        found += [int(side) for side in (mine.jobs[one].heap_left, mine.jobs[one].heap_right) if side != NONE]
    queue = np.array(found, np.int64)
    return queue[np.argsort(mine.jobs.heap_key[queue])]


def remembered(mine: Any) -> Longs:
    """Rows of requests that wait or run, or are in steps that are not over. Whoever gave up may still be in the queue,
    and be passed over when its turn comes."""
    found = [mine.running[g, : gpu.running] for g, gpu in enumerate(mine.gpus)]
    for g, gpu in enumerate(mine.gpus):
        if gpu.queue != NONE:
            found.append(_queue(mine, g))
        for number in range(int(gpu.over), int(gpu.scheduled)):
            slot = number % STEPS
            found.append(mine.chosen[g, slot, : mine.steps[g, slot].chosen].request)
    return np.concatenate(found).astype(np.int64)


def forget(mine: Any, world: Any, requests: Longs) -> None:
    """They are as if they had never come, or know what was shown of them."""
    jobs, seen = records(len(requests), JOB), world.seen.requests[requests]
    begin_jobs(jobs, seen.prompt_tokens, mine.jobs.limit[requests], seen.answer_segment)
    jobs.known += world.jobs.shown[requests]
    mine.jobs[requests], mine.preemptions[requests] = jobs, 0
    _forget_stores(world, requests[: len(world.tiers.jobs)])


def _forget_stores(world: Any, requests: Longs) -> None:
    """No store is theirs any more, and they have used nothing."""
    for request in requests:  # none without tiers
        forget_uses(world.tiers, request)
    stores = world.tiers.stores[: world.tiers.control.stores.sum()]
    stores.counts[np.isin(stores.request, requests)] = 0
    world.tiers.jobs[requests] = 0


@compiled
def _drop(mine: Engines, world: World, g: int, requests: Longs) -> None:
    if prefills(world, g):
        hear_all(mine, world, g)
    for row in range(mine.gpus[g].running):
        release(mine, g, int(mine.running[g, row]))
    for request in requests:  # some have blocks and do not run, where requests are moved
        release(mine, g, int(request))
    clear(mine, g)


@compiled
def _leave(mine: Engines, world: World, g: int, request: int) -> None:
    if world.jobs[request].state != RESERVED:  # else it is in no queue
        waiting.take_out(mine, g, request)
    stop_waiting(mine, world, g, request)
    publish(mine, world, g)
