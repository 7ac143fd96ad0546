"""What of a context is cached where layers have groups (vllm/v1/core/kv_cache_coordinator.py).

A prefix is found as far as all groups have it: those that look back to all need all of its blocks, those with a window
the last ones alone. So the former are looked through from the left, and the latter from the right.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.segments import segment_of
from prebleexp.engines.vllm.blocks import end_of, found_run, most_of, segment_at
from prebleexp.engines.vllm.group_records import CHUNKED, FULL
from prebleexp.engines.vllm.records import Engines
from prebleexp.sim.children import child_of
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, World


@compiled
def lookup(mine: Engines, world: World, g: int, request: int) -> tuple[int, int]:
    """Blocks of a context that all groups have, and the most that any kind of them had meanwhile. Touches nothing."""
    groups = mine.groups
    most, longest, full = most_of(mine, request), 0, NONE
    while True:
        length = most
        for kind in range(len(groups.alike)):
            one = groups.alike[kind]
            if one.kind == FULL and full != NONE:
                length = min(length, full)
                continue
            if one.kind == FULL:
                length = full = _from_left(mine, world, g, request, one, 0, length)
            elif one.kind == CHUNKED:
                first = behind(mine, int(one.kind), int(one.window), length * mine.settings.block_size)
                length = _from_left(mine, world, g, request, one, first, length)
            else:
                length = _from_right(mine, world, g, request, one, length)
            longest = max(longest, length)
        shrunk, most = length < most, length
        if not shrunk or (full != NONE and len(groups.alike) == 2):
            return most, longest


@compiled
def behind(mine: Engines, kind: int, window: int, computed: int) -> int:
    """Blocks that nobody needs who has computed so many positions."""
    if kind == FULL:
        return 0
    needless = computed // window * window if kind == CHUNKED else computed - window + 1
    return int(max(0, needless) // mine.settings.block_size)


@compiled
def _from_left(mine: Engines, world: World, g: int, request: int, kind: Any, low: int, most: int) -> int:
    """Until where all groups of a kind have blocks from `low` on."""
    at, segment = low, 0
    while at < most:
        segment = segment_at(mine, world, request, segment, at)
        until = most
        for row in range(kind.first, kind.first + kind.size):
            of = int(mine.groups.all[mine.groups.members[row]].key)
            run, until = found_run(mine, world, g, request, segment, at, until, of)
            if run == NONE:
                return at
        at = until
    return at


@compiled
def _from_right(mine: Engines, world: World, g: int, request: int, kind: Any, most: int) -> int:
    """The longest prefix of at most `most` blocks of which all groups of a kind have the last `tail`, or all."""
    end = at = most  # blocks at … end − 1 are cached
    segment, tail = 0, max(1, int(kind.tail))
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
            here, next_below = _reach(mine, g, segment_of(mine, world, request, segment) + of, first, at - 1)
            if not here:
                at, found = min(at - 1, next_below), False
                break
            below = max(below, next_below)
        if found:
            at = below
        else:
            end = at
    return end


@compiled
def _reach(mine: Engines, g: int, key: int, first: int, block: int) -> tuple[bool, int]:
    """Whether a block of a key is cached; if so, from where on a run has the blocks up to it, else behind which block,
    not before the key's first one, none is."""
    runs, begin = mine.blocks.runs, child_of(mine.blocks, g, key)
    run, below = begin, first
    while run != NONE:
        if runs[run].high <= block:
            below = max(below, int(runs[run].high))
        elif runs[run].low <= block:
            return True, int(runs[run].low)
        run = int(runs[run].newer)
        if run == begin:
            break
    return False, below
