"""What of a context is cached where layers have groups (vllm/v1/core/kv_cache_coordinator.py).

A prefix is found as far as all groups have it: those that look back to all need all of its blocks, those with a window
the last ones alone. So the former are looked through from the left, and the latter from the right.

What an engine remembers of groups, beside `engines.vllm.records`, comes first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.engines.segments import segment_of
from prebleexp.engines.vllm.blocks import end_of, found_run, most_of, segment_at
from prebleexp.engines.vllm.records import Engines
from prebleexp.engines.vllm.runs import neighbour
from prebleexp.sim.children import child_of
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, World

FULL, SLIDING, CHUNKED = range(3)
"""what layers look back to: all, a window, or where their chunk of the context begins"""

LINK = np.dtype([("rank", np.int64), ("before", np.int32), ("behind", np.int32)], align=True)
"""A request among the steady ones of its phase: how many were admitted to its GPU before it, and its neighbours. In a
phase itself the first and the last meet."""

TABLE = np.dtype(
    [
        ("low", np.int32),  # its blocks before this one were given up, or never held
        ("first", np.int32),  # the first one that it held when it was admitted
        ("gone_from", np.int32),  # of those that tiers were not offered, others hold these: they are not offered, …
        ("gone_to", np.int32),  # … but those from here on
        ("cached", np.int32),  # of those that it holds, how many are cached: those of its `HOLD`s
        ("holds", np.int32),  # the last of these
        ("answer", np.int32),  # the run of its answer alone that it has begun; -1: none
    ],
    align=True,
)
"""What a request holds of one group of layers, where there are several: up to the job's `blocks`, as in all groups."""

GROUP = np.dtype(
    [
        ("kind", np.int64),  # `FULL`, `SLIDING` or `CHUNKED`
        ("window", np.int64),  # tokens
        ("tail", np.int64),  # blocks that a hit must have at its end
        ("cap", np.int64),  # blocks that a request holds at most; `NEVER`: no limit
        ("every", np.int64),  # the last `tail` blocks of every so many are cached; 0: none of these; -1: all are
        ("key", np.int64),  # which of the keys of a segment its blocks have; 0 of the group of which routers hear
    ],
    align=True,
)
"""Layers that have their blocks in common."""

ALIKE = np.dtype([(name, np.int64) for name in ("kind", "window", "tail", "first", "size")], align=True)
"""Groups of one kind, which a lookup sees together: so many of `Groups.members` from the first one on."""


class Groups(NamedTuple):
    """Groups of layers, each with a table of its own for every request, over one pool of blocks."""

    all: Any
    """(groups,) `GROUP`"""
    alike: Any
    """(kinds,) `ALIKE`, those that look back to all first"""
    members: Any
    """(groups,) which, one kind after the other; …"""
    runs: Any
    """(groups,) … and of each a run that has the block in hand, while a lookup goes on"""
    order: Any
    """(groups,) in which tiers are looked through: so many that look back to all …"""
    full: int
    """… and then those with a window, the longest first"""
    tables: Any
    """(n, groups) `TABLE`"""
    due: Any
    """(n,) positions that are computed in steps which are over, as soon as a request has so many it gives blocks up"""
    links: Any
    """(n + GPUs · block_size,) `LINK`s of requests, and of each GPU's phases behind them: see `engines.vllm.phases`"""
    offsets: Any
    """in how many steps from taking a block a steady request takes one or gives some up, each once: 0, and what follows
    from windows"""
    next: Any
    """(offsets,) of the step in hand, who is next of each of its phases"""
    walked: Any
    """(GPUs,) the last step of which `next` was"""
    ranks: Any
    """(GPUs,) admissions so far"""
    junctions: Any
    """(n,) blocks of a prefix that some groups have, and others are to keep, when the request computes it"""
    head: int
    """group of a draft's head, of which the last block that is found is computed again; -1: there is none"""
    lags: Any
    """(tiers, n) of other groups, how many blocks a tier was offered when it was offered one less of the head's"""
    told: int
    """group of which routers hear, and whose blocks a step reads: the first that looks back to all, if there is one"""
    held: Any
    """(GPUs,) blocks of that group that requests hold"""
    keep_answers: bool
    """whether some group with a window caches blocks of answers"""
    block_tokens: float
    """of all layers, that take as much memory as a block of the pool"""
    whole: Any
    """(GPUs, `STEPS`, max_num_seqs, groups) blocks that requests hold when a step is scheduled, if somebody watches"""


@compiled
def lookup(mine: Engines, world: World, g: int, request: int) -> tuple[int, int]:
    """Blocks of a context that all groups have, and the most that any kind of them had meanwhile. Touches nothing."""
    groups, size = mine.groups, mine.settings.block_size
    most, longest, full = most_of(mine, request), 0, NONE
    while True:
        length = most
        for kind in range(len(groups.alike)):
            one = groups.alike[kind]
            if one.kind == FULL and full != NONE:
                length = min(length, full)
                continue
            if one.kind == FULL:
                dropped = int(groups.head != NONE)  # the last one, which a head looks behind
                until = min(length + dropped, int(mine.jobs[request].known) // size)
                length = full = max(0, _from_left(mine, world, g, request, one, 0, until) - dropped)
            elif one.kind == CHUNKED:
                first = behind(int(one.kind), int(one.window), length * size, size)
                length = _from_left(mine, world, g, request, one, first, length)
            else:
                length = _from_right(mine, world, g, request, one, length)
            longest = max(longest, length)
        shrunk, most = length < most, length
        if not shrunk or (full != NONE and len(groups.alike) == 2):
            return most, longest


@compiled
def behind(kind: int, window: int, computed: int, size: int) -> int:
    """Blocks of so many tokens that nobody needs who has computed so many positions."""
    if kind == FULL:
        return 0
    needless = computed // window * window if kind == CHUNKED else computed - window + 1
    return int(max(0, needless) // size)


@compiled
def _from_left(mine: Engines, world: World, g: int, request: int, kind: Any, low: int, most: int) -> int:
    """Until where all groups of a kind have blocks from `low` on."""
    at, segment = low, 0
    mine.groups.runs[:] = NONE
    while at < most:
        segment = segment_at(mine, world, request, segment, at)
        until = most
        for row in range(kind.first, kind.first + kind.size):
            of = int(mine.groups.all[mine.groups.members[row]].key)
            run, until = found_run(mine, world, g, request, segment, at, until, of, int(mine.groups.runs[row]))
            if run == NONE:
                return at
            mine.groups.runs[row] = run
        at = until
    return at


@compiled
def _from_right(mine: Engines, world: World, g: int, request: int, kind: Any, most: int) -> int:
    """The longest prefix of at most `most` blocks of which all groups of a kind have the last `tail`, or all."""
    end = at = most  # blocks at … end − 1 are cached
    segment, tail = 0, max(1, int(kind.tail))
    mine.groups.runs[:] = NONE
    if most > 0:
        segment = segment_at(mine, world, request, 0, most - 1)
    while at > 0 and end - at < tail:
        while segment > 0 and end_of(mine, world, request, segment - 1) >= at * mine.settings.block_size:
            segment -= 1
        below, found = 0, True
        for row in range(kind.first, kind.first + kind.size):
            of, first = int(mine.groups.all[mine.groups.members[row]].key), 0
            if segment > 0:  # the segment's first block
                first = int(end_of(mine, world, request, segment - 1)) // mine.settings.block_size
            key = segment_of(mine, world, request, segment) * mine.settings.tables + of
            run, next_below = _reach(mine, g, key, first, at - 1, int(mine.groups.runs[row]))
            if run == NONE:
                at, found = min(at - 1, next_below), False
                break
            mine.groups.runs[row] = run
            below = max(below, next_below)
        if found:
            at = below
        else:
            end = at
    return end


@compiled
def _reach(mine: Engines, g: int, key: int, first: int, block: int, near: int) -> tuple[int, int]:
    """A run that has a block of a key, and from where on it has those up to it; -1: none has it, and behind which
    block, not before the key's first one, none is. `near`: one that has the block behind it, if that is known."""
    run = neighbour(mine, near, key, block)
    if run != NONE:
        return run, int(mine.blocks.runs[run].low)
    runs, begin = mine.blocks.runs, child_of(mine.blocks, g, key)
    run, below = begin, first
    while run != NONE:
        if runs[run].high <= block:
            below = max(below, int(runs[run].high))
        elif runs[run].low <= block:
            return run, int(runs[run].low)
        run = int(runs[run].newer)
        if run == begin:
            break
    return NONE, below
