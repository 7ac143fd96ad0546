"""Skew heaps of records that have `heap_key`, `heap_left` and `heap_right`; the root has the least key."""

from __future__ import annotations

from typing import Any

from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE


@compiled
def merge(records: Any, a: int, b: int) -> int:
    """The root of both heaps together; -1 is the root of an empty one."""
    if a == NONE or b == NONE:
        return b if a == NONE else a
    if records[b].heap_key < records[a].heap_key:
        a, b = b, a
    root, last = a, a
    while True:
        right = int(records[last].heap_right)
        records[last].heap_right = records[last].heap_left
        if right == NONE:
            records[last].heap_left = b
            return root
        if records[b].heap_key < records[right].heap_key:
            right, b = b, right
        records[last].heap_left = right
        last = right
