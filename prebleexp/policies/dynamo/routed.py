"""What was routed to each worker of late, and counts as cached there for a time (router_ttl_secs)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.policies.dynamo import prompt_sets
from prebleexp.policies.dynamo.prompt_sets import PromptSets
from prebleexp.policies.growing import longer
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import ENTRIES, NONE, View
from prebleexp.sim.types import Setup


class Routed(NamedTuple):
    sets: PromptSets
    order: Any
    """(decisions,) the request of each, in order; room for one a request at first; …"""
    where: Any
    """… its GPU, -1: it counts no more; …"""
    times: Any
    """… and when it was"""
    ends: Any
    """(2,) rows of these: the oldest that counts, behind the newest"""


def routed(setup: Setup, block_size: int) -> Routed:
    """Empty books of what was routed where; blocks have `block_size` tokens."""
    order, where = np.zeros((2, setup.requests), np.int32)
    sets = prompt_sets.prompt_sets(setup, block_size)
    return Routed(sets, order, where, np.zeros(setup.requests), np.zeros(2, np.int64))


@compiled
def lacks_room(mine: Routed, view: View, request: int) -> int:
    """Whether there may be none for one more decision on the request."""
    return int(mine.ends[1] == len(mine.times) or prompt_sets.lacks_room(mine.sets, view, request))


def with_more_room(mine: Routed, view: Any, request: int) -> Routed:
    if mine.ends[1] == len(mine.times):
        mine = mine._replace(order=longer(mine.order), where=longer(mine.where), times=longer(mine.times))
    return mine._replace(sets=prompt_sets.with_more_room(mine.sets, view, request))


@compiled
def look_up(mine: Routed, view: View, request: int, into: Any) -> None:
    """Write to into[g] how many leading blocks of the prompt count as cached on GPU g."""
    prompt_sets.find(mine.sets, view, request)
    prompt_sets.shared(mine.sets, request, into)


@compiled
def add(mine: Routed, request: int, gpu: int, now: float) -> None:
    """The prompt, which was looked up, goes to the GPU."""
    newest = mine.ends[1]
    prompt_sets.add(mine.sets, request, gpu)
    mine.order[newest], mine.where[newest], mine.times[newest] = request, gpu, now
    mine.ends[1] = newest + 1


@compiled
def expire(mine: Routed, view: View, ttl_s: float, now: float) -> None:
    """What was routed so long ago no longer counts, unless it was routed again."""
    while mine.ends[0] < mine.ends[1] and mine.times[mine.ends[0]] + ttl_s <= now:
        _remove(mine, int(mine.ends[0]))
        mine.ends[0] += 1
        view.work[ENTRIES] += 1


@compiled
def forget_all(mine: Routed, gpu: int) -> None:
    """Nothing that was routed to the GPU counts any more."""
    for row in range(mine.ends[0], mine.ends[1]):
        if mine.where[row] == gpu:
            _remove(mine, row)


@compiled
def _remove(mine: Routed, row: int) -> None:
    if mine.where[row] != NONE:
        prompt_sets.remove(mine.sets, int(mine.order[row]), int(mine.where[row]))
        mine.where[row] = NONE
