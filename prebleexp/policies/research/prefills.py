"""What each GPU holds in its prefix cache, and the prefills that it has before it, for routers that weigh both.

The caches are known by what the engines tell of them; there is no guessing what they have evicted. Prefills are the
router's own book: what a request adds when it is routed, in whatever unit, leaves with its first token. What a GPU that
is lost, or back, was said to hold is forgotten, on which the sources of these routers are silent.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.policies.base import Policy
from prebleexp.policies.prefix_index import PrefixIndex, forget, forget_all, matches, prefix_index, store
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import prefill_s
from prebleexp.sim.records import GPUS, View
from prebleexp.sim.types import Setup

NS = 1e-9


class Prefills(NamedTuple):
    """Routers that remember more have these fields and their own."""

    caches: PrefixIndex
    hits: Any
    """(GPUs,) leading tokens of the prompt in hand that each holds"""
    queued: Any
    """(GPUs,) sums over requests without a first token"""
    booked: Any
    """(requests,) what each added"""


def prefills(setup: Setup) -> Prefills:
    """The prefills that are booked: none yet."""
    hits, queued = np.zeros((2, setup.gpus), np.int64)
    return Prefills(prefix_index(setup), hits, queued, np.zeros(setup.requests, np.int64))


@compiled
def look_up(mine: Prefills, view: View, request: int) -> None:
    """Find what each GPU holds of the prompt."""
    matches(mine.caches, view, request, mine.hits)
    view.work[GPUS] += len(view.candidates)


@compiled
def missing(mine: Prefills, view: View, request: int, gpu: int) -> int:
    """Prompt tokens that the GPU does not hold."""
    return int(view.requests[request].prompt_tokens - mine.hits[gpu])


@compiled
def prefill_ns(mine: Prefills, view: View, request: int, gpu: int) -> int:
    """How long the GPU would take for what is missing, alone in a step. One token at least is computed."""
    row = view.requests[request]
    return round(prefill_s(view.costs[gpu], max(1, missing(mine, view, request, gpu)), row.prompt_tokens) / NS)


@compiled
def book(mine: Prefills, request: int, gpu: int, amount: int) -> None:
    """The request is sent to a GPU."""
    mine.booked[request] = amount
    mine.queued[gpu] += amount


@compiled
def computed(mine: Prefills, view: View, request: int) -> None:
    """The request waits for no prefill any more."""
    mine.queued[view.requests[request].gpu] -= mine.booked[request]
    mine.booked[request] = 0


class Prefilling(Policy):
    """A policy that remembers `Prefills`, of whose requests it looks each up and books it (`look_up`, `book`)."""

    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> Any:
        return prefills(setup)

    def first_token(self, mine: Any, view: View, request: int, now: float) -> None:
        computed(mine, view, request)

    def finished(self, mine: Any, view: View, request: int, now: float) -> None:
        computed(mine, view, request)  # it gave up before its first token, or was lost

    def changed(self, mine: Any, view: View, gpu: int, now: float) -> None:
        forget_all(mine.caches, gpu)

    def stored(self, mine: Any, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        store(mine.caches, view, request, gpu, tokens)

    def evicted(self, mine: Any, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        forget(mine.caches, view, request, gpu, tokens)
