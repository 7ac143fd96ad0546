"""The walk of the release through its tree: what it touches, and how subtrees change hands.

A whole subtree may be given to a GPU at once (`give_subtree`): the nodes below learn of it when a walk from the root
next comes through them.
"""

from __future__ import annotations

import math
from typing import Any

from prebleexp.policies import prefix_tree
from prebleexp.policies.prefix_tree import agreement, find_link, new_leaf, serve
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NODES, NONE, View


@compiled
def next_stamp(tree: Any) -> int:
    tree.control.clock += 1
    return int(tree.control.clock)


@compiled
def serve_alone(tree: Any, node: int, gpu: int, stamp: int) -> None:
    """Let `gpu` alone serve the node (-1: none), as of `stamp`."""
    link = node
    while link != NONE:
        tree.rows[link].serves = 0
        link = int(tree.rows[link].next)
    tree.rows[node].serving, tree.rows[node].stamp = 0, stamp
    if gpu != NONE:
        serve(tree, node, gpu)


@compiled
def give_subtree(tree: Any, node: int, gpu: int) -> int:
    """Let `gpu` alone serve the node and all below it; returns the stamp."""
    stamp = next_stamp(tree)
    tree.rows[node].subtree_gpu, tree.rows[node].subtree_stamp = gpu, stamp
    serve_alone(tree, node, gpu, stamp)
    return stamp


@compiled
def _touch(tree: Any, node: int) -> None:
    tree.rows[node].accessed = next_stamp(tree)


@compiled
def touch_path(tree: Any, node: int) -> None:
    """Touch the nodes from the root to `node`, in this order."""
    length, at = 0, node
    while at != NONE:
        length += 1
        at = int(tree.rows[at].parent)
    tree.control.clock += length
    at, clock = node, tree.control.clock
    while at != NONE:
        tree.rows[at].accessed = clock
        clock -= 1
        at = int(tree.rows[at].parent)


@compiled
def _split(tree: Any, view: View, lower: int, segment: int) -> int:
    """Cut `lower` so that its upper part ends behind `segment` segments; returns the upper part.

    It has the links of the lower one, but for their samples.
    """
    upper = prefix_tree.split(tree, view, lower, segment)
    above, below = tree.rows[upper], tree.rows[lower]
    above.depth, above.stamp, above.expected_output = below.depth, below.stamp, math.nan
    above.subtree_gpu, above.subtree_stamp = below.subtree_gpu, below.subtree_stamp
    below.depth += 1
    link = upper
    while link != NONE:
        tree.rows[link].output = tree.rows[find_link(tree, lower, int(tree.rows[link].gpu))].output
        link = int(tree.rows[link].next)
    _touch(tree, upper)
    return upper


@compiled
def insert(tree: Any, view: View, request: int) -> tuple[int, int]:
    """Add a prompt; returns (node in which it ends, lower part of the node that was cut for it or -1).

    Touches and depths are the release's (State).
    """
    row, ids = view.requests[request], view.prompts.ids
    node, segment, depth, cut = 0, 0, 0, NONE
    stamp, gpu = 0, NONE  # what was last given away as a whole, of the subtrees that the walk is in
    while True:
        _touch(tree, node)
        view.work[NODES] += 1
        record = tree.rows[node]
        if record.subtree_stamp > stamp:
            stamp, gpu = int(record.subtree_stamp), int(record.subtree_gpu)
        if segment == row.segments:
            return node, cut
        child = tree.begins[ids[row.first_segment + segment]]
        if child == 0:
            leaf = new_leaf(tree, view, node, request)
            fresh = tree.rows[leaf]
            fresh.depth, fresh.stamp, fresh.expected_output = depth + 1, stamp, math.nan
            _touch(tree, leaf)
            return leaf, cut
        if stamp > tree.rows[child].stamp:
            serve_alone(tree, child, gpu, stamp)
        agreed = agreement(tree, view, child, request, segment)
        if agreed < tree.rows[child].segment:
            node, segment, depth, cut = _split(tree, view, child, agreed), agreed, depth + 2, child
        elif agreed == row.segments:
            return child, cut
        else:
            node, segment, depth = child, agreed, depth + 1
