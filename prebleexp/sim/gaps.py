"""Gaps between tokens, counted while a run goes on.

A gap is the time from a token of a request to its next one, wherever they were made: what preemptions, prefills of
others, moves, transfers and losses take of it shows in it. An engine says either that a request has a token (`token`),
or, of requests that decode together and had one at the same time before, how many have one after what gap (`add`).
It writes down when the last token of the latter came (`Counts.last_s`) where they cease to decode together, or somebody
looks.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from prebleexp.sim.compiled import compiled
from prebleexp.sim.histogram import BINS, SHIFT, ZERO
from prebleexp.sim.pools import request_of
from prebleexp.sim.records import NONE, World
from prebleexp.sim.types import Ints, Longs, Workload

MOST_CLASSES = 16
"""where requests have more priorities, they are of one class"""
LONGEST = 10
"""one of so many gaps of a request is kept, where they are asked for: the longest"""


class Counts(NamedTuple):
    """What is counted, and what that needs."""

    each: bool
    """whether engines say `token` of every token: requests have several classes, or the gaps of each are asked for"""
    bins: Any
    """(classes, `BINS`)"""
    max_s: Any
    """(classes,)"""
    first_s: Any
    """(classes,) the sum of when requests had their first tokens"""
    last_s: Any
    """(n,) when the last token of each request came; NaN: it has none. Not up to date while it decodes with others"""
    classes: Any
    """(n,) of which class each request is"""
    first: Any
    """(n + 1,) its rows of `longest`; all 0 where they are not asked for"""
    seen: Any
    """(n,) how many gaps each had"""
    longest: Any
    """the longest gaps of each request, a heap with the least of them on top"""


def nothing(requests: int) -> Counts:
    """Of requests that are of one class, and of which none is asked for."""
    zeros = np.zeros(requests, np.int64)
    last_s, first = np.full(requests, np.nan), np.zeros(requests + 1, np.int64)
    bins, longest = np.zeros((1, BINS), np.int64), np.zeros(0)
    return Counts(False, bins, np.zeros(1), np.zeros(1), last_s, zeros, first, zeros.copy(), longest)


def counts(workload: Workload, of_each: bool) -> Counts:
    """For the requests of a workload, without legs. Those of a warm-up (`stage` −1) are a class behind the others.
    `of_each`: the longest gaps of each request are asked for."""
    made = nothing(len(workload))
    priorities, warm = _priorities(workload), workload.stage < 0
    classes, rows = np.searchsorted(priorities, workload.priority), len(priorities)
    classes = np.where(warm, rows, classes if rows > 1 else 0)
    rows += int(warm.any())
    if of_each:
        made.first[1:] = np.cumsum(
            np.maximum(-(-(_target(workload) - 1) // LONGEST), 2)
        )  # a percentile may be between two
    return made._replace(
        each=of_each or rows > 1,
        bins=np.zeros((rows, BINS), np.int64),
        max_s=np.zeros(rows),
        first_s=np.zeros(rows),
        classes=classes.astype(np.int64),
        longest=np.zeros(int(made.first[-1])),
    )


def _priorities(workload: Workload) -> Ints:
    """What tells classes apart; of more than `MOST_CLASSES` the first."""
    known = np.unique(workload.priority)
    return known[:1] if len(known) > MOST_CLASSES else known


def _target(workload: Workload) -> Longs:
    """Tokens of each answer."""
    return np.minimum(workload.output_tokens, workload.max_new_tokens).astype(np.int64)


def columns(workload: Workload, made: Counts) -> dict[str, Any]:
    """What came of them, as columns of `Outcome`. Of a request that began anew no more gaps are taken than its answer
    has, the longest."""
    priorities = _priorities(workload)
    p99_s, top10_s = np.full(len(workload), np.nan), np.full(len(workload), np.nan)
    for request in np.flatnonzero(made.seen):
        some = made.longest[made.first[request] : made.first[request + 1]]
        seen = int(min(made.seen[request], _target(workload)[request] - 1))
        longest = np.sort(some[: min(seen, len(some))])[::-1]
        top10_s[request] = longest[: -(-seen // LONGEST)].mean()
        beyond = 0.01 * (seen - 1)  # so many are longer than the percentile
        above, below = longest[int(beyond)], longest[min(math.ceil(beyond), len(longest) - 1)]
        p99_s[request] = above + (below - above) * (beyond - int(beyond))
    has, rows = ~np.isnan(made.last_s), slice(len(priorities))  # those of a warm-up are behind
    sum_s = np.bincount(made.classes[has], made.last_s[has], len(made.first_s)) - made.first_s
    of_run = {"gaps_counts": made.bins[rows], "gaps_sum_s": sum_s[rows], "gaps_max_s": made.max_s[rows]}
    return of_run | {"gaps_priority": priorities, "gap_p99_s": p99_s, "gap_top10_s": top10_s}


# ---------------------------------------------------------------- what engines call
@compiled
def add(world: World, request: int, gap_s: float, count: int) -> None:
    """So many gaps of one length: of a request, or, of -1, of several if all are of one class and not kept."""
    gaps = world.gaps
    if count <= 0:
        return
    one = 0 if request == NONE else int(gaps.classes[request])
    row = (int(np.float64(gap_s).view(np.int64)) >> SHIFT) - ZERO
    row = min(max(row, 0), BINS - 1)
    gaps.bins[one, row] += count
    gaps.max_s[one] = max(gaps.max_s[one], gap_s)
    if request == NONE or len(gaps.longest) == 0:
        return
    longest = gaps.longest[gaps.first[request] : gaps.first[request + 1]]
    for _ in range(count):
        at = int(gaps.seen[request])
        gaps.seen[request] += 1
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
def token(world: World, row: int, now: float) -> None:
    """A request, or a leg of it, has a token that is shown now."""
    request, last_s = request_of(world, row), world.gaps.last_s
    if not np.isnan(last_s[request]):
        add(world, request, now - last_s[request], 1)
    else:
        world.gaps.first_s[int(world.gaps.classes[request])] += now
    last_s[request] = now
