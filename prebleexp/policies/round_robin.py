"""Round robin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from prebleexp.policies.base import Policy
from prebleexp.sim.records import View
from prebleexp.sim.types import Longs, Setup


@dataclass(frozen=True)
class RoundRobin(Policy):
    """The candidates in turn, GPU 0, 1, 2 …, whatever they have to do."""

    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> Longs:
        return np.zeros(1, np.int64)

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        turn = mine[0]
        mine[0] += 1
        return view.candidates[turn % len(view.candidates)]
