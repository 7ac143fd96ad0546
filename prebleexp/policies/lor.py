"""Least outstanding requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from prebleexp.policies.base import Policy
from prebleexp.sim.records import GPUS, View


@dataclass(frozen=True)
class LeastOutstanding(Policy):
    """The GPU with the fewest requests that were sent to it and are not finished; the first of several."""

    reads_lengths: ClassVar[bool] = False

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        best = view.candidates[0]
        for g in view.candidates:
            if view.sent[g].outstanding < view.sent[best].outstanding:
                best = g
        view.work[GPUS] += len(view.candidates)
        return best
