"""Blocks of prompts that a router believes each GPU holds, because it sent them there: an LRU of blocks a GPU.

A block is known by the whole prefix that it ends. A segment id stands for its whole path, so a block is the segment
that holds its last token, and its number within the prompt; the partial block behind a prompt's full ones is known by
the segment that the prompt ends with.

A put touches a prompt's blocks from the first on. So the last put that touched a block, and the block's number, say how
old it is; all blocks that end in one segment were last touched by one put; and what a put still owns (touched by no
later one, not evicted) are its last blocks, however many. Nothing is kept for a block: a link for each segment and
GPU has the last put, a put has its first block that is still its own, and a GPU has the oldest block that it holds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.policies.growing import longer
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import ENTRIES, SEGMENTS, View
from prebleexp.sim.types import Setup, records

LINK = np.dtype(
    [
        ("gpu", np.int32),
        ("last", np.int32),  # the last put there of the blocks that end in the segment
        ("ended", np.int32),  # … of the partial block of a prompt that ends with it; 0: none
    ],
    align=True,
)

STRETCH = np.dtype([("first", np.int32), ("links", np.int32)], align=True)
"""A segment's links lie side by side: as many as `links`, and room up to the next power of two."""

PUT = np.dtype(
    [
        ("blocks", np.int32),
        ("own", np.int32),  # its first block that no later put of its GPU has touched
        ("next", np.int32),  # of its GPU
    ],
    align=True,
)

LRU = np.dtype(
    [
        ("blocks", np.int64),  # that it has
        ("oldest", np.int64),  # put of the oldest of them, …
        ("evicted", np.int64),  # … of which these first blocks are gone
        ("newest", np.int64),
        ("forgotten", np.int64),  # nothing counts of puts up to this one
    ],
    align=True,
)


class BlockIndex(NamedTuple):
    """Puts are numbered from 1 on. Its arrays are as large as a run can need in which each request is routed once; what
    is never written to takes no memory."""

    block_size: int
    """tokens"""
    most: int
    """blocks of a prompt that count"""
    partial: bool
    """whether a prompt's last, partial block counts"""
    capacity: int
    """blocks a GPU"""
    leaks: bool
    """whether a prompt may have more blocks than that"""
    stretches: Any
    """(segment ids,)"""
    links: Any
    puts: Any
    lrus: Any
    """(GPUs,)"""
    used: Any
    """(2,) links, and puts, so far"""


def block_index(setup: Setup, block_size: int, most: int, partial: bool, capacity: int) -> BlockIndex:
    """An empty one. A stretch that is outgrown is left behind: with all before it, it is shorter than the next."""
    links = 4 * setup.segments
    puts = records(setup.requests + 1, PUT)
    made = records(setup.segment_ids, STRETCH), records(links, LINK), puts, records(setup.gpus, LRU)
    return BlockIndex(block_size, most, partial, capacity, most > capacity, *made, np.zeros(2, np.int64))


@compiled
def blocks_of(index: BlockIndex, view: View, request: int) -> int:
    """Blocks of the prompt that count."""
    tokens = view.requests[request].prompt_tokens
    return min(index.most, (tokens + index.block_size - 1 if index.partial else tokens) // index.block_size)


@compiled
def _full_blocks(index: BlockIndex, tokens: int) -> int:
    return min(index.most, tokens // index.block_size)


# ---------------------------------------------------------------- room
@compiled
def lacks_room(index: BlockIndex, view: View, request: int) -> int:
    """Whether putting the prompt may need more puts than there are, as where requests are routed again, or more links:
    each of its segments may move to where there is room for twice as many."""
    wanted = 2 * view.requests[request].segments * len(view.sent)
    return int(index.used[1] + 1 >= len(index.puts) or index.used[0] + wanted > len(index.links))


def with_more_room(index: BlockIndex, view: Any, request: int) -> BlockIndex:
    puts, links, wanted = index.puts, index.links, 2 * int(view.requests[request].segments) * len(view.sent)
    if index.used[1] + 1 >= len(puts):
        puts = longer(puts)
    while index.used[0] + wanted > len(links):
        links = longer(links)
    return index._replace(puts=puts, links=links)


# ---------------------------------------------------------------- what is believed
@compiled
def leading(index: BlockIndex, view: View, request: int, into: Any) -> None:
    """Write to into[g] how many of the prompt's leading full blocks GPU g holds."""
    into[:] = 0
    row, links, low = view.requests[request], index.links, 0
    for one in range(row.first_segment, row.first_segment + row.segments):
        high = _full_blocks(index, view.prompts.ends[one])
        if high > low:
            first, end = _links(index, view, view.prompts.ids[one])
            longest = 0
            for link in range(first, end):
                gpu = links[link].gpu
                if into[gpu] == low and _first_held(index, gpu, links[link].last, low, high) == low:
                    into[gpu] = longest = high
            if longest < high:
                return
            low = high


@compiled
def counted(index: BlockIndex, view: View, request: int, into: Any) -> None:
    """Write to into[g] how many blocks GPU g has of the prompt's leading ones that anybody has. What a prompt pushes
    out of its own GPU's LRU counts there for ever, or until it is touched again."""
    into[:] = 0
    row, links, low = view.requests[request], index.links, 0
    for one in range(row.first_segment, row.first_segment + row.segments):
        high = _full_blocks(index, view.prompts.ends[one])
        if high > low:
            first, end = _links(index, view, view.prompts.ids[one])
            since, until = high, low  # anybody has those before `until`, and from `since` on
            for link in range(first, end):
                gpu, put = links[link].gpu, links[link].last
                held = _first_held(index, gpu, put, low, high)
                leaks = index.leaks and put > index.lrus[gpu].forgotten
                lost = min(held, max(low, index.puts[put].blocks - index.capacity)) if leaks else low
                into[gpu] += high - held + lost - low
                since, until = min(since, held), max(until, lost)
            if until < since:
                for link in range(first, end):
                    into[links[link].gpu] -= high - _first_held(index, links[link].gpu, links[link].last, low, high)
                return
            low = high
    _add_partial(index, view, request, into, low)


@compiled
def _links(index: BlockIndex, view: View, segment: int) -> tuple[int, int]:
    """The segment's: the first, and the end."""
    stretch = index.stretches[segment]
    view.work[SEGMENTS] += 1
    view.work[ENTRIES] += stretch.links
    return int(stretch.first), int(stretch.first) + int(stretch.links)


@compiled
def _add_partial(index: BlockIndex, view: View, request: int, into: Any, full: int) -> None:
    """Add the block behind so many full ones, which are all that there are, where anybody has all of them."""
    if full < blocks_of(index, view, request):
        row, links = view.requests[request], index.links
        first, end = _links(index, view, view.prompts.ids[row.first_segment + row.segments - 1])
        for link in range(first, end):
            into[links[link].gpu] += full + 1 - _first_held(index, links[link].gpu, links[link].ended, full, full + 1)


@compiled
def _first_held(index: BlockIndex, gpu: int, put: int, low: int, high: int) -> int:
    """The first block that the GPU's LRU has of those from `low` to `high`, all touched last by this put; `high`:
    none."""
    lru = index.lrus[gpu]
    if put > lru.oldest:
        return low
    return min(high, max(low, int(lru.evicted))) if put == lru.oldest else high


# ---------------------------------------------------------------- what was sent
@compiled
def put(index: BlockIndex, view: View, request: int, gpu: int) -> None:
    """Touch all blocks of the prompt, in their order, and evict the oldest of the GPU beyond its capacity."""
    row, lru, number, low = view.requests[request], index.lrus[gpu], _new_put(index, gpu), 0
    blocks, last = blocks_of(index, view, request), row.first_segment + row.segments - 1
    index.puts[number].blocks = blocks
    lru.blocks += blocks
    for one in range(row.first_segment, last + 1):
        high = _full_blocks(index, view.prompts.ends[one])
        ends = one == last and high < blocks
        if high > low or ends:
            link = index.links[_link_of(index, view.prompts.ids[one], gpu)]
            if high > low:
                lru.blocks -= _take(index, gpu, link.last, low, high)
                link.last = number
            if ends:
                lru.blocks -= _take(index, gpu, link.ended, high, blocks)
                link.ended = number
            low = high
    _evict(index, gpu)


@compiled
def _new_put(index: BlockIndex, gpu: int) -> int:
    index.used[1] += 1
    number, lru = index.used[1], index.lrus[gpu]
    if lru.oldest == 0:
        lru.oldest = number
    index.puts[lru.newest].next = number
    lru.newest = number
    return number


@compiled
def _take(index: BlockIndex, gpu: int, put: int, low: int, high: int) -> int:
    """Let these blocks be no longer the put's own; returns how many of them the LRU has."""
    if put == 0:
        return 0
    index.puts[put].own = high
    return high - _first_held(index, gpu, put, low, high)


@compiled
def _evict(index: BlockIndex, gpu: int) -> None:
    lru = index.lrus[gpu]
    while lru.blocks > index.capacity:
        oldest = index.puts[lru.oldest]
        first = max(lru.evicted, oldest.own)
        gone = min(oldest.blocks - first, lru.blocks - index.capacity)
        lru.blocks -= gone
        lru.evicted = first + gone
        if lru.evicted == oldest.blocks:
            lru.oldest, lru.evicted = oldest.next, 0


@compiled
def forget_all(index: BlockIndex, gpu: int) -> None:
    """The GPU has none of its blocks any more."""
    lru = index.lrus[gpu]
    lru.blocks, lru.oldest, lru.forgotten = 0, lru.newest, lru.newest
    lru.evicted = index.puts[lru.newest].blocks


# ---------------------------------------------------------------- links
@compiled
def _link_of(index: BlockIndex, segment: int, gpu: int) -> int:
    """The segment's link for a GPU, made if there is none."""
    stretch, links = index.stretches[segment], index.links
    for link in range(stretch.first, stretch.first + stretch.links):
        if links[link].gpu == gpu:
            return link
    if stretch.links & (stretch.links - 1) == 0:  # none, or a power of two
        _move(index, segment)
    link = stretch.first + stretch.links
    stretch.links += 1
    links[link].gpu = gpu
    return link


@compiled
def _move(index: BlockIndex, segment: int) -> None:
    """To where there is room for twice as many links."""
    stretch, links, first = index.stretches[segment], index.links, index.used[0]
    index.used[0] += max(1, 2 * stretch.links)
    for one in range(stretch.links):
        links[first + one] = links[stretch.first + one]
    stretch.first = first
