"""Several routers side by side, each with a policy's memory and a book of its own: what each of them knows.

A router hears what happens to requests that came to it, and what GPUs tell everybody: of their caches, and that they
go and come back. Of the others' books it knows what is `gossip_s` old: each change is noted, and written to all other
books when it is that old, which is before the next look at any.

| function | when it is called |
| --- | --- |
| `whose` | to which router does a request come? |
| `write` | a request is sent to a GPU, moved there, or outstanding there no more |
| `age` | a router is asked, or told of something: what of the others is old enough? |
| `lacks_room` | whether there may be more changes than there is room for |
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, World

CONTROL = np.dtype(
    [
        ("turn", np.int64),  # router to which the next request comes, where they come in turn
        ("noted", np.int64),  # changes of books that were ever noted, …
        ("told", np.int64),  # … and how many of them all know
    ],
    align=True,
)

NOTE = np.dtype(
    [("at_s", np.float64), ("request", np.int32), ("gpu", np.int32), ("sign", np.int32), ("is_sent", np.int32)],
    align=True,
)
"""A change of a book: a request was sent to a GPU, or moved there (1), or is outstanding there no more (-1)."""


class Replicas(NamedTuple):
    gossip_s: float
    """infinite: books are not told"""
    control: Any
    of: Any
    """(n,) int32, to which router each request comes; -1: that is not known yet"""
    books: Any
    """(routers · GPUs,) `SENT`, one router's after the other; (0,) if one is common to all, which is the loop's"""
    notes: Any
    """(room,) `NOTE`, change i in row i mod room; (0,) where none are told"""


@compiled
def whose(self: Any, mine: Replicas, world: World, request: int) -> int:
    """Where they come in turn, that is in the order in which they are first asked about."""
    if mine.of[request] == NONE:
        mine.of[request] = mine.control.turn
        mine.control.turn = (mine.control.turn + 1) % len(world.routers)
    return int(mine.of[request])


@compiled
def write(self: Any, mine: Replicas, world: World, row: int, sign: int, is_sent: int) -> None:
    """Takes down what a router replica did in its own books, and notes it for the others, who hear of it later."""
    control, g = mine.control, int(world.seen.requests[row].gpu)
    if len(mine.books) == 0:
        return
    _enter(mine, world, whose(self, mine, world, row % world.pools.requests), row, g, sign, is_sent)
    if len(mine.notes) > 0:
        note = mine.notes[control.noted % len(mine.notes)]
        note.at_s, note.request, note.gpu, note.sign, note.is_sent = world.control.now, row, g, sign, is_sent
        control.noted += 1


@compiled
def age(self: Any, mine: Replicas, world: World, now: float) -> None:
    """Let all know of what is old enough."""
    control = mine.control
    while control.told < control.noted:
        note = mine.notes[control.told % len(mine.notes)]
        if note.at_s + mine.gossip_s > now:
            return
        row = int(note.request)
        for r in range(len(world.routers)):
            if r != mine.of[row % world.pools.requests]:
                _enter(mine, world, r, row, int(note.gpu), int(note.sign), int(note.is_sent))
        control.told += 1


@compiled
def _enter(mine: Replicas, world: World, r: int, row: int, g: int, sign: int, is_sent: int) -> None:
    book = mine.books[r * len(world.seen.sent) + g]
    book.outstanding += sign
    book.tokens += sign * world.seen.requests[row].prompt_tokens
    book.requests += is_sent


@compiled
def lacks_room(self: Any, mine: Replicas, world: World, more: int) -> int:
    """Whether so many changes, and one more that a decision in hand may bring, may be more than there is room for."""
    control, room = mine.control, len(mine.notes)
    return int(0 < room < control.noted - control.told + more + 1)
