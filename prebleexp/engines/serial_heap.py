"""The event queue of other simulators that run here: a binary heap by time, then in the order in which events were
made."""

from __future__ import annotations

from typing import Any, NamedTuple

from prebleexp.sim.compiled import compiled


class Events(NamedTuple):
    """A binary heap by time, then by serial. What holds it has a record with `events`, how many there are, and
    `serial`, that of the next one."""

    times: Any
    serials: Any
    codes: Any


@compiled
def _earlier(events: Events, time: float, serial: int, other: int) -> bool:
    return time < events.times[other] or (time == events.times[other] and serial < events.serials[other])


@compiled
def _put(events: Events, position: int, time: float, serial: int, code: int) -> None:
    events.times[position], events.serials[position], events.codes[position] = time, serial, code


@compiled
def _move(events: Events, source: int, position: int) -> None:
    _put(events, position, events.times[source], events.serials[source], events.codes[source])


@compiled
def push(events: Events, control: Any, time: float, code: int) -> int:
    """Put an event into the heap. Returns its serial, from 0 on, which breaks ties."""
    serial, position = control.serial, control.events
    control.serial += 1
    control.events += 1
    while position > 0:
        parent = (position - 1) >> 1
        if not _earlier(events, time, serial, parent):
            break
        _move(events, parent, position)
        position = parent
    _put(events, position, time, serial, code)
    return serial


@compiled
def pop(events: Events, control: Any) -> int:
    """Take the first event out of the heap: the earliest, and of equal times the one with the least serial. Returns
    its code."""
    code = int(events.codes[0])
    control.events -= 1
    last = control.events
    time, serial = events.times[last], events.serials[last]
    position, child = 0, 1
    while child < last:
        right = child + 1
        if right < last and _earlier(events, events.times[right], events.serials[right], child):
            child = right
        if _earlier(events, time, serial, child):
            break
        _move(events, child, position)
        position = child
        child = 2 * position + 1
    _put(events, position, time, serial, int(events.codes[last]))
    return code
