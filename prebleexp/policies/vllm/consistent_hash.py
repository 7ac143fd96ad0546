"""vllm-router's consistent hashing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from prebleexp.policies.base import Policy
from prebleexp.policies.hashes import Names, of_prefixes, of_sessions
from prebleexp.policies.ring import UNBOUNDED, OnRing, clockwise, places, ring
from prebleexp.policies.vllm.furc import furc
from prebleexp.sim.records import NONE, View
from prebleexp.sim.types import Setup

POINTS = 160
"""of a worker"""
FORM = "header:x-session-id:{}"
"""what is hashed of a session"""
WHOLE = 1 << 30
"""tokens, more than any prompt has"""


@dataclass(frozen=True)
class VLLMConsistentHash(Policy):
    """The next of 160 points a GPU from the hash of the request's session on, or of its prompt if it is of none,
    whatever the load.

    vllm-router 0.1.17, replayed from recordings of the wheel, which all name a session in x-session-id. That the prompt
    takes its place is read from its source; it hashes other texts then than are hashed here."""

    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> OnRing:
        made = ring(setup, furc, "{}:{}", POINTS)
        hashes = of_sessions(self, setup, furc, FORM)
        if setup.room is None:
            alone = np.flatnonzero(setup.workload.session == NONE)
            hashes[alone] = of_prefixes(setup, WHOLE, furc, alone)
        return OnRing(made, places(made, hashes))

    def named(self, mine: Any, request: int, names: Names) -> None:
        name = names.prefix(WHOLE) if names.session is None else FORM.format(names.session)
        mine.places[request] = places(mine.ring, furc([name]))[0]

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return clockwise(mine.ring, mine.places[request], view, UNBOUNDED)
