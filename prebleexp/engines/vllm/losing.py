"""A GPU goes down: its queue, its batch and its blocks are gone. And of a request that waits for KV from another GPU,
when that goes down: it leaves, and its blocks are free."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.vllm import queue
from prebleexp.engines.vllm.blocks import clear, release
from prebleexp.engines.vllm.giving_up import stop_waiting
from prebleexp.engines.vllm.publishing import publish
from prebleexp.engines.vllm.records import GPU, JOB, Engines
from prebleexp.engines.vllm.rooms import begin_gpus, begin_jobs
from prebleexp.sim.compiled import compiled
from prebleexp.sim.pulling import RESERVED
from prebleexp.sim.records import World
from prebleexp.sim.types import Longs, records


def lose(mine: Any, world: Any, g: int, requests: Longs) -> None:
    """`requests` are as if they had never come, or know what was shown of them. Nobody is told."""
    _drop(mine, g, requests)
    gpus = records(1, GPU)
    begin_gpus(gpus, mine.settings)
    mine.gpus[g] = gpus[0]
    mine.crossing[g] = mine.recent[g] = 0
    forget(mine, world, requests)


def withdraw(mine: Any, world: Any, g: int, request: int) -> None:
    """One that waits for KV, or has blocks for it, leaves as if it had never come."""
    _leave(mine, world, g, request)
    forget(mine, world, [request])


def forget(mine: Any, world: Any, requests: Any) -> None:
    """They are as if they had never come, or know what was shown of them."""
    jobs, seen = records(len(requests), JOB), world.seen.requests[requests]
    begin_jobs(jobs, seen.prompt_tokens, mine.jobs.limit[requests], seen.answer_segment)
    if world.rules.resume:
        jobs.known += world.jobs.output_seen[requests]
    mine.jobs[requests], mine.preemptions[requests] = jobs, 0


@compiled
def _drop(mine: Engines, g: int, requests: Any) -> None:
    for row in range(mine.gpus[g].running):
        release(mine, g, int(mine.running[g, row]))
    for request in requests:
        if mine.jobs[request].running == 0 and mine.jobs[request].blocks > 0:  # its KV was read, and it waits
            release(mine, g, request)
    clear(mine, g)


@compiled
def _leave(mine: Engines, world: World, g: int, request: int) -> None:
    if world.jobs[request].state != RESERVED:  # else it is in no queue
        queue.take_out(mine, g, request)
    stop_waiting(mine, world, g, request)
    publish(mine, world, g)
