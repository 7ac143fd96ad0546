"""Another rate for a recording, with its sessions kept whole: thinning and superposition (spec: workloads, section 3).

A choice of requests is which rows of a trace come, as part of which copy of it, and when.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prebleexp.sim.types import Floats, Longs
from prebleexp.workloads.few_shot import random
from prebleexp.workloads.trace import Trace

SHIFTS = 0
"""random stream"""


class Lanes(NamedTuple):
    """How the sessions of a population follow each other: which lane plays which, in order."""

    lane: Longs
    """(n,) whose turn each request is"""
    later: Longs
    """requests, by their place in the choice, with which a session begins, …"""
    before: Longs
    """… and one that ended the lane's session before it"""
    between_s: float
    """from its end on"""


@dataclass(frozen=True)
class Choice:
    """Arrays of equal length, in order of starts."""

    row: Longs
    copy: Longs
    start_s: Floats
    """of a request that comes after others: as if it did not"""
    lanes: Lanes | None = None

    def __len__(self) -> int:
        return len(self.row)


def whole(trace: Trace) -> Choice:
    """All of a trace, as it was recorded."""
    n = len(trace)
    return Choice(np.arange(n), np.zeros(n, np.int64), trace.start_s)


def superposed(
    trace: Trace, copies: float, seed: int, begin_s: float = 0.0, end_s: float = math.inf, apart_s: float | None = None
) -> Choice:
    """So many copies of it at once, the last of which is thinned if they are not a whole number. The first is as
    recorded; of each further one all sessions start so much later, up to `apart_s` (None: the trace's span), modulo the
    span. Thinned is by a hash of session and seed, so that what comes at a rate comes at every higher one too. Of all
    this, what starts within a window, whose beginning is 0 then."""
    apart_s = trace.span_s if apart_s is None else apart_s
    kept = []
    for copy in range(math.ceil(copies)):
        rows = np.flatnonzero(_uniform(trace.family, copy, seed) < copies - copy)
        start_s = _shifted(trace, rows, copy, seed, apart_s)
        inside = (start_s >= begin_s) & (start_s < end_s)
        kept.append(Choice(rows[inside], np.full(inside.sum(), copy), start_s[inside] - begin_s))
    found = Choice(*(np.concatenate([getattr(one, name) for one in kept]) for name in ("row", "copy", "start_s")))
    order = np.argsort(found.start_s, kind="stable")
    return Choice(found.row[order], found.copy[order], found.start_s[order])


def _shifted(trace: Trace, rows: Longs, copy: int, seed: int, apart_s: float) -> Floats:
    """When they start in a copy; what a session has between its requests stays as it is."""
    starts = trace.start_s[rows]
    if not copy:
        return starts
    begins = trace.family_start_s[rows]
    shift = random(seed, SHIFTS).random(copy)[-1] * apart_s
    found: Floats = (begins + shift) % trace.span_s + (starts - begins)
    return found


def _uniform(session: Longs, copy: int, seed: int) -> Floats:
    """(n,) numbers in [0, 1), a hash of session, copy and seed: SplitMix64's finalizer, thrice."""
    found = session.astype(np.uint64)
    for word in (seed, copy):
        found = _mixed(found + np.uint64(0x9E3779B97F4A7C15) + np.uint64(word))
    return (_mixed(found) >> np.uint64(11)).astype(np.float64) / 2**53


def _mixed(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
