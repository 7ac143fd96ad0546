"""KubeAI's least load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.policies.base import Policy
from prebleexp.policies.candidates import is_candidate
from prebleexp.policies.choices import count_equal, least_of, nth_equal
from prebleexp.policies.loads import Loads, loads, look
from prebleexp.sim.compiled import compiled
from prebleexp.sim.draws import below, generator
from prebleexp.sim.records import GPUS, NONE, View
from prebleexp.sim.types import Longs, Setup

GROUP = 8
"""slots of a group of Go's maps: up to so many entries fill the first ones"""


class InMap(NamedTuple):
    draws: Any
    slots: Any
    """(slots,) the GPU in each, -1: none"""
    loads: Loads


@dataclass(frozen=True)
class KubeAILeastLoad(Policy):
    """The GPU with the fewest requests that were sent to it and are not finished; of several the first in a map, looked
    through from any of its slots on. Of up to 8 GPUs, which fill the first slots of 8, the first is met far more often.

    KubeAI (commit f442a2cd6) LeastLoad, replayed from recordings of its own Go code with 4 endpoints, whose ties go as
    Go's maps do. Where more than 8 lie in a map is drawn once a run, as Go's hashes would, and unproven."""

    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> InMap:
        return InMap(generator(setup.seed), slots(setup.gpus, setup.rng), loads(setup))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        look(mine.loads, view)
        requests = mine.loads.outstanding
        least = least_of(requests, view.candidates)
        view.work[GPUS] += len(view.candidates)
        if count_equal(requests, view.candidates, least) == 1:
            return nth_equal(requests, view.candidates, least, 0)
        return met_first(mine, view, requests, least)


@compiled
def met_first(mine: InMap, view: View, requests: Any, least: int) -> int:
    """From any slot on, the first candidate with so many."""
    count = len(mine.slots)
    at = below(mine.draws, count)
    for _ in range(count):
        gpu = mine.slots[at]
        if gpu != NONE and requests[gpu] == least and is_candidate(view.candidates, gpu):
            return int(gpu)
        at = at + 1 if at + 1 < count else 0
    return int(view.candidates[0])


def slots(gpus: int, rng: np.random.Generator) -> Longs:
    """What a Go map has in its slots: groups are filled from their first slot on, an eighth of all stays free."""
    size = GROUP
    while gpus > GROUP and gpus > 7 * size // 8:
        size *= 2
    groups = np.full((size // GROUP, GROUP), NONE)
    for gpu, group in enumerate(rng.integers(len(groups), size=gpus).tolist()):
        while groups[group, -1] != NONE:
            group = (group + 1) % len(groups)
        groups[group, np.argmax(groups[group] == NONE)] = gpu
    return groups.ravel()
