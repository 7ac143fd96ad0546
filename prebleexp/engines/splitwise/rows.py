"""Ordered lists that lie in rows of an array; whoever calls keeps their lengths."""

from __future__ import annotations

from typing import Any

from prebleexp.sim.compiled import compiled


@compiled
def insert(lists: Any, row: int, length: int, position: int, value: int) -> None:
    """Put a value before the one at `position`."""
    for i in range(length, position, -1):
        lists[row, i] = lists[row, i - 1]
    lists[row, position] = value


@compiled
def remove(lists: Any, row: int, length: int, value: int) -> int:
    """Take a value out, if it is there; returns the list's length then."""
    at = 0
    while at < length and lists[row, at] != value:
        at += 1
    for i in range(at + 1, length):
        lists[row, i - 1] = lists[row, i]
    return length if at == length else length - 1
