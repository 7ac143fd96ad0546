"""SGLang's manual routing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.checks import one_of, positive
from prebleexp.policies import keys
from prebleexp.policies.base import Policy
from prebleexp.policies.candidates import is_candidate
from prebleexp.policies.choices import any_least, any_least_outstanding
from prebleexp.sim.compiled import compiled
from prebleexp.sim.draws import below, generator
from prebleexp.sim.records import GPUS, NONE, View
from prebleexp.sim.types import Setup, records

MODES = ("random", "min_load", "min_group")
RANDOM, MIN_LOAD, MIN_GROUP = range(3)

SESSION = np.dtype(
    [
        ("used_s", np.float64),  # when last
        ("gpu", np.int32),  # where it stays, counted from 1; 0: nowhere yet
        ("unfinished", np.int32),  # of its requests there
    ],
    align=True,
)


class Manual(NamedTuple):
    draws: Any
    mode: int
    sessions: Any
    """(sessions,) `SESSION`"""
    groups: Any
    """(GPUs,) sessions with unfinished requests"""


@dataclass(frozen=True)
class SGLangManual(Policy):
    """A session stays on the GPU that its first request went to. That one is drawn: of all GPUs, of those with the
    fewest unfinished requests (min_load), or with the fewest sessions that have any (min_group). So is that of each
    request without a session.

    sglang-router 0.3.2, replayed from recordings of the wheel, in which all requests have a session; what it does with
    others was seen in runs of it. When sessions are forgotten is read from its source."""

    assignment_mode: str = "random"
    """random, min_load or min_group"""
    max_idle_secs: float = 14400.0
    """since its last request, after which a session is forgotten"""
    eviction_interval_secs: float = 60.0
    """how often that is looked at"""

    reads_lengths: ClassVar[bool] = False

    def __post_init__(self) -> None:
        one_of("policy.assignment_mode", self.assignment_mode, MODES)
        for name in ("max_idle_secs", "eviction_interval_secs"):
            positive(f"policy.{name}", getattr(self, name))

    def start(self, setup: Setup) -> Manual:
        sessions = records(keys.sessions(self, setup), SESSION)
        mode = MODES.index(self.assignment_mode)
        return Manual(generator(setup.seed), mode, sessions, np.zeros(setup.gpus, np.int64))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        session = view.requests[request].session
        if session == NONE:
            return assigned(mine, view)
        row = mine.sessions[session]
        gpu = row.gpu - 1
        looked_at_s = now // self.eviction_interval_secs * self.eviction_interval_secs
        if gpu == NONE or looked_at_s - row.used_s >= self.max_idle_secs or not is_candidate(view.candidates, gpu):
            gpu = assigned(mine, view)
        move(mine, row, gpu)
        row.used_s = now
        return gpu

    def finished(self, mine: Any, view: View, request: int, now: float) -> None:
        seen = view.requests[request]
        if seen.session == NONE:
            return
        row = mine.sessions[seen.session]
        if row.gpu == seen.gpu + 1:
            row.unfinished -= 1
            mine.groups[seen.gpu] -= row.unfinished == 0


@compiled
def move(mine: Manual, row: Any, gpu: int) -> None:
    """One more request of the session, on this GPU. Those it has elsewhere no longer count: they have run for hours."""
    if row.gpu != gpu + 1:
        if row.unfinished > 0:
            mine.groups[row.gpu - 1] -= 1
        row.gpu, row.unfinished = gpu + 1, 0
    mine.groups[gpu] += row.unfinished == 0
    row.unfinished += 1


@compiled
def assigned(mine: Manual, view: View) -> int:
    if mine.mode == RANDOM:
        return int(view.candidates[below(mine.draws, len(view.candidates))])
    if mine.mode == MIN_LOAD:
        return any_least_outstanding(mine.draws, view)
    view.work[GPUS] += len(view.candidates)
    return any_least(mine.draws, view.candidates, mine.groups)
