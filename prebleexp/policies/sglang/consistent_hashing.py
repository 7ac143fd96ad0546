"""SGLang's consistent hashing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.checks import flag
from prebleexp.policies.base import Policy
from prebleexp.policies.hashes import Names, blake3_64, of_sessions
from prebleexp.policies.ring import UNBOUNDED, Ring, clockwise, places, ring
from prebleexp.sim.draws import below, generator
from prebleexp.sim.records import NONE, View
from prebleexp.sim.types import Setup

POINTS = 150
"""of a worker"""


class Hashed(NamedTuple):
    draws: Any
    ring: Ring
    hashes: Any
    """(requests,) of their sessions"""
    places: Any
    """(requests,) where these lie on the ring"""


@dataclass(frozen=True)
class SGLangConsistentHashing(Policy):
    """By the hash of a request's session, whatever the load. As released, the remainder of dividing it by the number
    of GPUs; with `ring`, the next of 150 points a GPU. Requests without a session go anywhere.

    sglang-router 0.3.2. Without `ring` replayed from recordings of the wheel: its HTTP router finds no ring unless it
    runs with --enable-igw. The ring is read from its source, and was not run."""

    ring: bool = False
    """whether it finds its ring"""

    reads_lengths: ClassVar[bool] = False

    def __post_init__(self) -> None:
        flag("policy.ring", self.ring)

    def start(self, setup: Setup) -> Hashed:
        hashes = of_sessions(self, setup, blake3_64)
        made = sglang_ring(setup)
        return Hashed(generator(setup.seed), made, hashes, places(made, hashes))

    def named(self, mine: Any, request: int, names: Names) -> None:
        if names.session is not None:
            mine.hashes[request] = blake3_64([names.session])[0]
            mine.places[request] = places(mine.ring, mine.hashes[request : request + 1])[0]

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        gpus = len(view.candidates)
        if view.requests[request].session == NONE:
            return view.candidates[below(mine.draws, gpus)]
        if self.ring:
            return clockwise(mine.ring, mine.places[request], view, UNBOUNDED)
        return view.candidates[int(mine.hashes[request] % np.uint64(gpus))]


def sglang_ring(setup: Setup) -> Ring:
    return ring(setup, blake3_64, "{}#{}", POINTS)
