"""KV goes from the GPU that computes a prompt to the one that makes its output, which reads it, or gets it.

Engines with pools have functions that call these, `arrive` and `let_go` (see `prebleexp.engines.base`).
"""

from __future__ import annotations

from prebleexp.sim.compiled import compiled
from prebleexp.sim.events import REACHED, comes_first, key, push, subject_of
from prebleexp.sim.links import HANDOFF, MIGRATION
from prebleexp.sim.plug import call_int, call_none
from prebleexp.sim.pools import CHUNKS, END, LAYERS, leg_of, request_of
from prebleexp.sim.records import NONE, World
from prebleexp.sim.tiers import gpu_of
from prebleexp.sim.types import State
from prebleexp.sim.waking import wake

RESERVED = int(State.RESERVED)


@compiled
def read(world: World, request: int, tokens: int) -> None:
    """A request's GPU has room for so many tokens of its prompt, and reads them from where they were computed."""
    job, requests = world.jobs[request], world.seen.requests
    job.state, job.transferred_tokens = RESERVED, tokens
    source, target = int(requests[leg_of(world, request)].gpu), int(requests[request].gpu)
    link, size, place = world.links.calls, tokens * world.pools.kv_bytes, int(world.links.places[HANDOFF])
    subject = int(world.links.first[HANDOFF]) + request
    call_none(link.ask, link.own, subject, place + source, place + target, size, world.control.now)


@compiled
def reserve(world: World, request: int) -> None:
    """A request's GPU has taken room for its prompt, which may be computed now."""
    leg, link = leg_of(world, request), world.links.calls
    world.jobs[request].state, world.jobs[request].transferred_tokens = RESERVED, 0
    source, target = int(world.seen.requests[leg].gpu), int(world.seen.requests[request].gpu)
    place, subject = int(world.links.places[HANDOFF]), int(world.links.first[HANDOFF]) + request
    call_none(link.open_for, link.own, subject, place + source, place + target, world.control.now)
    if world.jobs[leg].reached != 0:
        push(world.events, world.control, world.control.now, key(REACHED, leg))


@compiled
def computes(world: World, leg: int, tokens: int, seconds: float) -> None:
    """A step begins that computes a prompt up to so many tokens, and takes so long."""
    if world.pools.send == LAYERS:
        _send(world, leg, tokens, int(world.pools.layers), seconds)


@compiled
def computed(world: World, leg: int, tokens: int) -> None:
    """Such a step is over."""
    whole = tokens == _all_tokens(world, leg)
    if world.pools.send == CHUNKS or (world.pools.send == END and whole):
        _send(world, leg, tokens, 1, 0.0)


@compiled
def _all_tokens(world: World, leg: int) -> int:
    """Of a prompt, and of what was shown before, if that is computed as well."""
    return int(world.seen.requests[leg].prompt_tokens + world.jobs[request_of(world, leg)].shown)


@compiled
def _send(world: World, leg: int, tokens: int, parts: int, seconds: float) -> None:
    """All that was not sent yet of these tokens: what was cached of them goes with the first."""
    request, link = request_of(world, leg), world.links.calls
    size = (tokens - world.jobs[request].transferred_tokens) * world.pools.kv_bytes
    world.jobs[request].transferred_tokens = tokens
    last = int(tokens == _all_tokens(world, leg))
    subject = int(world.links.first[HANDOFF]) + request
    call_none(link.more, link.own, subject, size, parts, seconds, last, world.control.now)


@compiled
def arrived(world: World, subject: int) -> None:
    """The event of a transfer: if all of it is there, whoever asked for it goes on."""
    control, link, first = world.control, world.links.calls, world.links.first
    while call_int(link.happens, link.own, subject, control.now) == 0:
        if not _is_next(world):
            return
        control.now = control.clock = world.links.control.time
        subject = subject_of(world.links.control.key)
    if subject < first[MIGRATION]:
        _landed(world, subject)
        return
    if subject < first[HANDOFF]:
        _copied(world, int(subject - first[MIGRATION]))
        return
    request = int(subject - first[HANDOFF])  # its prompt's KV is there: both GPUs may go on
    g = int(world.seen.requests[request].gpu)
    engine = world.engines[g]
    call_none(engine.arrive, engine.own, world, request, control.now)
    if call_int(engine.lacks_room, engine.own, world, g, control.now) != 0:
        control.lacking = g
    let_go(world, request)


@compiled
def _is_next(world: World) -> bool:
    """Whether a transfer's event is next, which may happen at once: of bytes that have moved nobody is to hear."""
    links, time = world.links.control, world.links.control.time
    if world.rules.watched or time == float("inf") or time > world.rules.end_s or time >= world.sessions.control.time:
        return False
    return comes_first(world.events, world.control, time, links.key)


@compiled
def _landed(world: World, subject: int) -> None:
    """KV has come from a tier, or is there."""
    control, g = world.control, gpu_of(world, subject)
    engine = world.engines[g]
    call_none(engine.landed, engine.own, world, subject, control.now)
    if call_int(engine.lacks_room, engine.own, world, g, control.now) != 0:
        control.lacking = g


@compiled
def _copied(world: World, g: int) -> None:
    """A part of what is moved from a GPU is where it goes, which may need more room for it now."""
    control, source, target = world.control, world.engines[g], int(world.moves.gpus[g].target)
    call_none(source.copied, source.own, world, g, control.now)
    engine = world.engines[target]
    if call_int(engine.lacks_room, engine.own, world, target, control.now) != 0:
        control.lacking = target


@compiled
def leave_kv(world: World, request: int) -> None:
    """A request that has not got its KV will not get it any more: what is under way ends here, and whoever waits behind
    it may go on."""
    g = int(world.seen.requests[request].gpu)
    send_no_more(world, request)
    if g != NONE:
        wake(world, g)
    if world.jobs[leg_of(world, request)].reached != 0:
        let_go(world, request)


@compiled
def send_no_more(world: World, request: int) -> None:
    """What is under way of a prompt's KV, if it is, ends here."""
    if world.jobs[request].state == RESERVED:
        link = world.links.calls
        call_none(link.drop, link.own, int(world.links.first[HANDOFF]) + request, world.control.now)


@compiled
def let_go(world: World, request: int) -> None:
    """Nobody needs the KV any more that is held for a request where its prompt was computed."""
    leg = leg_of(world, request)
    g = int(world.seen.requests[leg].gpu)
    engine = world.engines[g]
    call_none(engine.let_go, engine.own, world, leg, world.control.now)
