"""A request's context as its segments: its prompt and, if a later turn may bring it back, the answer."""

from __future__ import annotations

from typing import Any

from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, View

ENDLESS = 1 << 30


@compiled
def segments_of(row: Any) -> int:
    """How many segments a request's context has."""
    return int(row.segments) + int(row.answer_segment != NONE)


@compiled
def id_at(view: View, row: Any, segment: int) -> int:
    return int(view.prompts.ids[row.first_segment + segment]) if segment < row.segments else int(row.answer_segment)


@compiled
def end_of(view: View, row: Any, segment: int) -> int:
    """Tokens from the context's beginning to the segment's end. An answer has no end: only prompts with it know it."""
    return int(view.prompts.ends[row.first_segment + segment]) if segment < row.segments else ENDLESS


@compiled
def segment_at(view: View, row: Any, low: int, tokens: int) -> int:
    """The first segment, not before `low`, that ends behind so many tokens or beyond."""
    high = int(row.segments)
    while low < high:
        middle = (low + high) >> 1
        if view.prompts.ends[row.first_segment + middle] < tokens:
            low = middle + 1
        else:
            high = middle
    return low
