"""Who is due next: requests that wait for nobody, which come when they come, and those that come after others, in a
later stage, or when so many have ended. Nobody sees one before it is due (see `prebleexp.sim.agenda`)."""

from __future__ import annotations

from prebleexp.sim.compiled import compiled
from prebleexp.sim.events import EXPIRE, SUBMIT, key, pop, push
from prebleexp.sim.records import NONE, World
from prebleexp.sim.types import State

CANCELLED = int(State.CANCELLED)


@compiled
def look_ahead(world: World) -> None:
    """Find the next event of a request."""
    sessions, timers = world.sessions, world.sessions.timers
    control = sessions.control
    control.time, control.key = float("inf"), 0
    if control.came < len(sessions.firsts):
        request = sessions.firsts[control.came]
        control.time, control.key = world.arrivals[request], key(SUBMIT, request)
    if control.events > 0:
        time, a_key = timers.times[0], timers.keys[0]
        if time < control.time or (time == control.time and a_key < control.key):
            control.time, control.key = time, a_key


@compiled
def take_next(world: World) -> None:
    """The next event of a request is the one in hand."""
    control, timers = world.sessions.control, world.sessions.timers
    if control.events > 0 and timers.keys[0] == control.key:
        pop(timers, control)
    else:
        control.came += 1
    look_ahead(world)


@compiled
def ended(world: World, request: int) -> None:
    """A request that was there has ended: those that come after it wait for one less, and are due when they wait for
    none."""
    world.control.unfinished -= 1
    world.control.present -= 1
    _let_follow(world, request)
    _leave(world, request)


@compiled
def failed(world: World, request: int) -> None:
    """It was cancelled or refused: that was its end to those that come after it, or they are cancelled as well, and so
    on."""
    if world.sessions.goes_on[request] != 0:
        ended(world, request)
        return
    world.control.unfinished -= 1
    world.control.present -= 1
    first = _cancel_behind(world, request, NONE)
    _leave(world, request)
    while first != NONE:
        request, first = first, int(world.jobs[first].next)
        first = _cancel_behind(world, request, first)
        _leave(world, request)


@compiled
def _let_follow(world: World, row: int) -> None:
    """Those behind a request, behind the end of a stage, or behind so many ends, wait for one less."""
    sessions, capped = world.sessions, len(world.sessions.from_s) > 0
    delayed = row < len(sessions.waits) + max(len(sessions.left) - 1, 0)
    first, last = sessions.behind_offsets[row], sessions.behind_offsets[row + 1]
    for at in range(first, last):
        following = int(sessions.behind[at])
        sessions.waits[following] -= 1
        due_s = world.control.now + (sessions.delay_s[following] if delayed else 0.0)
        if capped:
            due_s = sessions.from_s[following] = max(sessions.from_s[following], due_s)
        if sessions.waits[following] == 0:
            seen = world.seen.requests[following]
            seen.arrival_s = due_s
            world.arrivals[following] = seen.arrival_s + world.rules.submit_s
            push(sessions.timers, sessions.control, world.arrivals[following], key(SUBMIT, following))
    if last > first:
        look_ahead(world)


@compiled
def _leave(world: World, request: int) -> None:
    """One more has ended. One request less of its stage; when there is none the next begins."""
    sessions, control = world.sessions, world.sessions.control
    if len(sessions.from_s) > 0:
        _let_follow(world, len(sessions.waits) + max(len(sessions.left) - 1, 0) + int(control.ended))
        control.ended += 1
    if len(sessions.left) == 0:
        return
    sessions.left[sessions.stage[request]] -= 1
    while sessions.left[control.stage] == 0 and control.stage + 1 < len(sessions.left):
        _let_follow(world, len(sessions.waits) + int(control.stage))
        control.stage += 1


@compiled
def _cancel_behind(world: World, request: int, first: int) -> int:
    """Cancel those that come after a request and put them in front of the list that begins with `first`; returns who
    is first then. None of them was ever due."""
    sessions, jobs = world.sessions, world.jobs
    for row in range(sessions.behind_offsets[request], sessions.behind_offsets[request + 1]):
        following = int(sessions.behind[row])
        if jobs[following].state != CANCELLED:
            jobs[following].state, jobs[following].next, first = CANCELLED, first, following
            world.control.unfinished -= 1
    return first


@compiled
def watch_patience(world: World, request: int) -> None:
    """A request has come: it gives up after a while, if it ever does."""
    for patience_s in world.sessions.patience_s[request : request + 1]:  # none, if nobody ever does
        until = world.seen.requests[request].arrival_s + patience_s
        if until < float("inf"):
            push(world.sessions.timers, world.sessions.control, max(until, world.control.now), key(EXPIRE, request))
            look_ahead(world)
