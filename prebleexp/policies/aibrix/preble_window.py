"""The tree and the window of AIBrix's prefix-cache-preble: who was sent each node, and what its requests cost.

Sums over the window are kept for each GPU; costs are whole nanoseconds, so that they are exact, whatever comes and
goes. Its arrays are as large as a run can need; what is never written to takes no memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.policies import prefix_records
from prebleexp.policies.aibrix.preble_cost import Fit, prefill_s
from prebleexp.policies.growing import longer
from prebleexp.policies.prefix_records import Tree
from prebleexp.policies.prefix_tree import insert, own_tokens, remove_leaf
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import ENTRIES, NONE, View
from prebleexp.sim.types import Setup

NODE = [
    ("before", np.int32),  # in the order of their last access, of which row 0 is both ends
    ("behind", np.int32),
    ("listed", np.int32),  # whether it is in that order
    ("count", np.int32),  # requests of the window that end here
    ("accessed_s", np.float64),
    ("prompts", np.int64),  # their tokens, …
    ("hits", np.int64),  # … and those of them before the node
    ("cost", np.int64),  # ns
]
ROW = prefix_records.dtype(prefix_records.NODE + prefix_records.LINK + NODE)
CONTROL = prefix_records.dtype(prefix_records.CONTROL)

UNUSED_S = 300.0
"""after which a node goes"""
INTERVAL_S = 1.0
"""between two looks at what is too old"""
TOKEN_S = 0.15
"""what an output token is taken to cost, since nobody fills the list of what it did cost"""
NS = 1e-9


class Window(NamedTuple):
    tree: Tree
    """without links"""
    sent: Any
    """(rows, words) the GPUs that were sent each node, root included, 64 a word"""
    window_s: float
    decode_s: float
    """of a node in the window, however many requests end there"""
    fit: Fit
    routed_s: Any
    """(decisions,) when each was made, in order; room for one a request at first; …"""
    node: Any
    """… and the node in which its prompt ends"""
    ends: Any
    """(2,) the first of them that is in the window, and the next to come"""
    load: Any
    """(GPUs,) requests of the window that end in nodes which the GPU was sent"""
    cost: Any
    """(GPUs,) ns, what these nodes cost"""


def window(setup: Setup, window_s: float, decoding_length: int, fit: Fit) -> Window:
    """Nothing yet. A prompt makes two nodes at most."""
    n = setup.requests
    tree = prefix_records.with_more_room(prefix_records.tree(setup, ROW, CONTROL), 2 * n)
    return Window(
        tree,
        np.zeros((len(tree.rows), -(-setup.gpus // 64)), np.int64),
        window_s,
        decoding_length * TOKEN_S,
        fit,
        np.zeros(n),
        np.zeros(n, np.int32),
        np.zeros(2, np.int64),
        np.zeros(setup.gpus, np.int64),
        np.zeros(setup.gpus, np.int64),
    )


# ---------------------------------------------------------------- room
@compiled
def lacks_room(mine: Window) -> int:
    """Whether there is none for one more decision. There always is for its nodes: a prompt that comes again makes those
    that it made before."""
    return int(mine.ends[1] == len(mine.routed_s))


def with_more_room(mine: Window) -> Window:
    return mine._replace(routed_s=longer(mine.routed_s), node=longer(mine.node))


# ---------------------------------------------------------------- routing
@compiled
def take_up(mine: Window, view: View, request: int, now: float) -> tuple[int, int]:
    """Add a prompt to the tree; returns (node in which it ends, tokens of it that were there)."""
    leaf, lower = insert(mine.tree, view, request)
    rows = mine.tree.rows
    is_upper = lower != NONE and rows[lower].parent == leaf
    matched = rows[leaf].tokens if rows[leaf].listed or is_upper else rows[rows[leaf].parent].tokens
    if lower != NONE:
        for word in range(mine.sent.shape[1]):
            mine.sent[rows[lower].parent, word] = mine.sent[lower, word]
        _weigh(mine, lower)  # it has become shorter
    node = leaf
    while node != 0:  # the children first, so that they go first
        if rows[node].listed:
            _unlist(mine, node)
        _list(mine, node, now)
        node = int(rows[node].parent)
    return leaf, matched


@compiled
def send(mine: Window, view: View, leaf: int, gpu: int, now: float) -> None:
    """The prompt that ends in `leaf` is sent to the GPU."""
    node, word, bit = leaf, gpu >> 6, np.int64(1) << np.int64(gpu & 63)
    while node != NONE:
        record = mine.tree.rows[node]
        if mine.sent[node, word] & bit == 0:
            mine.sent[node, word] |= bit
            mine.load[gpu] += record.count
            mine.cost[gpu] += record.cost
        node = int(record.parent)
    end = mine.ends[1]
    mine.routed_s[end], mine.node[end] = now, leaf
    mine.ends[1] = end + 1
    _count(mine, leaf, 1)


# ---------------------------------------------------------------- what is too old
@compiled
def expire(mine: Window, view: View, now: float) -> None:
    """Requests that leave the window, and nodes that are unused for too long, as of the last time that anybody looked.

    A node goes after all of its requests have: the window is not longer than that."""
    looked, rows = now // INTERVAL_S * INTERVAL_S, mine.tree.rows
    while mine.ends[0] < mine.ends[1] and mine.routed_s[mine.ends[0]] <= looked - mine.window_s:
        view.work[ENTRIES] += 1
        _count(mine, int(mine.node[mine.ends[0]]), -1)
        mine.ends[0] += 1
    oldest = int(rows[0].behind)
    while oldest != 0 and looked - rows[oldest].accessed_s > UNUSED_S:
        view.work[ENTRIES] += 1
        _remove(mine, oldest)
        oldest = int(rows[0].behind)


@compiled
def _remove(mine: Window, node: int) -> None:
    """Take a leaf out of the tree. No node above it counts as sent to its GPUs any longer, even if they have been sent
    others that go through it: as it is there."""
    above = int(mine.tree.rows[node].parent)
    while above != NONE:
        record = mine.tree.rows[above]
        for word in range(mine.sent.shape[1]):
            gone = mine.sent[above, word] & mine.sent[node, word]
            mine.sent[above, word] ^= gone
            _add(mine, word, gone, -int(record.count), -int(record.cost))
        above = int(record.parent)
    mine.sent[node] = 0
    _unlist(mine, node)
    remove_leaf(mine.tree, node)


# ---------------------------------------------------------------- sums
@compiled
def _count(mine: Window, node: int, change: int) -> None:
    """A request that ends in the node enters (1) or leaves (−1) the window."""
    record = mine.tree.rows[node]
    record.count += change
    record.prompts += change * record.tokens
    record.hits += change * (record.tokens - own_tokens(mine.tree, node))  # as of now, even if it was another node then
    if record.count == 0:
        record.prompts = record.hits = 0
    for word in range(mine.sent.shape[1]):
        _add(mine, word, mine.sent[node, word], change, 0)
    _weigh(mine, node)


@compiled
def _weigh(mine: Window, node: int) -> None:
    """Find what the node costs now."""
    record, cost = mine.tree.rows[node], 0
    if record.count > 0:
        missed = 1.0 - record.hits / record.prompts
        prefill = missed * record.count * prefill_s(mine.fit, own_tokens(mine.tree, node), record.tokens)
        cost = round((prefill + mine.decode_s) / NS)
    for word in range(mine.sent.shape[1]):
        _add(mine, word, mine.sent[node, word], 0, cost - int(record.cost))
    record.cost = cost


@compiled
def _add(mine: Window, word: int, gpus: int, load: int, cost: int) -> None:
    """To the sums of these GPUs."""
    if gpus != 0:
        for gpu in range(64 * word, min(64 * word + 64, len(mine.load))):
            if (gpus >> (gpu & 63)) & 1 == 1:
                mine.load[gpu] += load
                mine.cost[gpu] += cost


# ---------------------------------------------------------------- the order of last accesses
@compiled
def _list(mine: Window, node: int, now: float) -> None:
    rows = mine.tree.rows
    record, newest = rows[node], int(rows[0].before)
    record.before, record.behind, record.listed, record.accessed_s = newest, 0, 1, now
    rows[newest].behind = rows[0].before = node


@compiled
def _unlist(mine: Window, node: int) -> None:
    rows = mine.tree.rows
    record = rows[node]
    rows[record.before].behind, rows[record.behind].before = record.behind, record.before
    record.listed = 0
