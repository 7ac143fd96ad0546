"""SGLang's radix tree of cached contexts (sglang/srt/mem_cache/radix_cache.py), page size 1.

Looking up and inserting stamp what they pass with the time.
"""

from __future__ import annotations

from prebleexp.engines.segments import end_of, segment_of
from prebleexp.engines.sglang.records import Engines
from prebleexp.sim.children import child_of, remove_child, set_child
from prebleexp.sim.compiled import compiled
from prebleexp.sim.news import tell
from prebleexp.sim.notices import EVICTED
from prebleexp.sim.records import NONE, World
from prebleexp.sim.skew_heap import merge

GOES = 2
"""a node that is about to be dropped, in place of whether it is in the heap"""


# ---------------------------------------------------------------- contexts
@compiled
def _agree(mine: Engines, world: World, child: int, request: int, segment: int, most: int) -> tuple[int, int]:
    """How many tokens of a request's context, at most `most`, the path to `child` has, where it has the first token of
    `segment` that is not in its parent; and the segment in which the context goes on, unless that is at `most`."""
    node = mine.tree.nodes[child]
    owner, most = int(node.owner), min(most, int(node.depth))
    low, high = segment, min(int(node.segment), int(world.seen.requests[request].segments))
    if owner == request or segment_of(mine, world, request, high) == segment_of(mine, world, owner, high):
        low = high
    while high - low > 1:
        middle = (low + high) >> 1
        if segment_of(mine, world, request, middle) == segment_of(mine, world, owner, middle):
            low = middle
        else:
            high = middle
    if low < node.segment:
        most = min(most, end_of(world, owner, low))
    end = end_of(world, request, low)
    return (most, low) if most < end else (end, low + 1)


# ---------------------------------------------------------------- nodes
@compiled
def _new_node(mine: Engines, request: int, segment: int, depth: int) -> int:
    control, nodes = mine.tree.control, mine.tree.nodes
    index = int(control.free_node)
    if index != NONE:
        control.free_node = nodes[index].parent
    else:
        index = int(control.made)
        control.made += 1
    control.nodes += 1
    node = nodes[index]
    node.owner, node.segment, node.depth = request, segment, depth
    node.locks = node.children = node.in_heap = 0
    return index


@compiled
def _split(mine: Engines, world: World, child: int, segment: int, depth: int) -> int:
    """Cut off the tokens of a node up to `depth`, which is in a segment of its owner's, or in one before it; returns
    the node that they make."""
    tree, nodes = mine.tree, mine.tree.nodes
    owner = int(nodes[child].owner)
    while segment > 0 and end_of(world, owner, segment - 1) >= depth:
        segment -= 1
    upper_index = _new_node(mine, owner, segment, depth)
    upper, lower = nodes[upper_index], nodes[child]
    upper.parent, upper.first, upper.locks, upper.children = lower.parent, lower.first, lower.locks, 1
    set_child(tree, upper.parent, upper.first, upper_index)
    below = segment + int(end_of(world, owner, segment) == depth)
    lower.parent, lower.first = upper_index, segment_of(mine, world, owner, below)
    set_child(tree, upper_index, lower.first, child)
    return upper_index


# ---------------------------------------------------------------- looking up and inserting
# Who is evicted first is decided between leaves, so all nodes of a path may bear one time; what is cut off is older.
@compiled
def _later(mine: Engines) -> int:
    """A time for the nodes of a path; the one before it is that of what is cut off."""
    mine.tree.control.clock += 2
    return int(mine.tree.control.clock)


@compiled
def match(mine: Engines, world: World, g: int, request: int, most: int) -> tuple[int, int]:
    """How many of the first `most` tokens of a context are in the tree, and the node that ends there."""
    nodes, now = mine.tree.nodes, _later(mine)
    node, found, segment = g, 0, 0
    while found < most:
        child = child_of(mine.tree, node, segment_of(mine, world, request, segment))
        if child == NONE:
            break
        found, segment = _agree(mine, world, child, request, segment, most)
        node = child
        if found < nodes[child].depth:
            nodes[child].used = now - 1
            node = _split(mine, world, child, segment, found)
        nodes[node].used = now
        if node != child:
            break
    return found, node


@compiled
def insert(mine: Engines, world: World, g: int, request: int, most: int) -> tuple[int, int]:
    """Put the first `most` tokens of a context into the tree, of which it locks the beginning there; how many were
    there, and the node that ends there. One ends behind the prompt as well, so that an answer can be evicted alone."""
    nodes, job, now = mine.tree.nodes, mine.jobs[request], _later(mine)
    prompt, found, node = int(job.prompt), int(job.held), int(job.lock)
    segment = int(nodes[node].segment)
    segment += int(node != g and end_of(world, request, segment) == found)
    at = node
    while at != g:
        if nodes[at].depth > prompt and nodes[nodes[at].parent].depth < prompt:
            _split(mine, world, at, int(nodes[at].segment), prompt)
        nodes[at].used = now
        at = int(nodes[at].parent)
    while found < most:
        child = child_of(mine.tree, node, segment_of(mine, world, request, segment))
        if child == NONE:
            if found < prompt and prompt < most:
                node = _add_leaf(mine, world, g, node, request, segment, prompt, now)
                segment = int(world.seen.requests[request].segments)
            return found, _add_leaf(mine, world, g, node, request, segment, most, now)
        found, segment = _agree(mine, world, child, request, segment, most)
        cut = int(nodes[child].depth) > found
        nodes[child].used = now - 1 if cut else now
        if cut:
            child = _split(mine, world, child, segment, found)
            nodes[child].used = now
        if nodes[child].depth > prompt and nodes[node].depth < prompt:
            nodes[_split(mine, world, child, int(nodes[child].segment), prompt)].used = now
        node = child
    return found, node


@compiled
def _add_leaf(
    mine: Engines, world: World, g: int, parent: int, request: int, segment: int, depth: int, now: int
) -> int:
    nodes, first = mine.tree.nodes, segment_of(mine, world, request, segment)
    while end_of(world, request, segment) < depth:
        segment += 1
    leaf = _new_node(mine, request, segment, depth)
    nodes[leaf].parent, nodes[leaf].first, nodes[leaf].used = parent, first, now
    nodes[parent].children += 1
    set_child(mine.tree, parent, first, leaf)
    mine.gpus[g].evictable += depth - nodes[parent].depth
    _offer(mine, g, leaf)
    return leaf


# ---------------------------------------------------------------- locks
@compiled
def lock(mine: Engines, g: int, node: int) -> None:
    """Lock a node and all above it: what is locked is not evicted."""
    nodes = mine.tree.nodes
    while node != g:
        record = nodes[node]
        parent = int(record.parent)
        if record.locks == 0:
            mine.gpus[g].evictable -= record.depth - nodes[parent].depth
        record.locks += 1
        node = parent


@compiled
def unlock(mine: Engines, g: int, node: int) -> None:
    nodes = mine.tree.nodes
    while node != g:
        record = nodes[node]
        parent = int(record.parent)
        record.locks -= 1
        if record.locks == 0:
            mine.gpus[g].evictable += record.depth - nodes[parent].depth
            _offer(mine, g, node)
        node = parent


# ---------------------------------------------------------------- eviction
# Candidates stand in a heap by the time at which they were last used when they were put there. One whose turn has come
# is put back if it was used since, and dropped if it is locked or has children; it is offered again when that ends.
@compiled
def _offer(mine: Engines, g: int, node: int) -> None:
    record = mine.tree.nodes[node]
    if record.children == 0 and record.locks == 0 and record.in_heap == 0:
        record.in_heap, record.heap_key = 1, record.used
        record.heap_left = record.heap_right = NONE
        mine.gpus[g].lru = merge(mine.tree.nodes, int(mine.gpus[g].lru), node)


@compiled
def clear(mine: Engines, g: int) -> None:
    """Drop all of a GPU's tree, whoever locks it."""
    tree, nodes, gpus = mine.tree, mine.tree.nodes, len(mine.gpus)
    for index in range(gpus, tree.control.made):
        if nodes[index].owner != NONE:
            root = index
            while root >= gpus:
                root = int(nodes[root].parent)
            nodes[index].in_heap = GOES if root == g else nodes[index].in_heap
    for index in range(gpus, tree.control.made):
        if nodes[index].owner != NONE and nodes[index].in_heap == GOES:
            _remove(mine, index)
    nodes[g].children = 0


@compiled
def _remove(mine: Engines, index: int) -> None:
    tree, node = mine.tree, mine.tree.nodes[index]
    remove_child(tree, int(node.parent), int(node.first))
    node.parent, node.owner = tree.control.free_node, NONE
    tree.control.free_node = index
    tree.control.nodes -= 1


@compiled
def make_room(mine: Engines, world: World, g: int, tokens: int) -> bool:
    """Evict whole leaves, the least recently used first, until so many tokens are free; whether they are."""
    gpu, nodes = mine.gpus[g], mine.tree.nodes
    while gpu.free < tokens and gpu.lru != NONE:
        index = int(gpu.lru)
        node = nodes[index]
        gpu.lru = merge(nodes, int(node.heap_left), int(node.heap_right))
        node.in_heap = 0
        if node.locks > 0 or node.children > 0:
            continue
        if node.used != node.heap_key:
            _offer(mine, g, index)
            continue
        parent = int(node.parent)
        above = int(nodes[parent].depth)
        gone = int(node.depth) - above
        gpu.free += gone
        gpu.evictable -= gone
        world.totals[g].evicted_tokens += gone
        if world.told.hears[EVICTED] != 0:
            tell(world, EVICTED, int(node.owner), g, above)
        _remove(mine, index)
        nodes[parent].children -= 1
        if parent != g:
            _offer(mine, g, parent)
    return bool(gpu.free >= tokens)
