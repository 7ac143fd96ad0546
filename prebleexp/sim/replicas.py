"""Several routers side by side, each with a policy's memory and a book of its own. To the loop they are one router: its
functions are these, which find whose a request is, and call the policy with what that replica remembers and sees.

A replica hears what happens to requests that came to it, and what GPUs tell everybody: of their caches, and that they
go and come back. Of the others' books it knows what is `gossip_s` old: each change is noted, and written to all other
books when it is that old, which is before the next look at any.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.sim.candidates import is_candidate
from prebleexp.sim.compiled import compiled
from prebleexp.sim.plug import call_int, call_none
from prebleexp.sim.records import NONE, View

CONTROL = np.dtype(
    [
        ("turn", np.int64),  # replica to which the next request comes, where they come in turn
        ("outstanding", np.int64),  # requests that were sent and of which nobody has heard the end
        ("noted", np.int64),  # changes of books that were ever noted, …
        ("told", np.int64),  # … and how many of them all know
    ],
    align=True,
)

NOTE = np.dtype([("at_s", np.float64), ("request", np.int32), ("gpu", np.int32), ("sign", np.int64)], align=True)
"""A change of a book: a request was sent to a GPU (1), or is outstanding there no more (-1)."""


class Replicas(NamedTuple):
    gossip_s: float
    """infinite: books are not told"""
    control: Any
    of: Any
    """(n,) int32, to which replica each request comes; -1: that is not known yet"""
    routers: Any
    """(replicas,) `prebleexp.sim.addresses.ROUTER`"""
    views: Any
    """(replicas,) addresses of what each sees; in plain Python what it sees"""
    books: Any
    """(replicas · GPUs,) `SENT`, one replica's after the other; (0,) if one is common to all, which is the loop's"""
    notes: Any
    """(room,) `NOTE`, change i in row i mod room; (0,) where none are told"""


# ---------------------------------------------------------------- as a router
@compiled
def route(self: Any, mine: Replicas, view: View, request: int, now: float) -> int:
    tell_others(mine, view, now)
    one, seen = mine.routers[replica_of(mine, request)], mine.views[replica_of(mine, request)]
    answer = call_int(one.route, one.own, seen, request, now)
    if is_candidate(view.candidates, answer):  # it is sent, and at once
        write(mine, view, request, answer, 1, now)
    return answer


@compiled
def lacks_room(self: Any, mine: Replicas, view: View, request: int) -> int:
    if lacks_notes(mine):
        return 1
    one, seen = mine.routers[replica_of(mine, request)], mine.views[replica_of(mine, request)]
    return 0 if one.lacks_room == 0 else call_int(one.lacks_room, one.own, seen, request)


@compiled
def first_token(self: Any, mine: Replicas, view: View, request: int, now: float) -> None:
    tell_others(mine, view, now)
    one = mine.routers[mine.of[request]]
    call_none(one.first_token, one.own, mine.views[mine.of[request]], request, now)


@compiled
def finished(self: Any, mine: Replicas, view: View, request: int, now: float) -> None:
    tell_others(mine, view, now)
    write(mine, view, request, view.requests[request].gpu, -1, now)
    one = mine.routers[mine.of[request]]
    if one.finished != 0:
        call_none(one.finished, one.own, mine.views[mine.of[request]], request, now)


@compiled
def stored(self: Any, mine: Replicas, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
    tell_others(mine, view, now)
    for r in range(len(mine.views)):
        one = mine.routers[r]
        call_none(one.stored, one.own, mine.views[r], request, gpu, tokens, now)


@compiled
def evicted(self: Any, mine: Replicas, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
    tell_others(mine, view, now)
    for r in range(len(mine.views)):
        one = mine.routers[r]
        call_none(one.evicted, one.own, mine.views[r], request, gpu, tokens, now)


@compiled
def copied(self: Any, mine: Replicas, view: View, request: int, place: int, tokens: int, now: float) -> None:
    tell_others(mine, view, now)
    for r in range(len(mine.views)):
        one = mine.routers[r]
        call_none(one.copied, one.own, mine.views[r], request, place, tokens, now)


@compiled
def dropped(self: Any, mine: Replicas, view: View, request: int, place: int, tokens: int, now: float) -> None:
    tell_others(mine, view, now)
    for r in range(len(mine.views)):
        one = mine.routers[r]
        call_none(one.dropped, one.own, mine.views[r], request, place, tokens, now)


@compiled
def changed(self: Any, mine: Replicas, view: View, gpu: int, now: float) -> None:
    tell_others(mine, view, now)
    for r in range(len(mine.views)):
        one = mine.routers[r]
        call_none(one.changed, one.own, mine.views[r], gpu, now)


# ---------------------------------------------------------------- whose a request is
@compiled
def replica_of(mine: Replicas, request: int) -> int:
    """Where they come in turn, that is in the order in which they are first asked about."""
    if mine.of[request] == NONE:
        mine.of[request] = mine.control.turn
        mine.control.turn = (mine.control.turn + 1) % len(mine.views)
    return int(mine.of[request])


# ---------------------------------------------------------------- books
@compiled
def write(mine: Replicas, view: View, request: int, gpu: int, sign: int, now: float) -> None:
    """A request is sent to a GPU (1), or outstanding there no more (-1): its replica knows at once."""
    control = mine.control
    if len(mine.books) == 0:
        return
    control.outstanding += sign
    _enter(mine, view, int(mine.of[request]), request, gpu, sign)
    if len(mine.notes) > 0:
        note = mine.notes[control.noted % len(mine.notes)]
        note.at_s, note.request, note.gpu, note.sign = now, request, gpu, sign
        control.noted += 1


@compiled
def tell_others(mine: Replicas, view: View, now: float) -> None:
    """Let all know of what is old enough."""
    control = mine.control
    while control.told < control.noted:
        note = mine.notes[control.told % len(mine.notes)]
        if note.at_s + mine.gossip_s > now:
            return
        for r in range(len(mine.views)):
            if r != mine.of[note.request]:
                _enter(mine, view, r, int(note.request), int(note.gpu), int(note.sign))
        control.told += 1


@compiled
def _enter(mine: Replicas, view: View, r: int, request: int, gpu: int, sign: int) -> None:
    book = mine.books[r * (len(mine.books) // len(mine.views)) + gpu]
    book.outstanding += sign
    book.tokens += sign * view.requests[request].prompt_tokens
    if sign > 0:
        book.requests += 1


@compiled
def lacks_notes(mine: Replicas) -> bool:
    """Whether there may be more changes, until the next request is asked about, than there is room for."""
    control, room = mine.control, len(mine.notes)
    return room > 0 and control.noted - control.told + control.outstanding + 2 > room
