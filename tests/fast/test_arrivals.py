"""The arrivals of production-stack's QPS routing, against plain lists of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from prebleexp.policies.base import Policy
from prebleexp.policies.production_stack.arrivals import Arrivals, arrivals, arrived, fewest, lacks_room, with_more_room
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup
from prebleexp.testing import check_policy
from tests.support.recordings.routers import Driven, workload_of

WINDOW_S = 60.0


@dataclass(frozen=True)
class Fewest(Policy):
    """Where the fewest arrived of late. It is told that every `others`-th request went elsewhere."""

    others: int = 1 << 40

    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> Arrivals:
        return arrivals(setup, WINDOW_S)

    def lacks_room(self, mine: Any, view: View, request: int) -> int:
        return lacks_room(mine)

    def with_more_room(self, mine: Any, view: View, request: int) -> Arrivals:
        return with_more_room(getattr(mine, "value", mine))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        gpu = fewest(mine, view, now)
        arrived(mine, request % len(view.candidates) if request % self.others == self.others - 1 else gpu, now)
        return gpu


@pytest.mark.parametrize("gpus", [1, 4, 9])
def test_it_counts_what_plain_lists_hold(gpus: int) -> None:
    rng = np.random.default_rng(5)
    gaps = rng.choice([0.0, 0.0, 1.0, 3.0, 70.0], 600, p=[0.2, 0.2, 0.35, 0.2, 0.05])
    driven = Driven(Fewest(others=3), workload_of([[(0, 1)]] * 600), gpus)
    sent: list[list[float]] = [[] for _ in range(gpus)]
    for request, now in enumerate(np.cumsum(gaps).tolist()):
        unused = [gpu for gpu in range(gpus) if not sent[gpu]]
        of_late = [sum(time >= now - WINDOW_S for time in times) for times in sent]
        expected = unused[0] if unused else of_late.index(min(of_late))
        assert driven.decide(request, now) == expected
        sent[request % gpus if request % 3 == 2 else expected].append(now)


@pytest.mark.thorough
def test_it_passes_the_contract() -> None:
    check_policy(Fewest())
