"""The event queue: a binary heap by time alone, in which equal times fall as they do in the released simulator.

The released simulator keeps its events in Python's heapq and compares only times. So which of two simultaneous
events comes first depends on how a binary heap lets them, and at time 0, when all GPUs step and the first request
arrives, that decides results. The same sift operations, in the same order, give the same answer.
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.released.records import Events
from prebleexp.sim.compiled import compiled

ARRIVE, DISPATCH, TOKENIZE, ENQUEUE, STEP = range(5)
KIND_BITS = 3


@compiled
def encode(kind: int, subject: int) -> int:
    """An event's code: what happens, to which request (or GPU)."""
    return subject << KIND_BITS | kind


@compiled
def decode(code: int) -> tuple[int, int]:
    """(kind, subject)"""
    return code & ((1 << KIND_BITS) - 1), code >> KIND_BITS


@compiled
def _rise(events: Events, start: int, position: int) -> None:
    """Move the event at `position` towards the root until its parent is not later."""
    time, code = events.times[position], events.codes[position]
    while position > start:
        parent = (position - 1) >> 1
        if not time < events.times[parent]:
            break
        events.times[position], events.codes[position] = events.times[parent], events.codes[parent]
        position = parent
    events.times[position], events.codes[position] = time, code


@compiled
def push(events: Events, control: Any, time: float, code: int) -> None:
    position = control.events
    control.events = position + 1
    events.times[position], events.codes[position] = time, code
    _rise(events, 0, position)


@compiled
def pop(events: Events, control: Any) -> tuple[float, int]:
    """Take the first event out; returns (time, code)."""
    last = control.events - 1
    control.events = last
    time, code = events.times[0], events.codes[0]
    if last > 0:
        # The last event takes the root's place: all the way down along the earlier children, then up again.
        moved_time, moved_code = events.times[last], events.codes[last]
        position, child = 0, 1
        while child < last:
            right = child + 1
            if right < last and not events.times[child] < events.times[right]:
                child = right
            events.times[position], events.codes[position] = events.times[child], events.codes[child]
            position = child
            child = 2 * position + 1
        events.times[position], events.codes[position] = moved_time, moved_code
        _rise(events, 0, position)
    return time, code
