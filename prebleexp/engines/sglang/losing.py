"""A GPU goes down: its queue, its batch and its tree are gone. Or it gives back what waits there. And a request of
which another GPU that is down had a part leaves."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.engines.sglang.giving_up import take_back
from prebleexp.engines.sglang.queue import take_out
from prebleexp.engines.sglang.records import JOB, NOBODY
from prebleexp.engines.sglang.rooms import begun_gpus
from prebleexp.engines.sglang.stepping import publish
from prebleexp.engines.sglang.tree import clear
from prebleexp.sim.pools import decodes
from prebleexp.sim.records import DOWN, NONE
from prebleexp.sim.types import Longs, records


def lose(mine: Any, world: Any, g: int, requests: Longs) -> None:
    """`requests` are as if they had never come. Nobody is told."""
    clear(mine, g)
    mine.gpus[g] = begun_gpus(1, mine.settings)[0]
    mine.lists[g] = NOBODY
    mine.due[g] = mine.recent[g] = 0
    forget(mine, requests)


def withdraw(mine: Any, world: Any, g: int, request: int) -> None:
    """One that waits for KV, or for whom KV is computed, leaves as if it had never come."""
    take_back(mine, world, g, request)
    forget(mine, np.array([request]))
    if world.servers[g].stage != DOWN:  # else what it told last stands
        publish(mine, world, g)


def give_back(mine: Any, world: Any, g: int) -> Longs:
    """The requests of its queue that have no token of this attempt: they are taken out of it."""
    queue, one = [], int(mine.gpus[g].first_waiting)
    while one != NONE:
        queue.append(one)
        one = int(mine.jobs[one].behind)
    waiting = np.array(queue, np.int64)
    given = waiting[np.isnan(world.seen.requests.ttft_s[waiting])]
    for request in given.tolist():
        take_out(mine, g, request)
    if not decodes(world, g):
        mine.gpus[g].waiting_tokens -= mine.jobs.prompt[given].sum()
    forget(mine, given)
    publish(mine, world, g)
    return given


def forget(mine: Any, requests: Longs) -> None:
    """They are as if they had never come."""
    jobs, was = records(len(requests), JOB), mine.jobs[requests]
    for name in ("prompt", "shown", "target", "max_new"):
        jobs[name] = was[name]
    mine.jobs[requests], mine.retractions[requests] = jobs, 0
