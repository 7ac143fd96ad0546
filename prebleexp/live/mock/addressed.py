"""The router of a mock: each GPU has a port of its own, so whoever sends a request has chosen where it goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.policies.base import HOLD, Policy
from prebleexp.policies.candidates import is_candidate
from prebleexp.sim.notices import EVICTED, STORED
from prebleexp.sim.records import NEWS, View
from prebleexp.sim.types import Setup, records

ROOM = 1 << 16
"""rows of what one event may bring of caches"""


class Addresses(NamedTuple):
    gpu: Any
    """(n,) to which each request came"""
    heard: Any
    """`NEWS` of caches since somebody looked"""
    rows: Any
    """(1,) of these in use"""


@dataclass(frozen=True)
class Addressed(Policy):
    """The GPU at whose port it came; while that may get none, it waits."""

    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> Addresses:
        return Addresses(np.zeros(setup.requests, np.int64), records(ROOM, NEWS), np.zeros(1, np.int64))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        gpu = mine.gpu[request]
        return gpu if is_candidate(view.candidates, gpu) else HOLD


@dataclass(frozen=True)
class Listening(Addressed):
    """`Addressed`, and it writes down what caches store and drop."""

    def stored(self, mine: Any, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        one = mine.heard[mine.rows[0]]
        one.kind, one.request, one.gpu, one.tokens = STORED, request, gpu, tokens
        mine.rows[0] += 1

    def evicted(self, mine: Any, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        one = mine.heard[mine.rows[0]]
        one.kind, one.request, one.gpu, one.tokens = EVICTED, request, gpu, tokens
        mine.rows[0] += 1
