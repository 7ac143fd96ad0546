"""The GPUs that may get the request in hand: each by its number among them, whether one is, the first of the least."""

from __future__ import annotations

from typing import Any

from prebleexp.sim.candidates import is_candidate as is_candidate
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE

GPU_BITS = 20
MOST = (1 << 63) - 1
"""more than any other number"""


@compiled
def nth(candidates: Any, gpus: int, i: int) -> int:
    """The i-th of them, from 0 on. Where all GPUs are, it is GPU i: a loop over them all is compiled on its own, which
    looks at several at a time."""
    return i if len(candidates) == gpus else int(candidates[i])


@compiled
def with_gpu(load: int, gpu: int) -> int:
    """Both in one number. The least of these is the first GPU with the least load, and is found without a branch."""
    return (load << GPU_BITS) | gpu


@compiled
def gpu_of(both: int) -> int:
    return both & ((1 << GPU_BITS) - 1)


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
