"""Policies that sum up all that they see and hear to numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prebleexp.policies.base import HOLD, REFUSE, Policy
from prebleexp.sim.records import View
from prebleexp.sim.types import Longs, Setup

HEARD: list[Longs] = []
"""what policies of the last runs heard, as numbers that any difference changes"""


@dataclass(frozen=True)
class Looker(Policy):
    """Takes the GPU whose published numbers are least, and sums up all that it sees and hears."""

    outstanding: int = 0
    refuses: int = 0

    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> Longs:
        HEARD.append(np.zeros(3, np.int64))
        return HEARD[-1]

    def route(self, mine: Longs, view: View, request: int, now: float) -> int:
        if self.refuses > 0 and request % self.refuses == self.refuses - 1:
            return REFUSE
        best, least, room = HOLD, 0, False
        for g in view.candidates:
            seen = view.gpus[g]
            score = 3 * seen.queued + 5 * seen.running + 2 * seen.waiting_tokens + seen.generated
            score += (seen.kv_free + 2 * seen.evictable) % 17 + seen.window_hit_tokens % 11
            score += 40 * view.sent[g].outstanding + view.sent[g].tokens % 7
            mine[0] = (mine[0] * 31 + score + seen.window_prompt_tokens) % 1000003
            room = room or view.sent[g].outstanding < self.outstanding
            if best == HOLD or score < least:
                best, least = g, score
        return best if room or self.outstanding == 0 else HOLD

    def first_token(self, mine: Longs, view: View, request: int, now: float) -> None:
        mine[1] = (mine[1] * 31 + request + int(now * 1e6)) % 1000003

    def finished(self, mine: Longs, view: View, request: int, now: float) -> None:
        mine[2] = (mine[2] * 31 + request + int(now * 1e6) + view.requests[request].output_seen) % 1000003


@dataclass(frozen=True)
class Follower(Looker):
    """Hears where requests are moved."""

    def routed(self, mine: Longs, view: View, request: int, now: float) -> None:
        mine[2] = (mine[2] * 31 + 7 * request + int(now * 1e6) + view.requests[request].gpu) % 1000003


@dataclass(frozen=True)
class TierLooker(Looker):
    """And what it hears of tiers."""

    def start(self, setup: Setup) -> Longs:
        HEARD.append(np.zeros(5, np.int64))
        return HEARD[-1]

    def copied(self, mine: Longs, view: View, request: int, place: int, tokens: int, now: float) -> None:
        mine[3] = (mine[3] * 31 + 1009 * request + 101 * place + tokens + int(now * 1e6)) % 1000003

    def dropped(self, mine: Longs, view: View, request: int, place: int, tokens: int, now: float) -> None:
        mine[4] = (mine[4] * 31 + 1009 * request + 101 * place + tokens + int(now * 1e6)) % 1000003


@dataclass(frozen=True)
class Lopsided(TierLooker):
    """Sends two of three requests to the first GPU, so that some have much to do and others nothing."""

    def route(self, mine: Longs, view: View, request: int, now: float) -> int:
        return int(view.candidates[0 if request % 3 else len(view.candidates) - 1])
