"""AIBrix's least-request routing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from prebleexp.policies.base import Policy
from prebleexp.policies.choices import any_least_outstanding
from prebleexp.policies.loads import Loads, loads, look
from prebleexp.sim.draws import generator
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup


class Remembered(NamedTuple):
    draws: Any
    loads: Loads


@dataclass(frozen=True)
class AIBrixLeastRequest(Policy):
    """The GPU with the fewest requests that were sent to it and are not finished; any of several.

    AIBrix (commit e3e10f9e4) least-request, replayed from recordings of its own Go code."""

    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> Remembered:
        return Remembered(generator(setup.seed), loads(setup))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        look(mine.loads, view)
        return any_least_outstanding(mine.draws, mine.loads.outstanding, view)
