"""AIBrix's least-request routing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from prebleexp.policies.base import Policy
from prebleexp.policies.choices import Draws, any_least_outstanding
from prebleexp.sim.draws import generator
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup


@dataclass(frozen=True)
class AIBrixLeastRequest(Policy):
    """The GPU with the fewest requests that were sent to it and are not finished; any of several.

    AIBrix (commit e3e10f9e4) least-request, replayed from recordings of its own Go code."""

    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> Draws:
        return Draws(generator(setup.seed))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return any_least_outstanding(mine.draws, view)
