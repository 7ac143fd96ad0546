"""Least outstanding tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prebleexp.policies import backlog
from prebleexp.policies.backlog import Balancing
from prebleexp.policies.prefix_records import OUTPUT_UNIT
from prebleexp.sim.records import NONE, View


@dataclass(frozen=True)
class LeastOutstandingTokens(Balancing):
    """The GPU with the fewest tokens to come, this request's among them: of all unfinished requests the prompt tokens
    that it did not hold when they were sent there, and their expected output; the first of several."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        leaf = backlog.take_up(mine, view, request)
        best, least, best_new = NONE, 0, 0
        for g in view.candidates:
            new = backlog.missing(mine, view, request, g)
            tokens = (mine.prefill[g] + new) * OUTPUT_UNIT + mine.output[g]
            if best == NONE or tokens < least:
                best, least, best_new = g, tokens, new
        backlog.add(mine, view, leaf, request, best, best_new)
        return best
