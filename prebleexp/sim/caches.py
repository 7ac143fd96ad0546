"""Prefix caches: radix trees over contexts, one below each root, in which running requests lock their path.

A context is a request's prompt and some tokens of its answer. A node stands for a run of tokens, named by where it
ends: behind `segment` segments of the prompt of `owner` and `beyond` tokens of what its context goes on with there: its
answer, or a segment of which a part alone is cached. An answer goes by the name that the next turn's prompt has for it
(`answer_segment`); one that has none is anonymous: all anonymous output tokens are the same token.
Because a segment id stands for its whole path from the root, one comparison tells whether two prompts agree up to
a segment.

Matching and inserting touch every node they stand on before they step on (spec: engine-as-released, Prefix cache);
the order of touches decides what is evicted. Looking up (`peek`) touches nothing.
"""

from __future__ import annotations

from typing import Any

from prebleexp.sim.children import child_of, remove_child, set_child
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, REMEMBERED, Cache
from prebleexp.sim.skew_heap import merge


# ---------------------------------------------------------------- nodes
@compiled
def _new_node(cache: Cache, owner: int, segment: int, beyond: int, depth: int) -> int:
    control = cache.control
    index = int(control.free_node)
    if index != NONE:
        control.free_node = cache.nodes[index].parent
    else:
        index = int(control.made)
        control.made += 1
    control.free_nodes -= 1
    node = cache.nodes[index]
    node.owner, node.segment, node.beyond, node.depth = owner, segment, beyond, depth
    node.locks = node.children = node.in_heap = node.unique_stamp = 0
    _touch(cache, index)
    return index


@compiled
def _touch(cache: Cache, node: int) -> None:
    cache.control.touches += 1
    cache.nodes[node].accessed = cache.control.touches


@compiled
def _changed(cache: Cache, root: int, parent: int, first: int, gone: int) -> None:
    """Remember that a child of `parent` is another than it was."""
    change = cache.changes[root * REMEMBERED + cache.roots[root].changes % REMEMBERED]
    change.parent, change.first, change.node = parent, first, gone
    cache.roots[root].changes += 1


@compiled
def _id(cache: Cache, request: int, segment: int) -> int:
    """What the context of `request` goes on with behind `segment` segments: its answer, behind the last."""
    row = cache.requests[request]
    return int(cache.prompts.ids[row.first_segment + segment]) if segment < row.segments else int(row.answer_segment)


@compiled
def _tokens_to(cache: Cache, request: int, segment: int, beyond: int) -> int:
    first = cache.requests[request].first_segment
    return (int(cache.prompts.ends[first + segment - 1]) if segment > 0 else 0) + beyond


@compiled
def _agree(cache: Cache, child: int, request: int, outputs: int, segment: int) -> tuple[int, int]:
    """How far the context of `request`, with so many tokens of its answer, goes along `child`, which it enters behind
    `segment` segments or in the next: (segments, tokens beyond)."""
    node, ids = cache.nodes[child], cache.prompts.ids
    row, other = cache.requests[request], cache.requests[node.owner]
    whole = int(node.segment)
    end = min(whole, row.segments)
    if end > segment:
        mine, theirs = row.first_segment, other.first_segment
        if ids[mine + end - 1] != ids[theirs + end - 1]:
            low = segment + 1  # these agree; `end` do not
            while end - low > 1:
                middle = (low + end) >> 1
                if ids[mine + middle - 1] == ids[theirs + middle - 1]:
                    low = middle
                else:
                    end = middle
            return low, 0
    beyond = int(node.beyond) if whole == end else _tokens_of(cache, other, end)
    if beyond == 0 or _id(cache, request, end) != _id(cache, int(node.owner), end):
        return end, 0
    if end == row.segments:
        return end, min(beyond, outputs)
    own = _tokens_of(cache, row, end)
    return (end, beyond) if beyond < own else (end + 1, 0)


@compiled
def _tokens_of(cache: Cache, row: Any, segment: int) -> int:
    """Tokens of one segment of a request's prompt."""
    ends, at = cache.prompts.ends, row.first_segment + segment
    return int(ends[at]) - (int(ends[at - 1]) if segment > 0 else 0)


@compiled
def _split(cache: Cache, root: int, child: int, request: int, segment: int, beyond: int) -> int:
    """Cut `child` where the context of `request`, which goes along it so far, is behind `segment` segments and `beyond`
    tokens; returns the upper part."""
    nodes = cache.nodes
    lower = nodes[child]
    depth = _tokens_to(cache, request, segment, beyond)
    owner = int(lower.owner)
    # The same place by the owner's segments, which end elsewhere if the answer of one is a segment of the other.
    if segment > lower.segment:
        segment, beyond = segment - 1, depth - _tokens_to(cache, owner, segment - 1, 0)
    elif beyond > 0 and segment < lower.segment and beyond == _tokens_of(cache, cache.requests[owner], segment):
        segment, beyond = segment + 1, 0
    upper_index = _new_node(cache, owner, segment, beyond, depth)
    upper = nodes[upper_index]
    upper.parent, upper.locks, upper.first, upper.children = lower.parent, lower.locks, lower.first, 1
    set_child(cache, upper.parent, upper.first, upper_index)
    lower.parent, lower.first = upper_index, _id(cache, owner, segment)
    set_child(cache, upper_index, lower.first, child)
    _changed(cache, root, int(upper.parent), int(upper.first), NONE)
    return upper_index


# ---------------------------------------------------------------- matching and inserting
@compiled
def peek(cache: Cache, root: int, request: int) -> tuple[int, int, int]:
    """Longest cached prefix of a prompt: (tokens, the last node that lies in it as a whole, what the prompt goes on
    with there)."""
    nodes, length = cache.nodes, cache.requests[request].prompt_tokens
    node, segment = int(root), 0
    while True:
        depth, first = int(nodes[node].depth), _id(cache, request, segment)
        child = child_of(cache, node, first) if depth < length else NONE
        if child == NONE:
            return depth, node, first
        segment, beyond = _agree(cache, child, request, 0, segment)
        tokens = _tokens_to(cache, request, segment, beyond)
        if tokens < nodes[child].depth:
            return tokens, node, first
        node = child


@compiled
def match(cache: Cache, root: int, request: int, outputs: int) -> tuple[int, int]:
    """Longest cached prefix of prompt + outputs: (tokens, node). Splits the node in which it ends."""
    nodes = cache.nodes
    length = cache.requests[request].prompt_tokens + outputs
    node, segment = int(root), 0
    while True:
        _touch(cache, node)
        depth = int(nodes[node].depth)
        if depth == length:
            return depth, node
        child = child_of(cache, node, _id(cache, request, segment))
        if child == NONE:
            return depth, node
        segment, beyond = _agree(cache, child, request, outputs, segment)
        depth = _tokens_to(cache, request, segment, beyond)
        if depth < nodes[child].depth:
            return depth, _split(cache, root, child, request, segment, beyond)
        node = child


@compiled
def _place(cache: Cache, request: int, length: int) -> tuple[int, int]:
    """Where so many tokens of a context end: (segments, tokens beyond)."""
    row = cache.requests[request]
    if length >= row.prompt_tokens:
        return int(row.segments), int(length - row.prompt_tokens)
    segment = 0
    while cache.prompts.ends[row.first_segment + segment] <= length:
        segment += 1
    return segment, length - _tokens_to(cache, request, segment, 0)


@compiled
def insert(cache: Cache, root: int, request: int, outputs: int) -> int:
    """Add a context; returns how many of its tokens were there already."""
    return insert_first(cache, root, request, cache.requests[request].prompt_tokens + outputs)


@compiled
def insert_first(cache: Cache, root: int, request: int, length: int) -> int:
    """The same of the first `length` tokens of one, which may be a part of its prompt."""
    nodes, (end, rest) = cache.nodes, _place(cache, request, length)
    outputs = max(0, length - int(cache.requests[request].prompt_tokens))
    node, segment = int(root), 0
    while True:
        _touch(cache, node)
        depth = int(nodes[node].depth)
        if depth == length:
            return depth
        first = _id(cache, request, segment)
        child = child_of(cache, node, first)
        if child == NONE:
            leaf_index = _new_node(cache, request, end, rest, length)
            leaf = nodes[leaf_index]
            leaf.parent, leaf.first = node, first
            nodes[node].children += 1
            set_child(cache, node, first, leaf_index)
            cache.roots[root].evictable += length - depth
            _changed(cache, root, node, first, NONE)
            _offer(cache, root, leaf_index)
            return depth
        segment, beyond = _agree(cache, child, request, outputs, segment)
        depth = _tokens_to(cache, request, segment, beyond)
        if depth > length:
            segment, beyond, depth = end, rest, length
        if depth < nodes[child].depth:
            node = _split(cache, root, child, request, segment, beyond)
        elif depth == length:
            return depth  # an exact hit does not touch the last node
        else:
            node = child


# ---------------------------------------------------------------- locks
@compiled
def lock(cache: Cache, root: int, node: int) -> int:
    """Lock the path to `node`; returns the change of evictable tokens."""
    nodes, change = cache.nodes, 0
    while node != root:
        record = nodes[node]
        parent = int(record.parent)
        if record.locks == 0:
            change -= int(record.depth - nodes[parent].depth)
        record.locks += 1
        node = parent
    cache.roots[root].evictable += change
    cache.roots[root].locked -= change
    return change


@compiled
def unlock(cache: Cache, root: int, node: int) -> int:
    nodes, change = cache.nodes, 0
    while node != root:
        record = nodes[node]
        parent = int(record.parent)
        record.locks -= 1
        if record.locks == 0:
            change += int(record.depth - nodes[parent].depth)
            _offer(cache, root, node)
        node = parent
    cache.roots[root].evictable += change
    cache.roots[root].locked -= change
    return change


@compiled
def stamp(cache: Cache) -> int:
    """Begin a look at a cache: `unseen_tokens` counts each node once until the next stamp."""
    cache.control.stamp += 1
    return int(cache.control.stamp)


@compiled
def unseen_tokens(cache: Cache, root: int, node: int, a_stamp: int) -> int:
    """Tokens on the path to `node` that no path before it had, of those that were asked for with this stamp."""
    nodes, total = cache.nodes, 0
    while node != root and nodes[node].unique_stamp != a_stamp:
        record = nodes[node]
        record.unique_stamp = a_stamp
        parent = int(record.parent)
        total += int(record.depth - nodes[parent].depth)
        node = parent
    return total


# ---------------------------------------------------------------- eviction
# Candidates stand in a skew heap by the touch they had when they were put there. A touch only makes a node
# younger, so a node whose turn has come is put back if it was touched meanwhile, and dropped if it is locked or
# has children; it is offered again when that ends.


@compiled
def _offer(cache: Cache, root: int, node: int) -> None:
    """Make an unlocked leaf a candidate for eviction, unless it is one."""
    record = cache.nodes[node]
    if record.children == 0 and record.locks == 0 and record.in_heap == 0:
        record.in_heap, record.heap_key = 1, record.accessed
        record.heap_left = record.heap_right = NONE
        cache.roots[root].lru = merge(cache.nodes, cache.roots[root].lru, node)


@compiled
def evict(cache: Cache, root: int, wanted: int) -> int:
    """Drop whole unlocked leaves, least recently touched first, until at least `wanted` tokens are free; returns
    how many are. Notes whose context lost what lies beyond how many tokens."""
    nodes, control, tree = cache.nodes, cache.control, cache.roots[root]
    freed = 0
    while freed < wanted and tree.lru != NONE:
        index = tree.lru
        node = nodes[index]
        tree.lru = merge(nodes, int(node.heap_left), int(node.heap_right))
        node.in_heap = 0
        if node.locks > 0 or node.children > 0:
            continue
        if node.accessed != node.heap_key:
            _offer(cache, root, index)
            continue
        parent = int(node.parent)
        freed += int(node.depth - nodes[parent].depth)
        cache.evicted_owner[control.evicted], cache.evicted_beyond[control.evicted] = node.owner, nodes[parent].depth
        control.evicted += 1
        remove_child(cache, parent, node.first)
        _changed(cache, root, parent, int(node.first), index)
        node.parent = control.free_node
        control.free_node = index
        control.free_nodes += 1
        nodes[parent].children -= 1
        if parent != root:
            _offer(cache, root, parent)
    tree.evictable -= freed
    return freed
