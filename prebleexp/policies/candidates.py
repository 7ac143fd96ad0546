"""Whether a GPU may get the request in hand."""

from __future__ import annotations

from typing import Any

from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE


@compiled
def is_candidate(candidates: Any, gpu: int) -> bool:
    """`candidates` are ascending."""
    if gpu < len(candidates) and candidates[gpu] == gpu:
        return gpu >= 0
    low, high = 0, len(candidates)
    while low < high:
        middle = (low + high) >> 1
        if candidates[middle] < gpu:
            low = middle + 1
        else:
            high = middle
    return low < len(candidates) and candidates[low] == gpu


@compiled
def served_by_one(tree: Any, candidates: Any, gpus: int, node: int) -> int:
    """The node itself or its nearest ancestor that a candidate serves; the root, if there is none."""
    while node > 0:
        if tree.rows[node].serving > 0:
            if len(candidates) == gpus:
                return node
            link = node
            while link != NONE:
                if tree.rows[link].serves and is_candidate(candidates, int(tree.rows[link].gpu)):
                    return node
                link = int(tree.rows[link].next)
        node = int(tree.rows[node].parent)
    return 0
