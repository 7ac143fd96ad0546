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
from prebleexp.policies.loads import Loads, loads, look
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
        ("other", np.int32),  # … where it goes while that may not be taken
    ],
    align=True,
)


class Manual(NamedTuple):
    draws: Any
    mode: int
    sessions: Any
    """(sessions,) `SESSION`"""
    unfinished: Any
    """(sessions, GPUs) requests"""
    groups: Any
    """(GPUs,) sessions with unfinished requests"""
    loads: Loads


@dataclass(frozen=True)
class SGLangManual(Policy):
    """A session stays on the GPU that its first request went to. That one is drawn: of all GPUs, of those with the
    fewest unfinished requests (min_load), or with the fewest sessions that have any (min_group). So is that of each
    request without a session. While a session's GPU may not be taken, it stays on another, drawn likewise, and
    goes back to the first when that is there again.

    sglang-router 0.3.2, replayed from recordings of the wheel, in which all requests have a session; what it does with
    others was seen in runs of it. When sessions are forgotten, and the second GPU, are read from its source."""

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
        mode, unfinished = MODES.index(self.assignment_mode), np.zeros((len(sessions), setup.gpus), np.int32)
        groups = np.zeros(setup.gpus, np.int64)
        return Manual(generator(setup.seed), mode, sessions, unfinished, groups, loads(setup))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        session = view.requests[request].session
        if session == NONE:
            return assigned(mine, view)
        row = mine.sessions[session]
        looked_at_s = now // self.eviction_interval_secs * self.eviction_interval_secs
        if looked_at_s - row.used_s >= self.max_idle_secs:
            row.gpu = row.other = 0
        gpu = kept(row, view)
        if gpu == NONE:
            gpu = assigned(mine, view)
            keep(row, gpu)
        row.used_s = now
        mine.groups[gpu] += mine.unfinished[session, gpu] == 0
        mine.unfinished[session, gpu] += 1
        return gpu

    def finished(self, mine: Any, view: View, request: int, now: float) -> None:
        seen = view.requests[request]
        if seen.session == NONE:
            return
        mine.unfinished[seen.session, seen.gpu] -= 1
        mine.groups[seen.gpu] -= mine.unfinished[seen.session, seen.gpu] == 0


@compiled
def kept(row: Any, view: View) -> int:
    """The first of the session's GPUs that is a candidate; -1: none is."""
    for gpu in (int(row.gpu) - 1, int(row.other) - 1):
        if is_candidate(view.candidates, gpu):
            return gpu
    return NONE


@compiled
def keep(row: Any, gpu: int) -> None:
    """One more GPU of the session, which has two at most: the one that it had for longer leaves."""
    if row.other != 0:
        row.gpu = row.other
    if row.gpu == 0:
        row.gpu = gpu + 1
    else:
        row.other = gpu + 1


@compiled
def assigned(mine: Manual, view: View) -> int:
    if mine.mode == RANDOM:
        return int(view.candidates[below(mine.draws, len(view.candidates))])
    if mine.mode == MIN_LOAD:
        look(mine.loads, view)
        return any_least_outstanding(mine.draws, mine.loads.outstanding, view)
    view.work[GPUS] += len(view.candidates)
    return any_least(mine.draws, view.candidates, mine.groups)
