"""The event queue, in total order: by time, then by kind, then by subject.

| kind, in their order at one instant | subject | what happens |
| --- | --- | --- |
| CHANGE | row of the timeline | a GPU goes down, comes up, slows … (see `prebleexp.sim.changes`) |
| END | GPU | the step in progress is over: its tokens exist, its requests finish, and routers hear of it |
| ARRIVED | transfer, by owner | KV has come over a link, or begins to (see `prebleexp.sim.links`) |
| REPORT | – | what routers see of the GPUs is refreshed |
| PAIR | – | GPUs are paired, so that one of them takes a request of the other |
| SUBMIT | request | a request reaches the router |
| DECIDED | request | the router's decision has taken its time |
| REACHED | request | a request has passed the engine's frontend and joins its GPU's queue |
| EXPIRE | request | a request's patience is over |
| START | GPU | the engine chooses a batch, and how long that takes |

Each subject has at most one event of a kind, so no order is left to chance. An idle GPU has none. When requests
come, and when they give up, is not in the heap: they have an agenda of their own (see `prebleexp.sim.agenda`), and so
have transfers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import Events

CHANGE, END, ARRIVED, REPORT, PAIR, SUBMIT, DECIDED, REACHED, EXPIRE, START = range(10)
KIND_BITS = 40


@compiled
def key(kind: int, subject: int) -> int:
    return kind << KIND_BITS | int(subject)  # in plain Python it may be a field's, and narrower


@compiled
def kind_of(a_key: int) -> int:
    return a_key >> KIND_BITS


@compiled
def subject_of(a_key: int) -> int:
    return a_key & ((1 << KIND_BITS) - 1)


@compiled
def _before(events: Events, time: float, a_key: int, position: int) -> bool:
    other = events.times[position]
    return time < other or (time == other and a_key < events.keys[position])


@compiled
def comes_first(events: Events, control: Any, time: float, a_key: int) -> bool:
    """Whether what is to happen then comes before all of them."""
    return control.events == 0 or _before(events, time, a_key, 0)


@compiled
def push(events: Events, control: Any, time: float, a_key: int) -> None:
    position = control.events
    control.events = position + 1
    while position > 0:
        parent = (position - 1) >> 1
        if not _before(events, time, a_key, parent):
            break
        events.times[position], events.keys[position] = events.times[parent], events.keys[parent]
        position = parent
    events.times[position], events.keys[position] = time, a_key


@compiled
def pop(events: Events, control: Any) -> tuple[float, int]:
    """Take the first event out; returns (time, key)."""
    last = control.events - 1
    control.events = last
    time, a_key = events.times[0], events.keys[0]
    moved_time, moved_key = events.times[last], events.keys[last]
    position, child = 0, 1
    while child < last:
        right = child + 1
        if right < last and _before(events, events.times[right], events.keys[right], child):
            child = right
        if not _before(events, events.times[child], events.keys[child], last):
            break
        events.times[position], events.keys[position] = events.times[child], events.keys[child]
        position = child
        child = 2 * position + 1
    events.times[position], events.keys[position] = moved_time, moved_key
    return time, a_key


@compiled
def put_first(events: Events, control: Any, time: float) -> None:
    """The first event is at another time, which is later."""
    size, position, child, a_key = control.events, 0, 1, events.keys[0]
    while child < size:
        right = child + 1
        if right < size and _before(events, events.times[right], events.keys[right], child):
            child = right
        if _before(events, time, a_key, child):
            break
        events.times[position], events.keys[position] = events.times[child], events.keys[child]
        position, child = child, 2 * child + 1
    events.times[position], events.keys[position] = time, a_key


@compiled
def remove(events: Events, control: Any, a_key: int) -> None:
    """Take out the event with this key, if there is one."""
    position = 0
    while position < control.events and events.keys[position] != a_key:
        position += 1
    if position == control.events:
        return
    while position > 0:  # as if it were the first
        parent = (position - 1) >> 1
        events.times[position], events.keys[position] = events.times[parent], events.keys[parent]
        position = parent
    pop(events, control)


def with_event(events: Events, control: Any, time: float, a_key: int) -> Events:
    """As `push`, from Python, where it may be one event more than there was room for."""
    n = int(control.events)
    made = Events(np.zeros(len(events.times) + 1), np.zeros(len(events.keys) + 1, np.int64))
    times, keys = np.append(events.times[:n], time), np.append(events.keys[:n], a_key)
    order = np.lexsort((keys, times))  # what is in order is a heap
    made.times[: n + 1], made.keys[: n + 1] = times[order], keys[order]
    control.events = n + 1
    return made


def without_event(events: Events, control: Any, a_key: int) -> None:
    """From Python: take out the event with this key, if there is one."""
    n = int(control.events)
    kept = np.flatnonzero(events.keys[:n] != a_key)
    times, keys = events.times[kept], events.keys[kept]
    order = np.lexsort((keys, times))  # what is in order is a heap
    control.events = len(kept)
    events.times[: len(kept)], events.keys[: len(kept)] = times[order], keys[order]
