"""Children of tree nodes: one hash table for all nodes of a tree, by open addressing.

A table is a pair of arrays, `slot_keys` and `slot_nodes`, which every tree here has under these names; a key is
parent << 32 | first segment id + 1, or -1 where the slot is empty. Keys of a parent that follow each other are side by
side in memory, four by four: who looks for one often looks for the others next.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.sim.compiled import compiled
from prebleexp.sim.prefetching import prefetched
from prebleexp.sim.records import NONE


def slots(nodes: int) -> tuple[Any, Any]:
    """An empty table for the children of this many nodes: (keys, nodes), at most half full."""
    size = 1 << (2 * nodes - 1).bit_length()
    return np.full(size, NONE, np.int64), np.zeros(size, np.int32)


@compiled
def _home(parent: int, first: int, mask: int) -> int:
    mixed = parent * 1640531527 + (first >> 2) * 40503  # less than 2^63, so that plain Python agrees
    return ((mixed ^ (mixed >> 16)) & (mask >> 2)) << 2 | first & mask & 3


@compiled
def _slot(tree: Any, parent: int, first: int) -> tuple[int, int]:
    """Where a key is in the table, or the empty slot where it would be; and the key."""
    mask, key = len(tree.slot_keys) - 1, parent << 32 | (first + 1)
    slot = _home(parent, first + 1, mask)
    while tree.slot_keys[slot] != key and tree.slot_keys[slot] != NONE:
        slot = (slot + 1) & mask
    return slot, key


@compiled
def child_of(tree: Any, parent: int, first: int) -> int:
    """The child whose edge begins with segment `first`, or -1."""
    slot, _ = _slot(tree, int(parent), int(first))
    return int(tree.slot_nodes[slot]) if tree.slot_keys[slot] != NONE else NONE


@compiled
def expect_child(tree: Any, parent: int, first: int) -> None:
    """Somebody will look for it."""
    prefetched((tree.slot_keys, tree.slot_nodes), _home(int(parent), int(first) + 1, len(tree.slot_keys) - 1))


@compiled
def set_child(tree: Any, parent: int, first: int, node: int) -> None:
    slot, key = _slot(tree, int(parent), int(first))
    tree.slot_keys[slot] = key
    tree.slot_nodes[slot] = node


@compiled
def remove_child(tree: Any, parent: int, first: int) -> None:
    mask = len(tree.slot_keys) - 1
    hole, _ = _slot(tree, int(parent), int(first))
    slot = hole
    while True:  # close the gap: move back what probing would no longer find
        slot = (slot + 1) & mask
        key = tree.slot_keys[slot]
        if key == NONE:
            break
        if (slot - _home(int(key) >> 32, int(key) & 0xFFFFFFFF, mask)) & mask >= (slot - hole) & mask:
            tree.slot_keys[hole], tree.slot_nodes[hole] = key, tree.slot_nodes[slot]
            hole = slot
    tree.slot_keys[hole] = NONE


@compiled
def copy_children(new: Any, old: Any) -> None:
    """Fill the empty table of `new` with the children of `old`."""
    for slot in range(len(old.slot_keys)):
        key = int(old.slot_keys[slot])
        if key != NONE:
            other, _ = _slot(new, key >> 32, (key & 0xFFFFFFFF) - 1)
            new.slot_keys[other], new.slot_nodes[other] = key, old.slot_nodes[slot]
