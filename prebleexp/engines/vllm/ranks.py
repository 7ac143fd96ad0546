"""What data-parallel ranks that step together remember of each other."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.sim.types import Setup


class Ranks(NamedTuple):
    size: int
    """GPUs of a deployment, one after the other"""
    first: int
    """GPU of the first deployment"""
    sync_interval: int
    """steps after which all ask each other whether any has work"""
    steps: Any
    """(GPUs,) of a deployment, at its first GPU: since the last pause"""
    own_s: Any
    """(GPUs,) what the step in hand takes of each alone; negative: it has nothing to do"""
    empty: Any
    """(GPUs,) whether the step in hand is an empty one"""


def ranks(setup: Setup, sync_interval: int) -> Ranks:
    """At time 0."""
    counts = np.zeros(setup.gpus, np.int64)
    return Ranks(setup.ranks, setup.first, sync_interval, counts, np.zeros(setup.gpus), counts.copy())
