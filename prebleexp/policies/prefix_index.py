"""What each GPU holds, as a router knows it: a radix tree over contexts with a set of GPUs at every node.

A context is a request's prompt and, if a later turn may bring it back, the answer. Because a segment id stands for its
whole path from the root, one comparison tells whether two contexts agree up to a segment. A node may end within a
segment: what lies behind it there is its `rest`. A GPU that holds a node holds what lies above it, unless it has said
otherwise (`forget`).

Its arrays are as large as a run can need; what is never written to takes no memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.policies.contexts import end_of, id_at, segment_at, segments_of
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NODES, NONE, SEGMENTS, View
from prebleexp.sim.types import Setup, records

NODE = np.dtype(
    [
        ("parent", np.int32),  # in the free list: the next free row
        ("owner", np.int32),  # a request whose context goes through the node …
        ("segment", np.int32),  # … which ends behind, or within, this segment of it, counted from 1
        ("last", np.int32),  # that segment's id: the request's record and prompt are far away in memory
        ("tokens", np.int32),  # from the root through the node
        ("first", np.int32),  # segment id that it begins with; -1: it begins within one
        ("rest", np.int32),  # the node that goes on within the segment that it ends in; 0: none
        ("branches", np.int32),  # nodes behind it that begin with a segment
    ],
    align=True,
)

SPLITS = 2
"""rows for each segment beyond its own: nodes that end within it, for GPUs that hold parts of it"""


class PrefixIndex(NamedTuple):
    """A radix tree of prefixes, with the set of GPUs that hold each. Node 0 is the root."""

    nodes: Any
    room: Any
    """(2,) nodes that were ever used, first of the free list (0: none)"""
    holders: Any
    """(nodes, words) the GPUs that hold each, 64 a word"""
    begins: Any
    """(segment ids,) the node that begins with a segment; 0: none"""
    held: Any
    """(GPUs,) tokens that each holds"""
    counted: bool
    """`Setup.counted`: else nodes that nobody holds are given back, so that a long run walks through what is held, and
    in memory that was just used"""


def prefix_index(setup: Setup) -> PrefixIndex:
    """An empty one for the requests of a run."""
    ids = 1 + setup.context_ids
    size = (1 + SPLITS) * ids
    holders, begins = np.zeros((size, -(-setup.gpus // 64)), np.int64), np.zeros(ids, np.int32)
    held = np.zeros(setup.gpus, np.int64)
    return PrefixIndex(records(size, NODE), np.array([1, 0]), holders, begins, held, setup.counted)


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
    last, longest = _walk(index, view, request)
    for word in range(index.holders.shape[1]):
        node, tokens, found = last, longest, np.int64(0)
        part = into[64 * word : 64 * word + 64]
        while node != 0:
            bits = index.holders[node, word] & ~found
            if bits != 0:
                found |= bits
                for gpu in range(len(part)):  # a branch would be mispredicted
                    part[gpu] |= tokens & -((bits >> gpu) & 1)
            node = int(index.nodes[node].parent)
            tokens = int(index.nodes[node].tokens)


@compiled
def holds(index: PrefixIndex, node: int, gpu: int) -> bool:
    return (index.holders[node, gpu >> 6] >> (gpu & 63)) & 1 == 1


# ---------------------------------------------------------------- what they are told
@compiled
def insert(index: PrefixIndex, view: View, request: int, gpu: int) -> None:
    """From now on the GPU holds the whole prompt."""
    store(index, view, request, gpu, view.requests[request].prompt_tokens)


@compiled
def store(index: PrefixIndex, view: View, request: int, gpu: int, tokens: int) -> None:
    """From now on the GPU holds so many leading tokens of the request's context."""
    nodes, row = index.nodes, view.requests[request]
    if row.answer_segment == NONE:
        tokens = min(tokens, int(row.prompt_tokens))
    node, segment, depth = 0, 0, 0
    while depth < tokens:
        child = _child(index, view, row, node, segment, depth)
        if child == 0:
            child = _new_node(index, view, request, node, segment, depth, tokens)
        if child == 0:
            return  # no room: the GPU is believed to hold less than it does
        agreed = _agree(index, view, child, request, segment)
        reach = min(int(nodes[child].tokens), end_of(view, row, agreed - 1), tokens)
        if reach < nodes[child].tokens:
            child = _split(index, view, child, reach)
            if child == 0:
                return
        _hold(index, child, gpu)
        _absorb(index, node, child)
        node, depth = child, reach
        segment = agreed if end_of(view, row, agreed - 1) == depth else agreed - 1


@compiled
def forget(index: PrefixIndex, view: View, request: int, gpu: int, tokens: int) -> None:
    """The GPU no longer holds what lies beyond so many tokens of the request's context."""
    if index.counted:
        _forget(index, view, request, gpu, tokens)
    elif tokens < view.requests[request].prompt_tokens or view.requests[request].answer_segment != NONE:
        _give_back(index, _forget(index, view, request, gpu, tokens))


@compiled
def _forget(index: PrefixIndex, view: View, request: int, gpu: int, tokens: int) -> int:
    """The same; returns the last node that the context goes into."""
    nodes, row = index.nodes, view.requests[request]
    node, segment, depth = 0, 0, 0
    while segment < segments_of(row):
        child = _child(index, view, row, node, segment, depth)
        if child == 0:
            break
        agreed = _agree(index, view, child, request, segment)
        end = end_of(view, row, agreed - 1)
        if end != nodes[child].tokens or agreed != nodes[child].segment:  # else its owner's does not end before it
            end = min(end, end_of(view, view.requests[nodes[child].owner], agreed - 1))
        if end < nodes[child].tokens:
            _absorb(index, node, child)
            return child  # the node is another context's
        if tokens < nodes[child].tokens and holds(index, child, gpu):
            if depth < tokens:  # it keeps a part of the node
                upper = _split(index, view, child, tokens)
                if upper != 0:
                    _absorb(index, node, upper)
                    node = upper
            index.holders[child, gpu >> 6] ^= np.int64(1) << np.int64(gpu & 63)
            index.held[gpu] -= nodes[child].tokens - nodes[nodes[child].parent].tokens
        _absorb(index, node, child)
        node, depth = child, int(nodes[child].tokens)
        segment = agreed if end == depth else agreed - 1
    return node


@compiled
def _give_back(index: PrefixIndex, node: int) -> None:
    """The rows of a node and of those above it, as far as nobody holds them and nothing lies behind them."""
    nodes = index.nodes
    while node != 0 and nodes[node].rest == 0 and nodes[node].branches == 0:
        for word in range(index.holders.shape[1]):
            if index.holders[node, word] != 0:
                return
        above, first = int(nodes[node].parent), int(nodes[node].first)
        if first == NONE:
            nodes[above].rest = 0
        else:
            index.begins[first] = 0
            nodes[above].branches -= 1
        nodes[node].parent = index.room[1]
        index.room[1] = node
        node = above


@compiled
def forget_all(index: PrefixIndex, gpu: int) -> None:
    """The GPU holds nothing any more: it is gone, or it is back."""
    bit = np.int64(1) << np.int64(gpu & 63)
    for node in range(1, index.room[0]):
        index.holders[node, gpu >> 6] &= ~bit
    index.held[gpu] = 0
    for first in index.begins:  # all nodes stand on one of these, or behind it within its last segment
        node = int(first)
        while node != 0:
            behind = int(index.nodes[node].rest)
            _absorb(index, node, behind)
            node = behind


# ---------------------------------------------------------------- the tree
@compiled
def _walk(index: PrefixIndex, view: View, request: int) -> tuple[int, int]:
    """How far the prompt goes along the tree: (the last node that it enters, tokens that agree)."""
    nodes, row = index.nodes, view.requests[request]
    node, segment, depth = 0, 0, 0
    while depth < row.prompt_tokens:
        view.work[NODES] += 1
        child = _child(index, view, row, node, segment, depth)
        if child == 0:
            break
        agreed = _agree(index, view, child, request, segment)
        reach = min(end_of(view, row, agreed - 1), int(row.prompt_tokens))
        if reach < nodes[child].tokens:
            return child, reach
        node, depth = child, int(nodes[child].tokens)
        segment = agreed if reach == depth else agreed - 1
    return node, depth


@compiled
def _child(index: PrefixIndex, view: View, row: Any, node: int, segment: int, depth: int) -> int:
    """The node behind `node` on the context's path, whose next token lies in `segment`; 0: none."""
    within = depth > (end_of(view, row, segment - 1) if segment > 0 else 0)
    return int(index.nodes[node].rest) if within else int(index.begins[id_at(view, row, segment)])


@compiled
def _agree(index: PrefixIndex, view: View, node: int, request: int, segment: int) -> int:
    """How many segments of the context agree with the path through `node`, which it enters in `segment`; the last may
    reach beyond the node."""
    mine, segments = view.requests[request], int(index.nodes[node].segment)
    end = min(segments, segments_of(mine))
    view.work[SEGMENTS] += 1
    if end == segments and id_at(view, mine, end - 1) == index.nodes[node].last:
        return end
    other = view.requests[index.nodes[node].owner]
    if end < segments and id_at(view, mine, end - 1) == id_at(view, other, end - 1):
        return end
    low = segment + 1  # these agree; `end` do not
    while end - low > 1:
        middle = (low + end) >> 1
        view.work[SEGMENTS] += 1
        if id_at(view, mine, middle - 1) == id_at(view, other, middle - 1):
            low = middle
        else:
            end = middle
    return low


@compiled
def _new_node(index: PrefixIndex, view: View, request: int, parent: int, segment: int, depth: int, tokens: int) -> int:
    """A leaf below `parent`, whose next token lies in `segment` of the context; 0: no room."""
    node, row = _take(index), view.requests[request]
    if node == 0:
        return 0
    record = index.nodes[node]
    record.parent, record.owner, record.tokens, record.rest, record.branches = parent, request, tokens, 0, 0
    record.segment = segment_at(view, row, segment, tokens) + 1
    record.last = id_at(view, row, int(record.segment) - 1)
    if depth > (end_of(view, row, segment - 1) if segment > 0 else 0):
        record.first = NONE
        index.nodes[parent].rest = node
    else:
        record.first = id_at(view, row, segment)
        index.begins[record.first] = node
        index.nodes[parent].branches += 1
    return node


@compiled
def _split(index: PrefixIndex, view: View, lower: int, tokens: int) -> int:
    """Cut `lower` so that its upper part, which is returned and held by the same GPUs, has so many tokens from the
    root on; 0: no room."""
    nodes, upper = index.nodes, _take(index)
    if upper == 0:
        return 0
    record, above = nodes[lower], nodes[upper]
    row = view.requests[record.owner]
    segment = segment_at(view, row, 0, tokens)
    above.parent, above.owner, above.segment, above.tokens = record.parent, record.owner, segment + 1, tokens
    above.last, above.first, above.rest, above.branches = id_at(view, row, segment), record.first, 0, 0
    _point(index, upper)
    for word in range(index.holders.shape[1]):
        index.holders[upper, word] = index.holders[lower, word]
    record.parent = upper
    if end_of(view, row, segment) > tokens:
        above.rest, record.first = lower, NONE
    else:
        record.first = id_at(view, row, segment + 1)
        index.begins[record.first], above.branches = lower, 1
    return upper


@compiled
def _absorb(index: PrefixIndex, upper: int, lower: int) -> None:
    """Take two nodes within a segment for one, where the same GPUs hold both. An answer that is longer than the prompts
    of later turns have it has an end for these, and goes on: then it stays two."""
    nodes = index.nodes
    if nodes[upper].rest != lower or lower == 0 or nodes[upper].branches != 0:
        return
    for word in range(index.holders.shape[1]):
        if index.holders[upper, word] != index.holders[lower, word]:
            return
    nodes[lower].parent, nodes[lower].first = nodes[upper].parent, nodes[upper].first
    _point(index, lower)
    nodes[upper].parent = index.room[1]
    index.room[1] = upper


@compiled
def _point(index: PrefixIndex, node: int) -> None:
    """Let what leads to where the node begins lead to it."""
    record = index.nodes[node]
    if record.first != NONE:
        index.begins[record.first] = node
    else:
        index.nodes[record.parent].rest = node


@compiled
def _take(index: PrefixIndex) -> int:
    """A row that is free, held by nobody; 0: none."""
    node = int(index.room[1])
    if node != 0:
        index.room[1] = index.nodes[node].parent
    elif index.room[0] < len(index.nodes):
        node = int(index.room[0])
        index.room[0] += 1
    for word in range(index.holders.shape[1]):
        index.holders[node, word] = 0
    return node


@compiled
def _hold(index: PrefixIndex, node: int, gpu: int) -> None:
    if not holds(index, node, gpu):
        index.holders[node, gpu >> 6] |= np.int64(1) << np.int64(gpu & 63)
        record = index.nodes[node]
        index.held[gpu] += record.tokens - index.nodes[record.parent].tokens
