"""What each GPU holds, as a router knows it: a radix tree over prompts with a set of GPUs at every node.

Because a segment id stands for its whole path from the root, one comparison tells whether two prompts agree up to a
segment. A GPU that holds a node holds what lies above it, unless it has said otherwise (`forget`).

Its arrays are as large as a run can need; what is never written to takes no memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NODES, SEGMENTS, View
from prebleexp.sim.types import Setup, records

NODE = np.dtype(
    [
        ("parent", np.int32),
        ("owner", np.int32),  # a request whose prompt goes through the node …
        ("segment", np.int32),  # … which ends behind this many of its segments
        ("tokens", np.int32),  # from the root through the node
    ],
    align=True,
)


class PrefixIndex(NamedTuple):
    """Node 0 is the root."""

    nodes: Any
    count: Any
    """(1,) nodes so far"""
    holders: Any
    """(nodes, words) the GPUs that hold each, 64 a word"""
    begins: Any
    """(segment ids,) the node that begins with a segment; 0: none"""
    held: Any
    """(GPUs,) tokens that each holds"""


def prefix_index(setup: Setup) -> PrefixIndex:
    """An empty one for the requests of a run: each adds two nodes at most."""
    size = 2 * setup.requests + 1
    return PrefixIndex(
        records(size, NODE),
        np.ones(1, np.int64),
        np.zeros((size, -(-setup.gpus // 64)), np.int64),
        np.zeros(setup.segment_ids, np.int32),
        np.zeros(setup.gpus, np.int64),
    )


# ---------------------------------------------------------------- what routers ask
@compiled
def longest_match(index: PrefixIndex, view: View, request: int, candidates: Any) -> tuple[int, int]:
    """The longest prefix of the prompt that any candidate holds: (tokens, the first candidate that holds it); (0, the
    first candidate) if there is none."""
    node, tokens = _walk(index, view, request)
    while node != 0:
        for gpu in candidates:
            if holds(index, node, gpu):
                return tokens, int(gpu)
        node = int(index.nodes[node].parent)
        tokens = int(index.nodes[node].tokens)
    return 0, int(candidates[0])


@compiled
def matches(index: PrefixIndex, view: View, request: int, into: Any) -> None:
    """Write to into[g] how many leading tokens of the prompt GPU g holds."""
    for gpu in range(len(into)):
        into[gpu] = 0
    node, tokens = _walk(index, view, request)
    while node != 0:
        for gpu in range(len(into)):
            if into[gpu] == 0 and holds(index, node, gpu):
                into[gpu] = tokens
        node = int(index.nodes[node].parent)
        tokens = int(index.nodes[node].tokens)


@compiled
def holds(index: PrefixIndex, node: int, gpu: int) -> bool:
    return (index.holders[node, gpu >> 6] >> (gpu & 63)) & 1 == 1


# ---------------------------------------------------------------- what they are told
@compiled
def insert(index: PrefixIndex, view: View, request: int, gpu: int) -> None:
    """From now on the GPU holds the whole prompt."""
    nodes, row = index.nodes, view.requests[request]
    node, segment = 0, 0
    while segment < row.segments:
        first = int(view.prompts.ids[row.first_segment + segment])
        child = int(index.begins[first])
        if child == 0:
            child = _new_node(index, node, request, int(row.segments), int(row.prompt_tokens), first)
        agreed = _agree(index, view, child, request, segment)
        if agreed < nodes[child].segment:
            child = _split(index, view, child, agreed, first)
        _hold(index, child, gpu)
        node, segment = child, agreed


@compiled
def forget(index: PrefixIndex, view: View, request: int, gpu: int, tokens: int) -> None:
    """The GPU no longer holds what lies beyond so many tokens of the prompt."""
    nodes, row = index.nodes, view.requests[request]
    node, segment = 0, 0
    while segment < row.segments:
        first = int(view.prompts.ids[row.first_segment + segment])
        child = int(index.begins[first])
        if child == 0:
            return
        agreed = _agree(index, view, child, request, segment)
        kept = _segments_within(view, row, segment, agreed, tokens)
        if segment < kept < nodes[child].segment:  # it keeps a part of the node
            child, agreed = _split(index, view, child, kept, first), kept
        elif agreed < nodes[child].segment:
            return  # the node is another prompt's
        if kept <= segment and holds(index, child, gpu):
            index.holders[child, gpu >> 6] ^= np.int64(1) << np.int64(gpu & 63)
            index.held[gpu] -= nodes[child].tokens - nodes[node].tokens
        node, segment = child, agreed


# ---------------------------------------------------------------- the tree
@compiled
def _walk(index: PrefixIndex, view: View, request: int) -> tuple[int, int]:
    """How far the prompt goes along the tree: (the last node that it enters, tokens that agree)."""
    nodes, row = index.nodes, view.requests[request]
    node, segment = 0, 0
    while segment < row.segments:
        view.work[NODES] += 1
        child = int(index.begins[view.prompts.ids[row.first_segment + segment]])
        if child == 0:
            break
        agreed = _agree(index, view, child, request, segment)
        if agreed < nodes[child].segment:
            return child, int(view.prompts.ends[row.first_segment + agreed - 1])
        node, segment = child, agreed
    return node, int(nodes[node].tokens)


@compiled
def _agree(index: PrefixIndex, view: View, node: int, request: int, segment: int) -> int:
    """How many segments of the prompt agree with the path through `node`, which it enters behind `segment` of them."""
    ids, row = view.prompts.ids, view.requests[request]
    mine, other = row.first_segment, view.requests[index.nodes[node].owner].first_segment
    end = min(int(index.nodes[node].segment), int(row.segments))
    view.work[SEGMENTS] += 1
    if ids[mine + end - 1] == ids[other + end - 1]:
        return end
    low = segment + 1  # these agree; `end` do not
    while end - low > 1:
        middle = (low + end) >> 1
        view.work[SEGMENTS] += 1
        if ids[mine + middle - 1] == ids[other + middle - 1]:
            low = middle
        else:
            end = middle
    return low


@compiled
def _segments_within(view: View, row: Any, first: int, last: int, tokens: int) -> int:
    """Of the segments of a prompt from `first` to `last`, behind how many it is at most `tokens` long."""
    while first < last and view.prompts.ends[row.first_segment + first] <= tokens:
        first += 1
    return first


@compiled
def _new_node(index: PrefixIndex, parent: int, owner: int, segment: int, tokens: int, first: int) -> int:
    node = int(index.count[0])
    index.count[0] += 1
    record = index.nodes[node]
    record.parent, record.owner, record.segment, record.tokens = parent, owner, segment, tokens
    index.begins[first] = node
    return node


@compiled
def _split(index: PrefixIndex, view: View, lower: int, segment: int, first: int) -> int:
    """Cut `lower` so that its upper part, which is returned and held by the same GPUs, ends behind `segment`
    segments."""
    record = index.nodes[lower]
    row = view.requests[record.owner]
    tokens = int(view.prompts.ends[row.first_segment + segment - 1])
    upper = _new_node(index, int(record.parent), int(record.owner), segment, tokens, first)
    for word in range(index.holders.shape[1]):
        index.holders[upper, word] = index.holders[lower, word]
    record.parent = upper
    index.begins[view.prompts.ids[row.first_segment + segment]] = lower
    return upper


@compiled
def _hold(index: PrefixIndex, node: int, gpu: int) -> None:
    if not holds(index, node, gpu):
        index.holders[node, gpu >> 6] |= np.int64(1) << np.int64(gpu & 63)
        record = index.nodes[node]
        index.held[gpu] += record.tokens - index.nodes[record.parent].tokens
