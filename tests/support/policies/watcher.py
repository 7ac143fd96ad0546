"""A policy that notes all that it sees and hears."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba.extending import register_jitable

from prebleexp.policies.base import HOLD, REFUSE, Policy
from prebleexp.sim.records import ENTRIES, NODES, SEGMENTS, View
from prebleexp.sim.records import GPUS as SCORED
from prebleexp.sim.types import Setup

ROUTE, FIRST_TOKEN, FINISHED, STORED, EVICTED = range(5)
KIND, REQUEST, GPU, TOKENS, NOW, OUTPUT, TTFT, LATENCY, SEEN = range(9)
OF_GPU = 13
"""columns of each GPU: ten that it publishes, …"""
SENT = SEEN + 10
"""… and three of the router's book"""
ROWS = 1 << 13


class Notes(NamedTuple):
    rows: Any
    used: Any


KEPT: list[Notes] = []
"""what policies of the last runs noted"""


@dataclass(frozen=True)
class Watcher(Policy):
    """Takes the GPU whose published numbers are least, and notes everything that it can see when it is asked or told.

    Holds unless a GPU has fewer than `outstanding` requests, and refuses every `refuses`-th request (0: neither). The
    oracle calls it as plain Python."""

    outstanding: int = 0
    refuses: int = 0

    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> Notes:
        KEPT.append(Notes(np.zeros((ROWS, SEEN + OF_GPU * setup.gpus)), np.zeros(1, np.int64)))
        return KEPT[-1]

    def route(self, mine: Notes, view: View, request: int, now: float) -> int:
        note(mine, view, ROUTE, request, -1, 0, now)
        view.work[NODES] += request % 3
        view.work[SEGMENTS] += view.requests[request].segments
        view.work[ENTRIES] += view.requests[request].turn
        view.work[SCORED] += len(view.candidates)
        if self.refuses > 0 and request % self.refuses == self.refuses - 1:
            return REFUSE
        best, least, room = HOLD, 0, False
        for g in view.candidates:
            seen = view.gpus[g]
            score = 3 * seen.queued + 5 * seen.running + 2 * seen.waiting_tokens + seen.generated
            score += (seen.kv_tokens - seen.kv_free - seen.evictable) % 17 + seen.window_hit_tokens % 11
            score += 40 * view.sent[g].outstanding
            room = room or view.sent[g].outstanding < self.outstanding
            if best == HOLD or score < least:
                best, least = g, score
        return best if room or self.outstanding == 0 else HOLD

    def first_token(self, mine: Notes, view: View, request: int, now: float) -> None:
        note(mine, view, FIRST_TOKEN, request, -1, 0, now)

    def finished(self, mine: Notes, view: View, request: int, now: float) -> None:
        note(mine, view, FINISHED, request, -1, 0, now)

    def stored(self, mine: Notes, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        note(mine, view, STORED, request, gpu, tokens, now)

    def evicted(self, mine: Notes, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        note(mine, view, EVICTED, request, gpu, tokens, now)


class PlainWatcher(Watcher):
    compiled: ClassVar[bool] = False


@register_jitable
def note(mine: Notes, view: View, kind: int, request: int, gpu: int, tokens: int, now: float) -> None:
    if mine.used[0] == len(mine.rows):
        return
    row, seen = mine.rows[mine.used[0]], view.requests[request]
    row[KIND], row[REQUEST], row[GPU], row[TOKENS], row[NOW] = kind, request, gpu, tokens, now
    row[OUTPUT], row[TTFT], row[LATENCY] = seen.output_seen, seen.ttft_s, seen.latency_s
    mine.used[0] += 1
    for g in range(len(view.gpus)):
        one, sent, at = view.gpus[g], view.sent[g], SEEN + OF_GPU * g
        row[at], row[at + 1], row[at + 2] = one.queued, one.running, one.waiting_tokens
        row[at + 3], row[at + 4], row[at + 5] = one.kv_tokens, one.kv_free, one.evictable
        row[at + 6], row[at + 7] = one.window_hit_tokens, one.window_prompt_tokens
        row[at + 8], row[at + 9] = one.generated, one.ahead
        row[at + 10], row[at + 11], row[at + 12] = sent.outstanding, sent.tokens, sent.requests
