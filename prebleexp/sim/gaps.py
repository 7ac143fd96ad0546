"""Gaps between tokens, counted while a run goes on.

A gap is the time from a token of a request to its next one, wherever they were made: what preemptions, prefills of
others, moves, transfers and losses take of it shows in it. An engine says either that a request has a token (`token`),
or, of requests that decode together and had one at the same time before, how many have one after what gap (`add`).
It writes down when the last token of the latter came (`Counts.last_s`) where they cease to decode together before they
are finished.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from prebleexp.sim.compiled import compiled
from prebleexp.sim.histogram import BINS, SHIFT, ZERO
from prebleexp.sim.types import Ints, Longs, Workload, records

MOST_CLASSES = 16
"""where requests have more priorities, they are of one class"""
LONGEST = 10
"""one of so many gaps of a request is kept, where they are asked for: the longest"""


REQUEST = np.dtype(
    [
        ("of", np.int64),  # its class
        ("first", np.int64),  # of its rows of `Counts.longest`, …
        ("rows", np.int64),  # … and how many; none where they are not asked for
        ("seen", np.int64),  # gaps that it had, where they are asked for
    ]
)
TOKEN = np.dtype([("request", np.int64), ("at_s", np.float64)])
CLASS = np.dtype([("max_s", np.float64), ("sum_s", np.float64), ("bins", np.int64, (BINS,))])


class Counts(NamedTuple):
    """What is counted, and what that needs."""

    each: bool
    """whether engines say `token` of every token: requests have several classes, or the gaps of each are asked for"""
    last_s: Any
    """(n,) when the last token of each request came; NaN: none did. Not up to date while it decodes with others, and
    when it is finished"""
    classes: Any
    """`CLASS`es"""
    requests: Any
    """(n,) `REQUEST`s, if `each`; else none"""
    longest: Any
    """the longest gaps of each request, a heap with the least of them on top, where they are asked for"""
    shown: Any
    """who had a token, and when: `TOKEN`s in order, where somebody takes them away after every event; none elsewhere"""
    showing: Any
    """(1,) rows of it in use"""


def nothing(requests: int) -> Counts:
    """Of requests of one class, of which none is asked for."""
    last_s, of_each = np.full(requests, np.nan), (records(0, REQUEST), np.zeros(0))
    return Counts(False, last_s, records(1, CLASS), *of_each, records(0, TOKEN), np.zeros(1, np.int64))


def counts(workload: Workload, of_each: bool, shows: bool = False) -> Counts:
    """For the requests of a workload, without legs. Those of a warm-up (`stage` −1) are a class behind the others.
    `of_each`: the longest gaps of each request are asked for; `shows`: who has a token, after every event."""
    made, priorities, warm = nothing(len(workload)), _priorities(workload), workload.stage < 0
    rows = len(priorities) + int(warm.any())
    if shows:
        made = made._replace(shown=records(len(workload), TOKEN))  # an event brings one token of each at most
    if rows == 1 and not of_each and not shows:
        return made
    requests = records(len(workload), REQUEST)
    if len(priorities) > 1:
        requests.of = np.searchsorted(priorities, workload.priority)
    requests.of[warm] = len(priorities)
    if of_each:
        requests.rows = np.maximum(-(-(_target(workload) - 1) // LONGEST), 2)  # a percentile may be between two
        requests.first = np.cumsum(requests.rows) - requests.rows
    longest = np.zeros(int(requests.rows.sum()))
    return made._replace(each=True, classes=records(rows, CLASS), requests=requests, longest=longest)


def _priorities(workload: Workload) -> Ints:
    """What tells classes apart; of more than `MOST_CLASSES` the first."""
    one = workload.priority[:1]
    if (workload.priority == one).all():  # as nearly always: to sort takes longer
        return one
    known = np.unique(workload.priority)
    return known[:1] if len(known) > MOST_CLASSES else known


def _target(workload: Workload) -> Longs:
    """(n,) tokens that each answer will have."""
    return np.minimum(workload.output_tokens, workload.max_new_tokens).astype(np.int64)


def columns(workload: Workload, made: Counts) -> dict[str, Any]:
    """What came of them, as columns of `Outcome`. Of a request that began anew no more gaps are taken than its answer
    has, the longest."""
    priorities = _priorities(workload)
    classes = made.classes[: len(priorities)]  # a warm-up is behind
    of_run = {"gaps_counts": classes.bins, "gaps_sum_s": classes.sum_s, "gaps_max_s": classes.max_s}
    of_run["gaps_priority"] = priorities
    if len(made.longest) == 0:
        return of_run
    p99_s, top10_s = np.full(len(workload), np.nan), np.full(len(workload), np.nan)
    target, of_each = _target(workload), made.requests
    for request in np.flatnonzero(of_each.seen):
        first, seen = int(of_each.first[request]), int(min(of_each.seen[request], target[request] - 1))
        some = made.longest[first : first + int(of_each.rows[request])]
        longest = np.sort(some[: min(seen, len(some))])[::-1]
        top10_s[request] = longest[: -(-seen // LONGEST)].mean()
        beyond = 0.01 * (seen - 1)  # so many are longer than the percentile
        above, below = longest[int(beyond)], longest[min(math.ceil(beyond), len(longest) - 1)]
        p99_s[request] = above + (below - above) * (beyond - int(beyond))
    return of_run | {"gap_p99_s": p99_s, "gap_top10_s": top10_s}


# ---------------------------------------------------------------- what engines call
@compiled
def alike(one: Any, gap_s: float, count: int) -> None:
    """So many gaps of one length, of one class. It is handed that class alone: to be handed all that is counted took
    longer than to count."""
    if count <= 0:
        return
    row = (int(np.float64(gap_s).view(np.int64)) >> SHIFT) - ZERO
    one.bins[min(max(row, 0), BINS - 1)] += count
    one.sum_s += count * gap_s
    one.max_s = max(one.max_s, gap_s)


@compiled
def add(gaps: Counts, request: int, gap_s: float, count: int) -> None:
    """So many gaps of one length: of a request, or of any if engines need not say `token` of every token."""
    if count <= 0:
        return
    alike(gaps.classes[gaps.requests[request].of if gaps.each else 0], gap_s, count)
    if len(gaps.longest) == 0:
        return
    mine = gaps.requests[request]
    longest = gaps.longest[mine.first : mine.first + mine.rows]
    for _ in range(count):
        at = int(mine.seen)
        mine.seen += 1
        if at < len(longest):
            while at > 0 and longest[(at - 1) >> 1] > gap_s:
                longest[at] = longest[(at - 1) >> 1]
                at = (at - 1) >> 1
        elif gap_s <= longest[0]:
            continue
        else:
            at, child = 0, 1
            while child < len(longest):
                if child + 1 < len(longest) and longest[child + 1] < longest[child]:
                    child += 1
                if longest[child] >= gap_s:
                    break
                longest[at] = longest[child]
                at, child = child, 2 * child + 1
        longest[at] = gap_s


@compiled
def token(gaps: Counts, row: int, now: float) -> None:
    """A request, or a leg of it, has a token that is shown now."""
    last_s = gaps.last_s
    request = row - len(last_s) if row >= len(last_s) else row
    if not np.isnan(last_s[request]):
        add(gaps, request, now - last_s[request], 1)
    last_s[request] = now
    if len(gaps.shown) > 0:
        shown = gaps.shown[gaps.showing[0]]
        shown.request, shown.at_s = request, now
        gaps.showing[0] += 1
