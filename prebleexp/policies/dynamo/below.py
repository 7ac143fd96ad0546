"""What tiers of KV behind the GPUs' caches hold of prompts, as they said, and what that is worth to Dynamo's router."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from prebleexp.policies import prefix_index
from prebleexp.policies.prefix_index import PrefixIndex
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup

WEIGHTS = ("host_cache_hit_weight", "disk_cache_hit_weight", "shared_cache_multiplier")
"""settings of the policy"""


class Below(NamedTuple):
    heard: bool
    """whether there are tiers, and they are listened to"""
    host: float
    """for a block that only the GPU's host has"""
    disk: float
    shared: float
    held: PrefixIndex
    """by place: each GPU's host, each one's disk, the store for all"""
    kept: Any
    """(places,) leading tokens of the prompt in hand that are there"""
    credits: Any
    """(GPUs,) for its blocks that only tiers have"""


def below(setup: Setup, events: bool, host: float, disk: float, shared: float) -> Below:
    """Nothing yet."""
    places = 2 * setup.gpus + 1 if setup.tiers else 1
    held = prefix_index.prefix_index(replace(setup, gpus=places))
    weights = float(host), float(disk), float(shared)
    return Below(setup.tiers and events, *weights, held, np.zeros(places, np.int64), np.zeros(setup.gpus))


@compiled
def copied(tiers: Below, view: View, request: int, place: int, tokens: int) -> None:
    if tiers.heard:
        prefix_index.store(tiers.held, view, request, place, tokens)


@compiled
def dropped(tiers: Below, view: View, request: int, place: int, tokens: int) -> None:
    if tiers.heard:
        prefix_index.forget(tiers.held, view, request, place, tokens)


@compiled
def look(tiers: Below, view: View, request: int, overlap: Any, size: int) -> None:
    """Write what counts for blocks that each GPU's tiers have, and its cache, or a tier before them, has not."""
    kept, gpus = tiers.kept, len(overlap)
    prefix_index.matches(tiers.held, view, request, kept)
    for gpu in range(gpus):
        here = int(overlap[gpu])
        host = max(here, int(kept[gpu]) // size)
        disk = max(host, int(kept[gpus + gpu]) // size)
        shared = max(disk, int(kept[2 * gpus]) // size)
        credit = tiers.host * (host - here) + tiers.disk * (disk - host) + tiers.shared * (shared - disk)
        tiers.credits[gpu] = credit
