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
    if world.pools.legs == 0:
        return np.zeros(0, np.int64)
    n, jobs, gpus = world.pools.requests, world.jobs, world.seen.requests.gpu
    waits = np.isin(jobs.state[:n], (State.HELD, State.RESERVED)) & (jobs.reached[n:] != 0)
    if len(world.tiers.fetches):  # what comes from there is of this GPU's own
        waits &= world.tiers.fetches.coming[:n] == 0
    found = np.flatnonzero(waits & ((gpus[n:] == g) | (gpus[:n] == g)))
    return found[np.argsort(jobs.number[found])]


def torn(world: World, g: int) -> Longs:
    """Requests that are lost with a GPU, whoever else has a part in them: those, and with RESERVE_FIRST those whose
    prompt is not computed, of which both GPUs know."""
    if world.pools.protocol != RESERVE_FIRST:
        return unread(world, g)
    n, jobs, gpus = world.pools.requests, world.jobs, world.seen.requests.gpu
    waits = np.isin(jobs.state[:n], (State.QUEUED, State.RESERVED, State.LOST)) & np.isin(jobs.state[n:], UNREAD)
    there = (gpus == g) & (jobs.reached != 0)
    found = np.flatnonzero((waits | (jobs.state[:n] == State.RESERVED)) & (there[:n] | there[n:]))
    return found[np.argsort(jobs.number[found])]


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
    n = world.pools.requests
    both = world.pools.protocol == RESERVE_FIRST and row < n
    return bool(both and world.jobs[n + row].state in UNREAD)


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
