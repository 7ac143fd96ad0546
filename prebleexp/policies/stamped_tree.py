"""A router's radix tree over the prompts it has routed, as the cache-aware routers of SGLang and vLLM keep it.

A node has one home, the GPU that it was made for, and a link for every GPU that prompts through it went to (see
`prebleexp.policies.prefix_records`). A GPU whose nodes have too many tokens loses the stalest leaves: the nodes that no
prompt of its own goes beyond.

The routers stamp a GPU's link with a clock when a prompt ends there, and with 0 when one goes through for the first
time; a node that is cut leaves its stamps to both parts. Here a GPU's links are in a list instead, to whose end each
stamp moves them. Those not in it are no leaves: when they become some, the GPU has just lost what was stalest, and they
are older still. So they come first, and neither stamps nor a search for the least is needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.policies import prefix_records
from prebleexp.policies.prefix_tree import find_link, give_back, insert, link_to, node_of, own_tokens, remove_leaf
from prebleexp.sim.compiled import compiled
from prebleexp.sim.draws import below
from prebleexp.sim.records import NONE, View
from prebleexp.sim.types import Setup

OWN = [
    ("home", np.int32),  # of a node: the GPU that it was made for, or that took its place; -1: none yet
    ("before", np.int32),  # of a link: in the GPU's list; -1: the first, or not in it
    ("behind", np.int32),
]
ROW = prefix_records.dtype(prefix_records.NODE + prefix_records.LINK + OWN)
"""`serves`: the link is in use; `active`: of the node's children, how many the GPU has"""

CONTROL = prefix_records.dtype([*prefix_records.CONTROL, ("passes", np.int64)])
"""`passes`: evictions that were due so far"""


class StampedTree(NamedTuple):
    """Row 0 is the root, which has no links."""

    control: Any
    rows: Any
    begins: Any
    """(segment ids,) as in `prefix_records.Tree`"""
    links: Any
    held: Any
    """(GPUs,) tokens of the nodes that each has"""
    stalest: Any
    """(GPUs,) first link of each GPU's list; -1: none"""
    latest: Any
    """(GPUs,) its last"""


def stamped_tree(setup: Setup) -> StampedTree:
    """An empty one for the requests of a run."""
    held, ends = np.zeros(setup.gpus, np.int64), np.full((2, setup.gpus), NONE)
    return StampedTree(*prefix_records.tree(setup, ROW, CONTROL), held, *ends)


# ---------------------------------------------------------------- room
@compiled
def lacks_room(tree: StampedTree, view: View, request: int) -> int:
    """Whether routing the request may need more rows than there are."""
    return prefix_records.lacks_room(tree, prefix_records.rows_for(view, request))


def with_more_room(tree: Any, view: Any, request: int) -> StampedTree:
    rows = prefix_records.rows_for(view, request)
    larger: StampedTree = prefix_records.with_more_room(getattr(tree, "value", tree), rows)
    return larger


# ---------------------------------------------------------------- prompts
@compiled
def take_up(tree: StampedTree, view: View, request: int) -> tuple[int, int, int, int]:
    """Add the prompt's nodes, for no GPU yet.

    Returns (the node that it ends at; the part of it that was cut from, or -1; the last node that it shared before,
    0 if none; tokens shared). `add` must follow.
    """
    leaf, cut = insert(tree, view, request)
    shared = leaf if _is_held(tree, leaf) else int(tree.rows[leaf].parent)
    return leaf, cut, shared if cut == NONE else cut, int(tree.rows[shared].tokens)


@compiled
def _is_held(tree: StampedTree, node: int) -> bool:
    """Whether any GPU has it. One that none has is new."""
    return tree.rows[node].gpu != NONE or tree.rows[node].next != NONE


@compiled
def tick(tree: StampedTree) -> int:
    """The clock, which then moves on, as it does with each prompt that is added."""
    tree.control.clock += 1
    return int(tree.control.clock) - 1


@compiled
def home(tree: StampedTree, node: int, drawn: bool, draws: Any) -> int:
    """The GPU that the node was made for. Once that has lost it, another that still has it takes its place for good:
    any of several, each as likely as the others, or -1 and none yet unless it is to be `drawn`."""
    rows, record = tree.rows, tree.rows[node]
    if record.home != NONE and find_link(tree, node, record.home) != NONE:
        return int(record.home)
    holders = _holders(tree, node)
    record.home = NONE
    if holders == 1 or drawn:
        behind, link = below(draws, holders) if holders > 1 else 0, node
        while rows[link].gpu == NONE or behind > 0:
            behind -= rows[link].gpu != NONE
            link = int(rows[link].next)
        record.home = rows[link].gpu
    return int(record.home)


@compiled
def _holders(tree: StampedTree, node: int) -> int:
    count, link = 0, node
    while link != NONE:
        count += tree.rows[link].gpu != NONE
        link = int(tree.rows[link].next)
    return count


@compiled
def stamp(tree: StampedTree, node: int, gpu: int) -> None:
    """Nothing that the GPU has is fresher than the node."""
    link = find_link(tree, node, gpu)
    if _is_listed(tree, link):
        _take_out(tree, link)
    _put(tree, link, int(tree.latest[gpu]), NONE)


@compiled
def add(tree: StampedTree, leaf: int, cut: int, gpu: int) -> None:
    """The prompt that `take_up` has added goes to this GPU."""
    rows = tree.rows
    if cut != NONE:
        _complete(tree, cut)
    if not _is_held(tree, leaf):
        rows[leaf].home = gpu
    node, below = leaf, 0
    while node != 0:
        link = rows[link_to(tree, node, gpu)]
        link.active += below
        if link.serves:
            break  # and it has all that lies above
        link.serves, link.before = 1, NONE
        tree.held[gpu] += own_tokens(tree, node)
        node, below = int(rows[node].parent), 1
    stamp(tree, leaf, gpu)
    tree.control.clock += 1


@compiled
def _complete(tree: StampedTree, lower: int) -> None:
    """The upper part of a node that was cut, which is new, has the home and the links of the lower one."""
    rows, upper = tree.rows, int(tree.rows[lower].parent)
    rows[upper].home = rows[lower].home
    link = upper
    while link != NONE:
        rows[link].active, rows[link].before = 1, NONE
        link = int(rows[link].next)


# ---------------------------------------------------------------- eviction
@compiled
def evict_each(tree: StampedTree, period_s: float, now: float, most: float) -> None:
    """Do the evictions that were due since it was last asked. All but the first of several find nothing to do."""
    passes = int(now / period_s)
    if passes > tree.control.passes:
        tree.control.passes = passes
        _evict(tree, most, 0, len(tree.held))


@compiled
def forget_all(tree: StampedTree, gpu: int) -> None:
    """The GPU loses all that it has."""
    _evict(tree, 0, gpu, gpu + 1)


@compiled
def _evict(tree: StampedTree, most: float, first: int, end: int) -> None:
    """Each of these GPUs that has more than so many tokens loses its stalest leaves until it has no more."""
    for gpu in range(first, end):
        while tree.held[gpu] > most and tree.stalest[gpu] != NONE:
            link = int(tree.stalest[gpu])
            _take_out(tree, link)
            if tree.rows[link].active > 0:
                continue
            above = _drop(tree, link)
            if above != NONE:
                tree.rows[above].active -= 1
                if tree.rows[above].active == 0 and not _is_listed(tree, above):
                    _put(tree, above, NONE, int(tree.stalest[gpu]))


@compiled
def _drop(tree: StampedTree, link: int) -> int:
    """Take a leaf from its GPU, and its node from the tree if no other has it; returns the GPU's link of the node
    above, -1 if that is the root."""
    rows, node = tree.rows, node_of(tree, link)
    gpu, above = int(rows[link].gpu), int(rows[node].parent)
    tree.held[gpu] -= own_tokens(tree, node)
    rows[link].gpu, rows[link].serves = NONE, 0
    if link != node:
        before = node
        while rows[before].next != link:
            before = int(rows[before].next)
        rows[before].next = rows[link].next
        give_back(tree, link)
    if not _is_held(tree, node):
        remove_leaf(tree, node)
    return find_link(tree, above, gpu)


# ---------------------------------------------------------------- lists
@compiled
def _is_listed(tree: StampedTree, link: int) -> bool:
    return tree.rows[link].before != NONE or tree.stalest[tree.rows[link].gpu] == link


@compiled
def _put(tree: StampedTree, link: int, before: int, behind: int) -> None:
    """Between two of the list of its GPU; -1: none."""
    rows, gpu = tree.rows, tree.rows[link].gpu
    rows[link].before, rows[link].behind = before, behind
    if before == NONE:
        tree.stalest[gpu] = link
    else:
        rows[before].behind = link
    if behind == NONE:
        tree.latest[gpu] = link
    else:
        rows[behind].before = link


@compiled
def _take_out(tree: StampedTree, link: int) -> None:
    rows, gpu = tree.rows, tree.rows[link].gpu
    before, behind = int(rows[link].before), int(rows[link].behind)
    if before == NONE:
        tree.stalest[gpu] = behind
    else:
        rows[before].behind = behind
    if behind == NONE:
        tree.latest[gpu] = before
    else:
        rows[behind].before = before
    rows[link].before = NONE
