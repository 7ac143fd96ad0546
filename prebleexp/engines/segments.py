"""A request's context as segments: those of its prompt, then its answer.

A segment id stands for its whole path from the root, so one comparison tells whether two contexts agree up to it. An
answer goes by the name that a next turn's prompt has for it, or by one of its own, which nobody else's context has.
"""

from __future__ import annotations

from typing import Any

from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, World

ALL = 2**31 - 1
"""more tokens than any context has"""


@compiled
def segment_of(mine: Any, world: World, request: int, segment: int) -> int:
    """The id of a segment. `mine.settings.segment_ids`: more than any segment has; names of their own begin there."""
    row = world.seen.requests[request]
    if segment < row.segments:
        return int(world.seen.prompts.ids[row.first_segment + segment])
    return int(row.answer_segment) if row.answer_segment != NONE else mine.settings.segment_ids + request


@compiled
def end_of(world: World, request: int, segment: int) -> int:
    """Tokens to the end of a segment; an answer has none."""
    row = world.seen.requests[request]
    return int(world.seen.prompts.ends[row.first_segment + segment]) if segment < row.segments else ALL
