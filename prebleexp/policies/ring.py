"""Consistent hashing: points of all workers on a ring, and the way clockwise from one, loads bounded or not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from prebleexp.policies import keys
from prebleexp.policies.candidates import is_candidate
from prebleexp.policies.hashes import Hashed, Hashes
from prebleexp.policies.loads import Loads, look
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import GPUS, NONE, View
from prebleexp.sim.types import Ints, Setup

UNBOUNDED = math.inf


class Ring(NamedTuple):
    points: Any
    """(points,) ascending"""
    workers: Any
    """(points,) whose each is"""


class OnRing(NamedTuple):
    ring: Ring
    places: Any
    """(requests,) the point that each begins at"""


class Bounded(NamedTuple):
    """A hash ring whose GPUs take no more than a bounded load: `OnRing`, and the loads."""

    ring: Ring
    places: Any
    loads: Loads
    """… what must not be too far above the mean"""


def ring(setup: Setup, hashed: Hashed, form: str, count: int) -> Ring:
    """`count` points of every GPU: the hashes of `form`, into which its name and a number from 0 on are put."""
    return _ring(hashed, tuple(keys.worker(gpu) for gpu in range(setup.gpus)), form, count)


@lru_cache(maxsize=32)
def _ring(hashed: Hashed, names: Sequence[str], form: str, count: int) -> Ring:
    """Of equal points the last remains, as in a map."""
    points = hashed([form.format(name, number) for name in names for number in range(count)])
    points, last = np.unique(points[::-1], return_index=True)
    return Ring(points, ((len(names) * count - 1 - last) // count).astype(np.int32))


def places(ring: Ring, hashes: Hashes) -> Ints:
    """Which point is the first at or above each hash; the first of all where there is none."""
    found: Ints = (np.searchsorted(ring.points, hashes) % len(ring.points)).astype(np.int32)
    return found


@compiled
def clockwise(ring: Ring, place: int, view: View, most: float) -> int:
    """The first candidate at or behind a point with no more than `most` requests that were sent to it and are not
    finished; the first of all if none is so."""
    first, at = NONE, place
    for _ in range(len(ring.workers)):
        gpu = int(ring.workers[at])
        view.work[GPUS] += 1
        if is_candidate(view.candidates, gpu):
            if view.sent[gpu].outstanding <= most:
                return gpu
            if first == NONE:
                first = gpu
        at = at + 1 if at + 1 < len(ring.workers) else 0
    return first


@compiled
def bound(loads: Loads, view: View, factor: float) -> float:
    """So many times the mean load of candidates, the request in hand counted too; without an end if they have none."""
    look(loads, view)
    total, candidates = loads.total[0], view.candidates
    if len(candidates) < len(view.sent):
        total = 0
        for gpu in candidates:
            total += loads.outstanding[gpu]
    view.work[GPUS] += len(candidates)
    return (total + 1) / len(candidates) * factor if total > 0 else UNBOUNDED
