"""What tiers of KV behind the GPUs' caches hold of prompts, as they said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from prebleexp.policies import prefix_index
from prebleexp.policies.prefix_index import PrefixIndex
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup


class Below(NamedTuple):
    heard: bool
    """whether there are tiers, and they are listened to"""
    held: PrefixIndex
    """by place: each GPU's host, each one's disk, the store for all"""
    kept: Any
    """(places,) leading tokens of the prompt in hand that are there"""


def below(setup: Setup, heard: bool) -> Below:
    """Nothing yet; `heard`: whether tiers are listened to, if there are any."""
    places = 2 * setup.gpus + 1 if setup.tiers else 1
    held = prefix_index.prefix_index(replace(setup, gpus=places))
    return Below(setup.tiers and heard, held, np.zeros(places, np.int64))


@compiled
def copied(tiers: Below, view: View, request: int, place: int, tokens: int) -> None:
    if tiers.heard:
        prefix_index.store(tiers.held, view, request, place, tokens)


@compiled
def dropped(tiers: Below, view: View, request: int, place: int, tokens: int) -> None:
    if tiers.heard:
        prefix_index.forget(tiers.held, view, request, place, tokens)


@compiled
def forget_host(tiers: Below, gpu: int) -> None:
    """The GPU is gone, or back, and its host is empty."""
    if tiers.heard:
        prefix_index.forget_all(tiers.held, gpu)


@compiled
def look(tiers: Below, view: View, request: int) -> None:
    """Look up what each place has of a prompt, which is the one in hand from now on."""
    prefix_index.matches(tiers.held, view, request, tiers.kept)


@compiled
def ends(tiers: Below, gpu: int, here: int) -> tuple[int, int, int]:
    """Where of the prompt in hand the parts end that the GPU's host, its disk and the store for all have, each behind
    those before it; its cache has `here` tokens."""
    kept = tiers.kept
    host = max(here, int(kept[gpu]))
    disk = max(host, int(kept[(len(kept) >> 1) + gpu]))
    return host, disk, max(disk, int(kept[-1]))
