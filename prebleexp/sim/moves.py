"""Requests that are moved from one GPU to another: what a run knows of it (spec: clusters.md, section 6).

Every while GPUs are paired, one that has little free memory for each of its requests with one that has much
(`prebleexp.sim.pairing`), and a request of the first is moved to the second. One that waits is moved at once. One that
runs goes on while its KV is copied, in stages, and stops for the last of them; it belongs to the first GPU until all of
it is there.

Engines of whose GPUs requests are moved have `move`, `copied`, `stop` and `abandon` (see `prebleexp.engines.base`), and
call what is here.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from prebleexp.sim import addresses
from prebleexp.sim.book import enter, strike
from prebleexp.sim.compiled import compiled
from prebleexp.sim.links import MIGRATION
from prebleexp.sim.news import tell
from prebleexp.sim.notices import LEFT, ROUTED
from prebleexp.sim.plug import call_none
from prebleexp.sim.records import NONE, World
from prebleexp.sim.types import records

RUNNING, WAITING, WAITING_FIRST = range(3)
"""which request is moved: the shortest that runs, the first that waits, or that one if there is one"""

RULES = np.dtype(
    [
        ("interval_s", np.float64),  # between two times at which GPUs are paired
        ("below", np.float64),  # free tokens a request, of whoever is to have less, …
        ("chooses", np.int64),  # … and which of these it is
        ("last_blocks", np.int64),  # that are left when a request stops, at most
        ("stages", np.int64),  # at most, the last one included
        ("kv_bytes", np.float64),  # of a block
    ],
    align=True,
)

MOVE = np.dtype(
    [
        ("request", np.int64),  # that is moved from this GPU; -1: none is
        ("target", np.int64),
        ("stages", np.int64),  # begun so far
        ("copied", np.int64),  # blocks, those under way included
        ("taken", np.int64),  # blocks at the target
        ("busy", np.int64),  # whether something is under way, if only of a move that was given up
        ("paired", np.int64),  # whether this GPU has its part in a move
        ("mark", np.int64),  # the engine's, by which it knows whether the request ran all the time
        ("began_s", np.float64),
        ("tokens", np.int64),  # that the request knew then
        ("stopped_s", np.float64),  # when the last stage began; NaN: not yet
    ],
    align=True,
)
"""Of a GPU from which requests are moved, one at a time."""

MOVED = np.dtype(
    [
        ("moves", np.int64),
        ("aborted", np.int64),
        ("stopped_s", np.float64),
        ("gpu", np.int32),  # to which it goes
        (
            "over",
            np.int32,
        ),  # moves since policies were asked about it, for each of which they heard that it is finished
    ],
    align=True,
)
"""Of a request."""


NOTED = np.dtype(
    [
        ("began_s", np.float64),
        ("request", np.int64),
        ("source", np.int64),
        ("target", np.int64),
        ("tokens", np.int64),
        ("ran", np.int64),  # whether it was to go on while its KV is copied
        ("stages", np.int64),
        ("copied", np.int64),  # blocks
        ("made", np.int64),  # whether it came to anything
        ("ended_s", np.float64),
        ("stopped_s", np.float64),  # for how long the request was in no batch
    ],
    align=True,
)
"""Of a move that is over."""
ROOM = 2
"""rows for each GPU that there are behind the pairs of an instant, at least: until the next pairs are over one move
from it may end, and one may end at once"""


class Moves(NamedTuple):
    """All of it; arrays of length 0 in a run without."""

    rules: Any
    """(1,) `RULES`"""
    gpus: Any
    """(GPUs,) `MOVE`"""
    requests: Any
    """(n,) `MOVED`"""
    calls: Any
    """`prebleexp.sim.addresses.PAIRING`"""
    candidates: Any
    """GPUs to which requests may be moved, ascending: routers do not know them to be down, whatever limits them"""
    noted: Any
    """`NOTED` of moves that are over, until Python takes them away"""
    noting: Any
    """(1,) rows of it in use"""


NOBODY = np.zeros(0, np.int64)


@functools.cache
def nothing() -> Moves:
    """What a run without has, and writes nothing to."""
    calls = records(1, addresses.PAIRING)[0]
    none = (records(0, RULES), records(0, MOVE), records(0, MOVED))
    return Moves(*none, calls, NOBODY, records(0, NOTED), np.zeros(1, np.int64))


# ---------------------------------------------------------------- what engines call
@compiled
def ask_for(world: World, g: int, blocks: int, now: float) -> None:
    """So many blocks of the request that leaves a GPU are to be copied."""
    one, link = world.moves.gpus[g], world.links.calls
    one.busy = 1
    one.stages += 1
    one.copied += blocks
    size = blocks * world.moves.rules[0].kv_bytes
    subject, place = int(world.links.first[MIGRATION]) + g, int(world.links.places[MIGRATION])
    call_none(link.ask, link.own, subject, place + g, place + int(one.target), size, now)


@compiled
def note(world: World, g: int, request: int, ran: bool, made: bool) -> None:
    """The move from a GPU that was begun last is over."""
    moves, now = world.moves, world.control.now
    one, row = moves.gpus[g], moves.noted[moves.noting[0]]
    moves.noting[0] += 1
    row.began_s, row.request, row.source, row.target, row.tokens = one.began_s, request, g, one.target, one.tokens
    row.ran, row.stages, row.copied, row.made, row.ended_s = int(ran), one.stages, one.copied, int(made), now
    row.stopped_s = 0.0 if np.isnan(one.stopped_s) else now - one.stopped_s


@compiled
def hand_over(world: World, request: int, source: int, target: int) -> None:
    """A request belongs to another GPU from now on: routers hear of it when this event has been dealt with."""
    moved = world.moves.requests[request]
    moved.moves += 1
    moved.gpu = target
    tell(world, LEFT, request, source, 0)
    tell(world, ROUTED, request, target, 0)


# ---------------------------------------------------------------- what the router calls
@compiled
def leave(world: World, request: int) -> None:
    """A request leaves a GPU, …"""
    strike(world, request)
    world.moves.requests[request].over += 1


@compiled
def join(world: World, request: int) -> None:
    """Lets a request that left its GPU enter the one that it moves to."""
    world.seen.requests[request].gpu = world.moves.requests[request].gpu
    enter(world, request, 0)


@compiled
def is_over(world: World, kind: int, request: int, routed: int) -> bool:
    """Whether a request has been moved, and the policy, which does not hear where to (`routed` is 0), believes since
    that it is finished: it hears of no more of its tokens."""
    over = False
    for moved in world.moves.requests[max(request, 0) : request + 1]:  # none, where no request is moved
        over = routed == 0 and moved.over > int(kind == LEFT)
    return bool(over)


@compiled
def routed_anew(world: World, request: int) -> None:
    """A lost request begins again: policies are asked about it."""
    for moved in world.moves.requests[request : request + 1]:
        moved.over = 0


# ---------------------------------------------------------------- what the loop calls
@compiled
def abandon(world: World, g: int) -> None:
    """All that a GPU has from a move, or gives to one, is lost."""
    for source in range(len(world.moves.gpus)):
        one = world.moves.gpus[source]
        if one.request != NONE and g in (source, one.target):
            engine = world.engines[source]
            call_none(engine.abandon, engine.own, world, source, world.control.now)
