"""What blocks in tiers behind the GPUs' caches are worth to Dynamo's router."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.policies import below
from prebleexp.policies.below import Below
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup

WEIGHTS = ("host_cache_hit_weight", "disk_cache_hit_weight", "shared_cache_multiplier")
"""settings of the policy"""


class Credits(NamedTuple):
    tiers: Below
    host: float
    """for a block that only the GPU's host has"""
    disk: float
    shared: float
    each: Any
    """(GPUs,) for blocks of the prompt in hand that only tiers have"""


def credits_of(setup: Setup, events: bool, host: float, disk: float, shared: float) -> Credits:
    """Credits for tiers, of which none is known to hold anything."""
    return Credits(below.below(setup, events), float(host), float(disk), float(shared), np.zeros(setup.gpus))


@compiled
def look(mine: Credits, view: View, request: int, overlap: Any, size: int) -> None:
    """Write what counts for blocks that each GPU's tiers have, and its cache, or a tier before them, has not."""
    below.look(mine.tiers, view, request)
    for gpu in range(len(overlap)):
        here = int(overlap[gpu])
        host, disk, shared = below.ends(mine.tiers, gpu, here * size)
        host, disk, shared = host // size, disk // size, shared // size
        mine.each[gpu] = mine.host * (host - here) + mine.disk * (disk - host) + mine.shared * (shared - disk)
