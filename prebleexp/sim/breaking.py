"""GPUs that go down where KV goes from one to another: whose KV is on its way, or held, is lost with either of them.

The other one is told at once, for the connection breaks: the transfer ends, and it has its blocks back. Routers hear of
it when they notice that the GPU is down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from prebleexp.sim.answers import WITHDRAWN
from prebleexp.sim.events import REACHED, key, without_event
from prebleexp.sim.pools import BOTH, RESERVE_FIRST, leg_of
from prebleexp.sim.pulling import leave_kv
from prebleexp.sim.records import NONE, World
from prebleexp.sim.states import State
from prebleexp.sim.types import Longs

if TYPE_CHECKING:
    from prebleexp.sim.emptied import Emptied

UNREAD = (State.QUEUED, State.RUNNING)
"""states of a prompt that is not computed"""


def unread(world: World, g: int) -> Longs:
    """Requests whose KV a GPU holds, or has taken blocks for, in the order in which they came."""
    return _in_order(world, _unread(world, g))


def _unread(world: World, g: int) -> Any:
    """(n,) whether a request is one of these; (0,) without pools."""
    n, legs, jobs, gpus = world.pools.legs, _legs(world), world.jobs, world.seen.requests.gpu
    waits = np.isin(jobs.state[:n], (State.HELD, State.RESERVED)) & (jobs.reached[legs] != 0)
    waits[np.flatnonzero(world.tiers.fetches.coming[:n])] = False  # what comes from there is of this GPU's own
    return waits & ((gpus[legs] == g) | (gpus[:n] == g))


def _legs(world: World) -> slice:
    return slice(world.pools.legs, 2 * world.pools.legs)


def _in_order(world: World, wanted: Any) -> Longs:
    found = np.flatnonzero(wanted)
    return found[np.argsort(world.jobs.number[found])]


def torn(world: World, g: int) -> Longs:
    """Requests that are lost with a GPU, whoever else has a part in them: those, and, with RESERVE_FIRST, those whose
    prompt is not computed, of which both GPUs know."""
    n, legs, jobs = world.pools.legs, _legs(world), world.jobs
    waits = np.isin(jobs.state[:n], (State.QUEUED, State.LOST)) & np.isin(jobs.state[legs], UNREAD)
    waits |= (jobs.state[:n] == State.RESERVED) & (jobs.state[legs] != State.FINISHED)
    there = (world.seen.requests.gpu == g) & (jobs.reached != 0)
    return _in_order(world, _unread(world, g) | (waits & (there[:n] | there[legs])))


def break_off(world: World, engines: Emptied, request: int) -> int:
    """One of them is lost, and leaves its GPUs; returns the row that is."""
    job, g = world.jobs[request], int(world.seen.requests[request].gpu)
    if _waits(world, request):
        leg = _lose_prompt(world, engines, request)
        keep_shown(world, leg)
        world.jobs[leg].losses += 1
        return leg
    keep_shown(world, request)
    if g == NONE:
        _leave_router(world, request)
        job.answer, job.reached = WITHDRAWN, 1
    else:
        engines.withdraw(g, request)
    without_event(world.events, world.control, key(REACHED, request))  # it was to look for room again
    leave_kv(engines.handle, request)
    job.state = State.LOST
    job.losses += 1
    return request


def given_back(world: World, engines: Emptied, g: int) -> Longs:
    """Rows that wait on a GPU that is drained: it is rid of them. With RESERVE_FIRST, both GPUs are chosen anew."""
    rows, n, jobs = engines.give_back(g), world.pools.requests, world.jobs
    if world.pools.protocol != RESERVE_FIRST or world.pools.roles[g] == BOTH:
        return rows
    legs = slice(n, 2 * n)
    without_room = (world.seen.requests.gpu[legs] == g) & (jobs.reached[legs] != 0) & (jobs.state[:n] == State.QUEUED)
    waits = np.flatnonzero(without_room & (jobs.state[legs] == State.QUEUED))
    requests = np.unique(np.concatenate([rows % n, waits]))
    for request in requests.tolist():
        part(world, engines, request)
    return n + requests


def lost_row(world: World, engines: Emptied, row: int) -> int:
    """By which row routers hear of a loss: if a request came to a GPU that was down, its prompt waits for it no
    more."""
    if world.jobs[row].state != State.LOST or not _waits(world, row):
        return row
    return _lose_prompt(world, engines, row)


def _lose_prompt(world: World, engines: Emptied, request: int) -> int:
    """A request whose prompt is not computed is lost by its prompt's row, which is returned."""
    leg = leg_of(engines.handle, request)
    part(world, engines, request)
    world.jobs[leg].state, world.jobs[leg].reached = State.LOST, 1
    return leg


def part(world: World, engines: Emptied, request: int) -> None:
    """A request whose prompt is not computed leaves both of its GPUs."""
    from prebleexp.sim.severing import come_no_more  # few runs have it: others need not import it

    for row in (leg_of(engines.handle, request), request):
        g = int(world.seen.requests[row].gpu)
        if g != NONE and world.jobs[row].reached != 0:
            engines.withdraw(g, row)
    come_no_more(engines.handle, request)


def keep_shown(world: World, rows: Any) -> None:
    """They are lost: what was shown of them is kept, or nothing is."""
    jobs = world.jobs
    jobs.shown[rows] = jobs.output_seen[rows] if world.rules.resume else 0
    world.seen.requests.output_seen[rows] = jobs.shown[rows]


def _waits(world: World, row: int) -> bool:
    """Whether it is a request of which both GPUs know, and its prompt is not computed."""
    n = world.pools.legs
    return bool(row < n and world.jobs[n + row].state in UNREAD)


def _leave_router(world: World, request: int) -> None:
    """It waits for a router no more, if it does: what is decided on is in no list."""
    jobs = world.jobs
    for one in world.lists:
        rows, row = [], int(one.head)
        while row != NONE:
            rows.append(row)
            row = int(jobs[row].next)
        if request in rows:
            rows.remove(request)
            jobs.next[rows] = [*rows[1:], NONE][: len(rows)]
            one.head, one.tail = (rows[0], rows[-1]) if rows else (NONE, NONE)
