"""A GPU goes down: its queue, its batch and its blocks are gone."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.vllm.blocks import clear, release
from prebleexp.engines.vllm.records import GPU, JOB, Engines
from prebleexp.engines.vllm.rooms import begin_gpus, begin_jobs
from prebleexp.sim.compiled import compiled
from prebleexp.sim.types import Longs, records


def lose(mine: Any, world: Any, g: int, requests: Longs) -> None:
    """`requests` are as if they had never come. Nobody is told."""
    _drop(mine, g, requests)
    gpus, jobs, seen = records(1, GPU), records(len(requests), JOB), world.seen.requests[requests]
    begin_gpus(gpus, mine.settings)
    begin_jobs(jobs, seen.prompt_tokens, mine.jobs.limit[requests], seen.answer_segment)
    mine.gpus[g], mine.jobs[requests], mine.preemptions[requests] = gpus[0], jobs, 0
    mine.crossing[g] = mine.recent[g] = 0


@compiled
def _drop(mine: Engines, g: int, requests: Longs) -> None:
    for row in range(mine.gpus[g].running):
        release(mine, g, int(mine.running[g, row]))
    for request in requests:  # some have blocks and do not run, where requests are moved
        release(mine, g, int(request))
    clear(mine, g)
