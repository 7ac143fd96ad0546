"""production-stack's session routing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from prebleexp.checks import positive
from prebleexp.policies.base import Policy
from prebleexp.policies.hashes import Names, md5_64, of_sessions
from prebleexp.policies.production_stack import arrivals
from prebleexp.policies.production_stack.arrivals import Arrivals, arrived, fewest
from prebleexp.policies.ring import UNBOUNDED, OnRing, clockwise, places, ring
from prebleexp.sim.records import NONE, View
from prebleexp.sim.types import Setup

POINTS = 160
"""of a worker"""


class Sessions(NamedTuple):
    sessions: OnRing
    arrivals: Arrivals


@dataclass(frozen=True)
class ProductionStackSession(Policy):
    """The next of 160 points a GPU from the hash of the request's session on, whatever the load. Requests without a
    session go to the first GPU that never got any, else where the fewest arrived of late, whether they ended or not.

    vLLM production-stack (commit a6c01db05) session, replayed from recordings of its own Python code."""

    request_stats_window: float = 60.0
    """seconds for which an arrival counts"""

    reads_lengths: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive("policy.request_stats_window", self.request_stats_window, "a number of seconds > 0")

    def start(self, setup: Setup) -> Sessions:
        hashes = of_sessions(self, setup, md5_64)
        made = ring(setup, md5_64, "{}-{}", POINTS)
        return Sessions(OnRing(made, places(made, hashes)), arrivals.arrivals(setup, self.request_stats_window))

    def named(self, mine: Any, request: int, names: Names) -> None:
        if names.session is not None:
            mine.sessions.places[request] = places(mine.sessions.ring, md5_64([names.session]))[0]

    def lacks_room(self, mine: Any, view: View, request: int) -> int:
        return arrivals.lacks_room(mine.arrivals)

    def with_more_room(self, mine: Any, view: View, request: int) -> Sessions:
        value: Sessions = getattr(mine, "value", mine)
        return value._replace(arrivals=arrivals.with_more_room(value.arrivals))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        if view.requests[request].session == NONE:
            gpu = fewest(mine.arrivals, view, now)
        else:
            gpu = clockwise(mine.sessions.ring, mine.sessions.places[request], view, UNBOUNDED)
        arrived(mine.arrivals, gpu, now)
        return gpu
