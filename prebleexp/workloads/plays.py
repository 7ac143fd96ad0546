"""Sessions of a trace played at other times than it has: as a Poisson process, or by a population of lanes (spec:
workloads, section 2).

Which session comes next is drawn from the trace without replacement; when all have come, they are shuffled anew, and
what is a session's own is fresh.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prebleexp.checks import integer, is_number, require
from prebleexp.sim.types import Floats, Longs
from prebleexp.workloads.few_shot import random
from prebleexp.workloads.rescale import Choice, Lanes
from prebleexp.workloads.trace import Trace

MOST_LANES = 1_000_000
GAPS, ORDER, MIDDLES = 10, 11, 12
"""random streams"""
MIDDLE = (0.25, 0.75)
"""in which part of a session's turns lanes begin (AgentX)"""
FASTEST_S = 0.001
"""no answer is generated faster a token, so that lanes do not run out of sessions"""


def check(lanes: int, between_s: float) -> None:
    """Raises InvalidInput for settings of a population that are not valid."""
    integer("workload.lanes", lanes, 1, MOST_LANES)
    valid = is_number(between_s) and between_s >= 0
    require(valid, "workload.between_s", between_s, "a number of seconds >= 0")


class Families(NamedTuple):
    """Requests by family, of which there are m."""

    rows: Longs
    """(n,) of one family after the other, in their order"""
    offsets: Longs
    """(m + 1,)"""


def families(trace: Trace) -> Families:
    order = np.argsort(trace.family, kind="stable")
    counts = np.unique(trace.family, return_counts=True)[1]
    return Families(order, np.concatenate(([0], np.cumsum(counts))))


def poisson(trace: Trace, rate: float, duration_s: float, seed: int, closed: bool) -> Choice:
    """So many requests a second on average, whose families start at random; another rate has the same families, with
    gaps that are so much longer or shorter."""
    every = families(trace)
    unit = duration_s * rate * (len(every.offsets) - 1) / len(trace)
    gaps = random(seed, GAPS)
    starts = np.cumsum(gaps.standard_exponential(int(unit + 10 * unit**0.5 + 20)))
    while starts[-1] < unit:
        starts = np.append(starts, starts[-1] + np.cumsum(gaps.standard_exponential(len(starts))))
    begins = starts[starts < unit] / unit * duration_s
    family, copy = _drawn(every, seed, 0, len(begins))
    row, play = _rows(every, family)
    start_s = begins[play] + (0.0 if closed else trace.start_s[row] - trace.family_start_s[row])
    order = np.argsort(start_s, kind="stable")
    return Choice(row[order], copy[play][order], start_s[order])


def population(trace: Trace, lanes: int, between_s: float, duration_s: float, seed: int) -> Choice:
    """Each lane plays a session, and when it has ended and `between_s` have passed, the next. It begins in the middle
    of one, some time before a turn that somebody thinks about. There are sessions for `duration_s`, however fast they
    are served."""
    every = families(trace)
    due, end = _least_times(trace)
    least = np.maximum.reduceat(end[every.rows], every.offsets[:-1])
    middles = random(seed, MIDDLES)
    elapsed, going = np.zeros(lanes), np.arange(lanes)
    drawn, parts = 0, list[tuple[Longs, Longs, Longs]]()
    first_row = np.zeros(0, np.int64)
    while len(going):
        family, copy = _drawn(every, seed, drawn, len(going))
        if not drawn:
            first_row = _middle(trace, every, family, middles.uniform(*MIDDLE, lanes))
            elapsed -= due[first_row]
        parts.append((going, family, copy))
        drawn += len(going)
        elapsed[going] += least[family] + between_s
        going = going[elapsed[going] <= duration_s]
    lane, family, copy = (np.concatenate(column) for column in zip(*parts, strict=True))
    row, play = _rows(every, family)
    begun = play >= lanes  # its first session each lane begins in the middle
    kept = begun | (row >= first_row[np.minimum(play, lanes - 1)])
    row, play = row[kept], play[kept]
    thinks = np.zeros(len(trace)) if trace.links is None else trace.links.delay_s
    waits = middles.random(lanes) * thinks[first_row]
    by_start = np.empty(lanes, np.int64)
    by_start[np.argsort(waits, kind="stable")] = np.arange(lanes)
    order = np.lexsort((np.arange(len(row)), np.where(play < lanes, by_start[np.minimum(play, lanes - 1)], play)))
    row, play = row[order], play[order]
    start_s = np.where(play < lanes, waits[lane[play]], duration_s)
    later, before = _handovers(trace, row, play, lane)
    return Choice(row, copy[play], start_s, Lanes(lane[play], later, before, between_s))


def _drawn(every: Families, seed: int, after: int, count: int) -> tuple[Longs, Longs]:
    """Families, and how often each has come before, of so many draws after others."""
    m = len(every.offsets) - 1
    rounds = range(after // m, (after + count - 1) // m + 1) if count else range(0)
    orders = [np.random.default_rng([seed, ORDER, one]).permutation(m) for one in rounds]
    copies = np.repeat(np.array(rounds, np.int64), m)
    begin = after - (after // m) * m
    found = np.concatenate(orders) if orders else np.zeros(0, np.int64)
    return found[begin : begin + count], copies[begin : begin + count]


def _rows(every: Families, family: Longs) -> tuple[Longs, Longs]:
    """The requests of some families one after the other, and which of these each is of."""
    counts = np.diff(every.offsets)[family]
    into = np.concatenate(([0], np.cumsum(counts)))
    play = np.repeat(np.arange(len(family)), counts)
    return every.rows[np.arange(into[-1]) + (every.offsets[family] - into[:-1])[play]], play


def _least_times(trace: Trace) -> tuple[Floats, Floats]:
    """(n,) when requests are due, and end, if nothing takes time but answers, from the start of the family."""
    due, end = np.zeros(len(trace)), (trace.output_tokens * FASTEST_S).astype(np.float64)
    if trace.links is None:
        return due, end
    delay_s = trace.links.delay_s.tolist()
    out, at = end.tolist(), due.tolist()
    ends = list(out)
    for later, before in zip(trace.links.later.tolist(), trace.links.before.tolist(), strict=True):
        at[later] = max(at[later], ends[before] + delay_s[later])
        ends[later] = at[later] + out[later]
    return np.array(at), np.array(ends)


def _middle(trace: Trace, every: Families, family: Longs, share: Floats) -> Longs:
    """Of each family the request of its root at this share of the turns."""
    turns = np.zeros(int(trace.family.max()) + 1, np.int64)
    root = trace.session == trace.family
    np.maximum.at(turns, trace.family[root], trace.turn[root])
    roots = trace.family[every.rows[every.offsets[:-1]]]
    turn = np.rint(share * turns[roots[family]]).astype(np.int64)
    rows = np.flatnonzero(root)
    most = int(trace.turn.max()) + 1
    keys = trace.family[rows] * most + trace.turn[rows]
    sorter = np.argsort(keys, kind="stable")
    return rows[sorter[np.searchsorted(keys, roots[family] * most + turn, sorter=sorter)]]


def _handovers(trace: Trace, row: Longs, play: Longs, lane: Longs) -> tuple[Longs, Longs]:
    """The first request of each lane's session, and those that nobody waits for of the session before it."""
    n = len(trace)
    waited = np.zeros(n, np.bool_)
    if trace.links is not None:
        waited[trace.links.before] = True
    plays = len(lane)
    order = np.lexsort((np.arange(plays), lane))
    following = np.full(plays, -1)
    same = lane[order][1:] == lane[order][:-1]
    following[order[:-1][same]] = order[1:][same]
    first = np.full(plays, len(row))
    np.minimum.at(first, play, np.arange(len(row)))
    last = np.flatnonzero(~waited[row] & (following[play] >= 0))
    later = first[following[play[last]]]
    return later, last
