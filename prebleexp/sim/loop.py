"""The event loop: who is next, and to whom it belongs. It knows kinds of events and nothing of routers or engines.

The loop is entered once a run, or goes on where it stopped when it needed something only Python can do: more memory, or
a plain-Python policy's answer. All its state is in `World`, and nothing is begun before there is room for it.
"""

from __future__ import annotations

from prebleexp.sim.changing import change
from prebleexp.sim.compiled import compiled
from prebleexp.sim.decoding import decode
from prebleexp.sim.entry import compiled_for
from prebleexp.sim.events import (
    ARRIVED,
    CHANGE,
    DECIDED,
    END,
    EXPIRE,
    PAIR,
    REACHED,
    REPORT,
    START,
    SUBMIT,
    comes_first,
    key,
    kind_of,
    pop,
    push,
    subject_of,
)
from prebleexp.sim.hearing import tell_policy
from prebleexp.sim.moves import ROOM
from prebleexp.sim.patience import GONE, expire, leave
from prebleexp.sim.plug import call_float, call_int, call_none
from prebleexp.sim.pulling import arrived
from prebleexp.sim.records import AWAKE, IDLE, NONE, STEPPING, World
from prebleexp.sim.router import DONE, NEEDS_NOTES, decided, reached, serve, submit
from prebleexp.sim.router_queue import release
from prebleexp.sim.router_records import COMMON
from prebleexp.sim.sessions import take_next
from prebleexp.sim.touching import touch, touch_all
from prebleexp.sim.world import EXAMPLE

# Why the loop returned, beside what `serve` answers
NEEDS_NODES, NEEDS_ROWS, HAS_NEWS, PAUSED, HAS_CHANGED, WAITS = range(6, 12)

WAITING_AN_EVENT = 64
"""requests that wait on a GPU whose step begins take about as long as an event: an engine may look at all of them"""

NODES_A_STEP = 6
"""cache nodes that a request takes at most while its GPU begins and ends a step: a match makes one, an insert two"""


@compiled
def _next_time(world: World) -> float:
    """Of the next event; infinite if there is none."""
    time = min(world.sessions.control.time, world.links.control.time)
    return min(time, world.events.times[0]) if world.control.events > 0 else time


@compiled
def _take_next(world: World) -> None:
    """Make the next event the one in hand."""
    control, events, due, links = world.control, world.events, world.sessions.control, world.links.control
    if links.time < due.time or (links.time == due.time and links.key < due.key):
        if comes_first(events, control, links.time, links.key):
            control.now, a_key = links.time, links.key
        else:
            control.now, a_key = pop(events, control)
    elif comes_first(events, control, due.time, due.key):
        control.now, a_key = due.time, due.key
        take_next(world)
    else:
        control.now, a_key = pop(events, control)
    control.kind, control.subject = kind_of(a_key), subject_of(a_key)


@compiled
def _begin(world: World, g: int) -> None:
    engine, server, control = world.engines[g], world.servers[g], world.control
    seconds = call_float(engine.begin, engine.own, world, g, control.now)
    touch(world, g)
    if seconds < 0:
        server.stage = IDLE
        return
    server.stage, server.begun_s, server.ends_s = STEPPING, control.now, control.now + seconds / server.speed
    push(world.events, control, server.ends_s, key(END, g))


@compiled
def _end(world: World, g: int) -> None:
    engine, control, server = world.engines[g], world.control, world.servers[g]
    if server.stage != STEPPING or server.ends_s != control.now:
        control.kind = NONE  # the step was lost with its GPU
        return
    server.stage = AWAKE
    leave(world, g)
    call_none(engine.end, engine.own, world, g, control.now)
    touch(world, g)
    if call_int(engine.lacks_room, engine.own, world, g, control.now) != 0:
        control.lacking = g


@compiled
def _goes_on(world: World, others: int) -> bool:
    """Whether anything is to happen, besides so many events that only come again and again: more may, where not all is
    known."""
    time = min(world.sessions.control.time, world.links.control.time)
    return time < float("inf") or world.control.events > others or world.control.until < float("inf")


@compiled
def _finish(world: World) -> int:
    control, now = world.control, world.control.now
    if control.unfinished > 0 and _next_time(world) < float("inf"):
        control.clock = world.rules.end_s
    for request in range(len(world.jobs)):
        g = world.seen.requests[request].gpu
        if g != NONE and world.jobs[request].state != GONE:  # whoever gave up had no token, and its GPU may be another
            engine = world.engines[g]
            call_none(engine.settle, engine.own, world, request, now)
    return DONE


@compiled_for(EXAMPLE)
def advance(world: World) -> int:
    """Run until the end, or until Python is needed; returns why."""
    control, rules, routers, books = world.control, world.rules, len(world.routers), world.books
    common = world.lists[COMMON]
    left = rules.pause
    while True:
        if call_int(books.lacks_room, books.own, world, control.news) != 0:
            return NEEDS_NOTES
        if control.news > 0:
            if world.told.compiled == 0:
                return HAS_NEWS
            tell_policy(world)
        if control.kind == END:
            release(world)
            if control.unfinished > 0:  # else all is over, and nobody is to hear of more
                asked = (common.head != NONE or control.offering != 0) and control.deciding < routers
                if control.lacking == NONE and not asked and _next_time(world) > control.now:
                    control.starting = control.subject  # nothing else happens at this instant
                else:
                    push(world.events, control, control.now, key(START, control.subject))
            control.kind = NONE
        elif control.kind == CHANGE:
            release(world)
            control.kind = NONE
        if control.lacking != NONE:
            return NEEDS_ROWS
        if world.cache.control.free_nodes < NODES_A_STEP * (control.most + 1):
            return NEEDS_NODES
        if (common.head != NONE or control.offering != 0) and control.deciding < routers:
            status = serve(world)
            if status != DONE:
                return status
            continue
        if control.starting != NONE:
            g, control.starting = control.starting, NONE
            _begin(world, g)
            left -= world.live[g].queued // WAITING_AN_EVENT
            continue
        if left <= 0:
            return PAUSED
        steps = decode(world, left)
        if steps > 0:
            left -= steps
            continue
        left -= 1
        time = _next_time(world)
        if time > control.until:
            return WAITS
        if control.unfinished == 0 or time == float("inf") or time > rules.end_s:
            return _finish(world)
        _take_next(world)
        if control.kind not in (REPORT, PAIR, CHANGE):  # to look at what is over is not to go on
            control.clock = control.now
        if control.kind == SUBMIT:
            submit(world, control.subject)
        elif control.kind == END:
            _end(world, control.subject)
        elif control.kind == START:
            if world.servers[control.subject].stage in (AWAKE, IDLE):  # else it was lost since, or woken before
                control.starting = control.subject
        elif control.kind == DECIDED:
            decided(world, control.subject)
        elif control.kind == EXPIRE:
            expire(world, control.subject)
            touch_all(world)
        elif control.kind == REACHED:
            reached(world, control.subject)
        elif control.kind == ARRIVED:
            arrived(world, control.subject)
        elif control.kind == CHANGE:
            change(world, control.subject)
            touch_all(world)
            return HAS_CHANGED
        elif control.kind == PAIR:  # let requests be moved; and again in a while, if anything is to happen
            call_none(world.moves.calls.pair, world.moves.calls.own, world, control.now)
            if len(world.moves.noted) - world.moves.noting[0] < ROOM * len(world.moves.gpus):
                left = 0  # so that Python takes away what was noted
            if _goes_on(world, int(rules.reports_s > 0)):
                push(world.events, control, control.now + world.moves.rules[0].interval_s, key(PAIR, 0))
        else:  # REPORT: routers see what the GPUs are; and again in a while, if anything is to happen
            for g in range(len(world.live)):
                world.seen.gpus[g] = world.live[g]
            world.seen.reports[0] += 1
            touch_all(world)
            if _goes_on(world, len(world.moves.rules)):
                push(world.events, control, control.now + rules.reports_s, key(REPORT, 0))
