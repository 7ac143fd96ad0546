"""What a router takes within a run: a policy that reads the processor's clock around every call of another.

A run is the same however often it is repeated, so that each request's least time over some runs is that of an
undisturbed one, caches as cold as the simulator left them. The sum of these is far less noisy than the least of the
sums, or than a difference of two runs, of which a decision may be a hundredth.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.policies.base import Policy
from prebleexp.sim.compiled import compiled
from prebleexp.sim.notices import EVICTED, FINISHED, FIRST_TOKEN, ROUTED, STORED
from prebleexp.sim.plug import call_int, call_none
from prebleexp.sim.records import View
from prebleexp.sim.routing import Routing
from prebleexp.sim.ticks import ticks
from prebleexp.sim.types import Setup, Workload

SPINS = 20_000_000
LIKE = ("compiled", "reports_ms", "reads_lengths", "follows_running")
"""what the loop asks of a policy besides its functions"""


class Inner(NamedTuple):
    router: Any
    """the other's record"""
    ticks: Any
    """(requests,) in all calls about each"""


def route(self: Any, mine: Any, view: View, request: int, now: float) -> int:
    start = ticks()
    answer: int = call_int(mine.router.route, mine.router.own, view, request, now)
    _add(mine, request, ticks() - start)
    return answer


def lacks_room(self: Any, mine: Any, view: View, request: int) -> int:
    start = ticks()
    answer: int = call_int(mine.router.lacks_room, mine.router.own, view, request)
    _add(mine, request, ticks() - start)
    return answer


def first_token(self: Any, mine: Any, view: View, request: int, now: float) -> None:
    start = ticks()
    call_none(mine.router.hears[FIRST_TOKEN], mine.router.own, view, request, now)
    _add(mine, request, ticks() - start)


def finished(self: Any, mine: Any, view: View, request: int, now: float) -> None:
    start = ticks()
    call_none(mine.router.hears[FINISHED], mine.router.own, view, request, now)
    _add(mine, request, ticks() - start)


def routed(self: Any, mine: Any, view: View, request: int, now: float) -> None:
    start = ticks()
    call_none(mine.router.hears[ROUTED], mine.router.own, view, request, now)
    _add(mine, request, ticks() - start)


def stored(self: Any, mine: Any, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
    start = ticks()
    call_none(mine.router.hears[STORED], mine.router.own, view, request, gpu, tokens, now)
    _add(mine, request, ticks() - start)


def evicted(self: Any, mine: Any, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
    start = ticks()
    call_none(mine.router.hears[EVICTED], mine.router.own, view, request, gpu, tokens, now)
    _add(mine, request, ticks() - start)


@compiled
def _add(mine: Any, request: int, took: int) -> None:
    mine.ticks[request] += took


HEARD = {"first_token": first_token, "finished": finished, "routed": routed, "stored": stored, "evicted": evicted}


@dataclass(frozen=True)
class Clocked(Policy):
    policy: Any = None
    made: list[tuple[Routing, Inner]] = field(default_factory=list)
    """of the runs so far"""

    def start(self, setup: Setup) -> Inner:
        routing = Routing(self.policy, setup)
        self.made.append((routing, Inner(routing.record, np.zeros(setup.requests, np.int64))))
        return self.made[-1][1]

    route = route


def _with_more_room(self: Clocked, mine: Any, view: Any, request: int) -> Inner:
    routing, inner = self.made[-1]
    routing.with_more_room(view, request)
    return inner


def clocked(policy: Any) -> Clocked:
    """The policy with a clock around each of its functions; it is told the same as the policy itself."""
    given: dict[str, Any] = {name: one for name, one in HEARD.items() if hasattr(type(policy), name)}
    if hasattr(type(policy), "lacks_room"):
        given |= {"lacks_room": lacks_room, "with_more_room": _with_more_room}
    given |= {name: getattr(policy, name) for name in LIKE}
    made: Clocked = type("Clocked", (Clocked,), given)(policy)
    return made


@compiled
def _spin(times: int) -> int:
    begun: int = ticks()
    start = begun
    for _ in range(times):
        start = ticks()
    return start - begun


def tick_ns() -> float:
    """How many nanoseconds a tick takes."""
    start = time.perf_counter_ns()
    passed = _spin(SPINS)
    return (time.perf_counter_ns() - start) / passed


def decision_ns(cell: Cell, workload: Workload, repeats: int) -> float:
    """Of a decision, with all that the router hears of the request; reading the clock is part of it, some 10 ns a
    call."""
    policy = clocked(cell.policy)
    for _ in range(repeats):
        runs.simulate_cell(replace(cell, policy=policy), workload)
    least = np.min([inner.ticks for _, inner in policy.made], axis=0)
    return float(least.sum() / len(workload) * tick_ns())
