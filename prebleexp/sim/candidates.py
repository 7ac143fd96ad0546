"""The GPUs that may get the request in hand."""

from __future__ import annotations

from typing import Any

from prebleexp.sim.compiled import compiled


@compiled
def is_candidate(candidates: Any, gpu: int) -> bool:
    """`candidates` are ascending; `gpu` may be any number."""
    if 0 <= gpu < len(candidates) and candidates[gpu] == gpu:
        return True
    low, high = 0, len(candidates)
    while low < high:
        middle = (low + high) >> 1
        if candidates[middle] < gpu:
            low = middle + 1
        else:
            high = middle
    return low < len(candidates) and candidates[low] == gpu
