"""What routing could have won: a local search over all assignments of a small run, each served whole.

Who knows all that comes can assign better than any router. The best assignment of n requests to g GPUs is out of reach
(g to the power of n), but one that no single change improves is not: the search begins at the best router's, changes
the GPU of one request, of two that it exchanges, or of all that go on with a prefix from some time on, serves the run
again, and keeps what is not worse (a hill climb; Aarts and Lenstra 1997). What it finds is feasible: at least so much
was to be won. The least of all may be less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from prebleexp.checks import require
from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.metrics import measure
from prebleexp.policies.replay import Replay
from prebleexp.sim.types import Longs, Workload

NEAR = 8
"""exchanges are with one of so many that came next"""
MOST = 5_000
"""requests: a search of more would take days"""
WORST = 0.1
"""share of requests, those with the longest latencies, of which every second change takes one"""


class Assigned(Replay):
    """Request i goes to the i-th of these GPUs."""

    def __init__(self, gpus: Longs) -> None:
        object.__setattr__(self, "path", "hindsight")
        object.__setattr__(self, "gpus", gpus)

    def assignments(self) -> Longs:
        return self.gpus  # type: ignore[attr-defined,no-any-return]


@dataclass(frozen=True)
class Found:
    """What an assignment, a router's or the search's, comes to."""

    name: str
    metrics: Mapping[str, float]
    gpus: Longs
    latency_s: Any
    """(n,)"""

    def ratio(self, best: Mapping[str, float]) -> float:
        """Geometric mean of the ratios to the best router's, of each metric."""
        return math.exp(math.fsum(math.log(self.metrics[name] / best[name]) for name in best) / len(best))


@dataclass(frozen=True)
class Hindsight:
    """What routers and the search with hindsight reach in one cell."""

    routers: tuple[Found, ...]
    best: Mapping[str, float]
    """of each metric, whichever router it is"""
    found: Found
    served: int
    """runs that the search took"""
    kept: int
    """of these, better ones"""

    def ratios(self, of: Found) -> dict[str, float]:
        """Of each metric, to the best router's."""
        return {name: of.metrics[name] / self.best[name] for name in self.best}


def search(
    cells: Mapping[str, Cell],
    metrics: Sequence[str],
    runs_at_most: int,
    told: Callable[[int, float], object] = lambda served, ratio: None,
) -> Hindsight:
    """`cells`: one of each router, alike but for the policy. The geometric mean of `metrics`' ratios to the best
    router's is made small. `told` hears of every run how many there were, and the least so far. Same cells, same
    answer. Raises InvalidInput for a cell that has nothing to choose, too many requests, or no replay."""
    cell = next(iter(cells.values()))
    check(cell)
    workload = runs.draw(cell)
    if len(workload) > MOST:
        raise InvalidInput(f"{len(workload):,} requests are more than {MOST:,}: a shorter duration_s, or a lower rps")
    routers = tuple(_served(name, one, workload, metrics) for name, one in cells.items())
    best = {name: min(one.metrics[name] for one in routers) for name in metrics}
    at = min(routers, key=lambda one: one.ratio(best))
    least, kept, served = at.ratio(best), 0, 0
    rng = np.random.default_rng([cell.seed, len(workload)])
    for served in range(1, runs_at_most + 1):
        gpus = _changed(rng, at, workload, cell.replicas)
        tried = _served("hindsight", replace(cell, policy=Assigned(gpus)), workload, metrics)
        ratio = tried.ratio(best)
        kept += ratio < least
        if ratio <= least:
            at, least = tried, ratio
        told(served, least)
    return Hindsight(routers, best, replace(at, name="hindsight"), served, kept)


def check(cell: Cell) -> None:
    """Raises InvalidInput if there is nothing to search."""
    if cell.engine.own_loop() is not None:
        raise InvalidInput(f"engine {type(cell.engine).__name__} routes by itself: there is no assignment to search")
    if cell.cluster.has_roles:
        raise InvalidInput("cluster.groups have roles: hindsight is of requests that stay where they were sent")
    require(cell.replicas > 1, "gpus", cell.gpus, "at least 2: there is nothing to choose")


def _served(name: str, cell: Cell, workload: Workload, metrics: Sequence[str]) -> Found:
    outcome = runs.simulate_cell(cell, workload, check=False)
    row = measure(workload, outcome, cell.slo, None)
    values = {one: float(row[one] or math.nan) for one in metrics}
    return Found(name, values, np.asarray(outcome.gpu, np.int64), outcome.latency_s)


def _changed(rng: np.random.Generator, at: Found, workload: Workload, gpus: int) -> Longs:
    """Another assignment near this one."""
    made, n = at.gpus.copy(), len(at.gpus)
    one = int(rng.integers(n))
    if rng.random() < 0.5:
        worst = np.argsort(-np.nan_to_num(at.latency_s, nan=math.inf), kind="stable")
        one = int(worst[rng.integers(max(1, int(WORST * n)))])
    kind = rng.integers(3)
    other = int((made[one] + 1 + rng.integers(gpus - 1)) % gpus) if gpus > 1 else 0
    if kind == 0:
        made[one] = other
    elif kind == 1:
        two = min(n - 1, one + 1 + int(rng.integers(NEAR)))
        made[one], made[two] = made[two], made[one]
    else:
        made[[*_followers(workload, one)]] = other
    return made


def _followers(workload: Workload, request: int) -> Iterator[int]:
    """It, and those that come later with its session, or its prefix where it has none."""
    session = int(workload.session[request])
    column = workload.session if session >= 0 else workload.prefix_group
    of = int(column[request])
    yield request
    if of >= 0:
        yield from (np.flatnonzero(column[request + 1 :] == of) + request + 1).tolist()
