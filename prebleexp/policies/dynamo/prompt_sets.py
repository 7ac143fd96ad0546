"""For each GPU a set of prompts, and how many distinct blocks of tokens they have.

A radix tree over the prompts that are in any of the sets. At each of its nodes there is a link for every GPU that has a
prompt through it. A link counts what of the GPU's goes on below, or ends, at the node: so a prompt that joins or leaves
changes no more links than those that come or go with it, and one above them. Beside the links there are bits, which say
at one glance which GPUs have one. A prompt may be in the sets of several GPUs.

Blocks are full, and belong to the node that they end in. So two prompts share a block if, and only if, they share all
tokens up to its end. A node without links is dropped, and its row comes back. Arrays are as large as a run can need;
what is never written to takes no memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.policies.growing import longer
from prebleexp.policies.prefix_tree import agreement
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NODES, View
from prebleexp.sim.types import Setup, records

NODE = np.dtype(
    [
        ("parent", np.int32),  # in the free list: the next free row
        ("owner", np.int32),  # a request whose prompt goes through the node …
        ("segment", np.int32),  # … which ends behind this many of its segments
        ("tokens", np.int32),  # from the root through the node
        ("first", np.int32),  # segment id it begins with, …
        ("last", np.int32),  # … and ends with
        ("link", np.int32),  # the first of its links; 0: none
        ("blocks", np.int32),  # full blocks that end in it
    ],
    align=True,
)
LINK = np.dtype(
    [
        ("weight", np.int64),  # of each of the node's blocks, in units of `BLOCK`
        ("gpu", np.int32),
        ("next", np.int32),  # of the same node, or free; 0: none
        ("users", np.int32),  # children that have a link of this GPU, and prompts of it that end here
    ],
    align=True,
)

BITS = 32
BLOCK, HALF = 1 << BITS, (1 << (BITS - 1)) + (1 << 12)
"""a whole block: sums of weights are of whole numbers, and the same in any order. And what rounds up: half a block, or
less by what shares of up to 8,192 blocks have lost as whole numbers"""

NODE_ROWS, FREE_NODE, LINK_ROWS, FREE_LINK = range(4)


class PromptSets(NamedTuple):
    """Node 0 is the root, link 0 is none."""

    rows: Any
    links: Any
    room: Any
    """(4,) `NODE_ROWS` and `LINK_ROWS` that were ever used; first of the free ones, 0: none"""
    holders: Any
    """(nodes, words) GPUs with a link, 64 a word"""
    begins: Any
    """(segment ids,) the node that begins with a segment; 0: none"""
    leaves: Any
    """(requests,) the node in which a prompt that was found, or is in a set, ends"""
    weights: Any
    """(GPUs,) of the set's distinct blocks, in units of `BLOCK`"""
    block_size: int


def prompt_sets(setup: Setup, block_size: int) -> PromptSets:
    """Empty ones, for the prompts of a run."""
    nodes, words = setup.segment_ids + 1, -(-setup.gpus // 64)
    return PromptSets(
        records(nodes, NODE),
        records(setup.segments + setup.gpus + 1, LINK),
        np.array([1, 0, 1, 0]),
        np.zeros((nodes, words), np.int64),
        np.zeros(setup.segment_ids, np.int32),
        np.zeros(setup.requests, np.int32),
        np.zeros(setup.gpus, np.int64),
        block_size,
    )


# ---------------------------------------------------------------- room
@compiled
def lacks_room(sets: PromptSets, view: View, request: int) -> bool:
    """Whether a prompt that joins a set may need more links than there are: one at each node of its path, and those
    that a split copies. There are enough while each prompt is in one set."""
    return bool(sets.room[LINK_ROWS] + view.requests[request].segments + len(view.sent) > len(sets.links))


def with_more_room(sets: PromptSets, view: Any, request: int) -> PromptSets:
    links, wanted = sets.links, int(view.requests[request].segments) + len(view.sent)
    while sets.room[LINK_ROWS] + wanted > len(links):
        links = longer(links)
    return sets._replace(links=links)


# ---------------------------------------------------------------- what is asked
@compiled
def shared(sets: PromptSets, request: int, into: Any) -> None:
    """Write to into[g] how many leading blocks the prompt, which was found, shares with those in GPU g's set."""
    leaf = int(sets.leaves[request])
    for gpu in range(len(into)):
        into[gpu] = 0
    for word in range(sets.holders.shape[1]):
        node, blocks, found = leaf, _blocks_through(sets, leaf), np.int64(0)
        part = into[64 * word : 64 * word + 64]
        while node != 0:
            bits = sets.holders[node, word] & ~found
            if bits != 0:
                found |= bits
                for gpu in range(len(part)):  # a branch would be mispredicted
                    part[gpu] |= blocks & -((bits >> gpu) & 1)
            blocks -= int(sets.rows[node].blocks)
            node = int(sets.rows[node].parent)


@compiled
def _blocks_through(sets: PromptSets, node: int) -> int:
    return int(sets.rows[node].tokens) // sets.block_size


# ---------------------------------------------------------------- what changes
@compiled
def add(sets: PromptSets, request: int, gpu: int) -> None:
    """The prompt, which was found, joins the GPU's set."""
    node = int(sets.leaves[request])
    while node != 0:
        if has(sets, node, gpu):
            sets.links[link_of(sets, node, gpu)].users += 1
            return
        _add_link(sets, node, gpu, 1, BLOCK)
        sets.weights[gpu] += BLOCK * int(sets.rows[node].blocks)
        node = int(sets.rows[node].parent)


@compiled
def remove(sets: PromptSets, request: int, gpu: int) -> None:
    """A prompt that is in the GPU's set leaves it."""
    node = int(sets.leaves[request])
    while node != 0:
        row = sets.rows[node]
        before, at = 0, int(row.link)
        while sets.links[at].gpu != gpu:
            before, at = at, int(sets.links[at].next)
        link = sets.links[at]
        link.users -= 1
        if link.users > 0:
            return
        sets.weights[gpu] -= link.weight * int(row.blocks)
        sets.holders[node, gpu >> 6] ^= np.int64(1) << np.int64(gpu & 63)
        if before == 0:
            row.link = link.next
        else:
            sets.links[before].next = link.next
        link.next = sets.room[FREE_LINK]
        sets.room[FREE_LINK] = at
        above = int(row.parent)
        if row.link == 0:
            sets.begins[row.first] = 0
            row.parent = sets.room[FREE_NODE]
            sets.room[FREE_NODE] = node
        node = above


@compiled
def weigh(sets: PromptSets, request: int, gpu: int, weight: int) -> None:
    """Let the blocks at the prompt's end that no other prompt of the GPU's set has be of this weight."""
    node = int(sets.leaves[request])
    while node != 0:
        link = sets.links[link_of(sets, node, gpu)]
        if link.users > 1:
            return
        sets.weights[gpu] += (weight - link.weight) * int(sets.rows[node].blocks)
        link.weight = weight
        node = int(sets.rows[node].parent)


# ---------------------------------------------------------------- the tree
@compiled
def find(sets: PromptSets, view: View, request: int) -> None:
    """Find the node in which the request's prompt ends, and make it if there is none: then `add` is to follow."""
    row, ids = view.requests[request], view.prompts.ids
    node, segment = 0, 0
    while segment < row.segments:
        view.work[NODES] += 1
        first = int(ids[row.first_segment + segment])
        child = int(sets.begins[first])
        if child == 0:
            node, segment = _new_node(sets, view, node, request, int(row.segments), first), int(row.segments)
        else:
            segment = agreement(sets, view, child, request, segment)
            node = child if segment == sets.rows[child].segment else _split(sets, view, child, segment)
    sets.leaves[request] = node


@compiled
def _new_node(sets: PromptSets, view: View, parent: int, owner: int, segment: int, first: int) -> int:
    """A node without links, which ends behind so many segments of the owner's prompt."""
    node, end = int(sets.room[FREE_NODE]), view.requests[owner].first_segment + segment - 1
    if node == 0:
        node = int(sets.room[NODE_ROWS])
        sets.room[NODE_ROWS] += 1
    else:
        sets.room[FREE_NODE] = sets.rows[node].parent
    row = sets.rows[node]
    row.parent, row.owner, row.segment, row.tokens = parent, owner, segment, view.prompts.ends[end]
    row.first, row.last, row.link = first, view.prompts.ids[end], 0
    row.blocks = _blocks_through(sets, node) - _blocks_through(sets, parent)
    sets.begins[first] = node
    return node


@compiled
def _split(sets: PromptSets, view: View, lower: int, segment: int) -> int:
    """Cut a node so that its upper part, which is returned, ends behind so many segments of the owner's prompt."""
    row = sets.rows[lower]
    upper = _new_node(sets, view, int(row.parent), int(row.owner), segment, int(row.first))
    row.parent, row.first = upper, view.prompts.ids[view.requests[row.owner].first_segment + segment]
    row.blocks -= sets.rows[upper].blocks
    sets.begins[row.first] = lower
    at = int(row.link)
    while at != 0:
        _add_link(sets, upper, int(sets.links[at].gpu), 1, int(sets.links[at].weight))
        at = int(sets.links[at].next)
    return upper


# ---------------------------------------------------------------- links
@compiled
def has(sets: PromptSets, node: int, gpu: int) -> bool:
    return (sets.holders[node, gpu >> 6] >> (gpu & 63)) & 1 == 1


@compiled
def link_of(sets: PromptSets, node: int, gpu: int) -> int:
    """The link that the GPU has at the node."""
    at = int(sets.rows[node].link)
    while sets.links[at].gpu != gpu:
        at = int(sets.links[at].next)
    return at


@compiled
def _add_link(sets: PromptSets, node: int, gpu: int, users: int, weight: int) -> None:
    at = int(sets.room[FREE_LINK])
    if at == 0:
        at = int(sets.room[LINK_ROWS])
        sets.room[LINK_ROWS] += 1
    else:
        sets.room[FREE_LINK] = sets.links[at].next
    link, row = sets.links[at], sets.rows[node]
    link.weight, link.gpu, link.users, link.next = weight, gpu, users, row.link
    row.link = at
    sets.holders[node, gpu >> 6] |= np.int64(1) << np.int64(gpu & 63)
