"""vllm-router's sticky sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.policies import keys
from prebleexp.policies.base import Policy
from prebleexp.policies.candidates import MOST, is_candidate, nth
from prebleexp.policies.hashes import Names, in_use
from prebleexp.policies.vllm.furc import Texts, put, room_for, texts
from prebleexp.policies.vllm.highest import Tails, highest, tails
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import GPUS, NONE, View
from prebleexp.sim.types import Setup, records

IDLE_S = 7200.0
"""since its last use, after which a session is forgotten"""

SESSION = np.dtype(
    [
        ("used_s", np.float64),  # when last
        ("gpu", np.int32),  # where it stays; -1: it is not known
        ("name", np.int32),  # which of `Sticky.names`
        ("before", np.int32),  # of those known, in order of last use; -1: none
        ("behind", np.int32),
    ],
    align=True,
)


class Sticky(NamedTuple):
    sessions: Any
    """(sessions,) `SESSION`"""
    ends: Any
    """(2,) which was used first, and which last; -1: none"""
    counts: Any
    """(GPUs,) known sessions of each"""
    names: Texts
    """of the stream's sessions, and …"""
    workers: Tails
    """… what stands behind them where both are hashed"""


@dataclass(frozen=True)
class VLLMStickyLeastLoaded(Policy):
    """A session stays on its GPU until two hours after its last request. A new one goes where the fewest sessions are,
    not requests; of several, where its name and the GPU's hash highest. Requests without a session go to the first of
    those with the fewest, and do not count.

    vllm-router 0.1.17, replayed from recordings of the wheel, in which all requests have a session and none is
    forgotten; these rules are read from its source. Nobody says that a session is over."""

    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> Sticky:
        sessions = records(keys.sessions(self, setup), SESSION)
        sessions.gpu = NONE
        if setup.room is None:
            used = in_use(setup)
            sessions.name[used] = np.arange(len(used))
            names = texts([keys.session(one) for one in used.tolist()])
        else:
            names = room_for(len(sessions))
        workers = tails([f":{keys.worker(gpu)}" for gpu in range(setup.gpus)])
        return Sticky(sessions, np.full(2, NONE), np.zeros(setup.gpus, np.int64), names, workers)

    def named(self, mine: Any, request: int, names: Names) -> None:
        if names.session is not None and mine.names.ends[names.number + 1] == 0:
            put(mine.names, names.number, names.session)
            mine.sessions.name[names.number] = names.number

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        first, session = mine.ends[0], view.requests[request].session
        while first != NONE and mine.sessions[first].used_s < now - IDLE_S:
            forget(mine, first)
            first = mine.ends[0]
        if session == NONE:
            return fewest(mine, view, NONE)
        gpu = mine.sessions[session].gpu
        if gpu != NONE:
            forget(mine, session)
        if gpu == NONE or not is_candidate(view.candidates, gpu):
            gpu = fewest(mine, view, mine.sessions[session].name)
        remember(mine, session, gpu, now)
        return gpu


@compiled
def fewest(mine: Sticky, view: View, name: int) -> int:
    """The candidate with the fewest sessions; of several the one of the highest hash, or, without a name, the first."""
    candidates, counts, some, least, count = view.candidates, mine.counts, mine.workers.some, MOST, 0
    for i in range(len(candidates)):
        least = min(least, counts[nth(candidates, len(counts), i)])
    for i in range(len(candidates)):
        gpu = nth(candidates, len(counts), i)
        some[count] = gpu  # the next takes its place, if this one has more
        count += counts[gpu] == least
    view.work[GPUS] += len(candidates)
    return int(some[0]) if name == NONE else highest(mine.workers, count, mine.names, name)


# ---------------------------------------------------------------- known sessions, in order of last use
@compiled
def remember(mine: Sticky, session: int, gpu: int, now: float) -> None:
    row, last = mine.sessions[session], mine.ends[1]
    row.gpu, row.used_s, row.before, row.behind = gpu, now, last, NONE
    if last == NONE:
        mine.ends[0] = session
    else:
        mine.sessions[last].behind = session
    mine.ends[1] = session
    mine.counts[gpu] += 1


@compiled
def forget(mine: Sticky, session: int) -> None:
    row = mine.sessions[session]
    before, behind = row.before, row.behind
    if before == NONE:
        mine.ends[0] = behind
    else:
        mine.sessions[before].behind = behind
    if behind == NONE:
        mine.ends[1] = before
    else:
        mine.sessions[behind].before = before
    mine.counts[row.gpu] -= 1
    row.gpu = NONE
