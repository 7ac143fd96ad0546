"""Routers: requests wait for them in order, one takes one up, asks its policy, and sends, holds or refuses it."""

from __future__ import annotations

from typing import Any

from prebleexp.sim.answers import HOLD, PASSES, REFUSE, TURNED_AWAY, WITHDRAWN
from prebleexp.sim.book import enter
from prebleexp.sim.candidates import is_candidate
from prebleexp.sim.compiled import compiled
from prebleexp.sim.events import DECIDED, REACHED, key, push
from prebleexp.sim.hearing import tell_of_loss
from prebleexp.sim.plug import call_int, call_none
from prebleexp.sim.pools import (
    asked_first,
    is_routed_again,
    leg_of,
    request_of,
)
from prebleexp.sim.records import DOWN, NO_OVERHEAD, NONE, SERIAL, World
from prebleexp.sim.router_queue import call_next, join, release, router_of
from prebleexp.sim.router_records import COMMON, HELD, OWN
from prebleexp.sim.running_mean import expect
from prebleexp.sim.sessions import failed, watch_patience
from prebleexp.sim.touching import touch
from prebleexp.sim.types import State
from prebleexp.sim.waking import wake

UNROUTED, QUEUED, REFUSED = int(State.UNROUTED), int(State.QUEUED), int(State.REFUSED)
GONE, GONE_WITH_IT, KEPT = int(State.CANCELLED), int(State.LOST), int(State.HELD)
EXPIRED = int(State.EXPIRED)


DONE, NEEDS_ROUTE, NEEDS_ROOM, BAD_ROUTE, NEEDS_CANDIDATES, NEEDS_NOTES = range(6)


# ---------------------------------------------------------------- the queue
@compiled
def submit(world: World, request: int) -> None:
    """A request reaches the router: it is refused, waits for the gateway or for a decision, or is routed now."""
    control, job = world.control, world.jobs[request]
    job.number = control.arrived
    control.arrived += 1
    control.present += 1
    if job.answer == REFUSE:  # no GPU could ever serve it
        _refuse(world, request)
        return
    becomes = call_int(world.gateway.arrive, world.gateway.own, world, request, control.now)
    if becomes == TURNED_AWAY:
        _refuse(world, request)
        return
    watch_patience(world, request)
    leg = leg_of(world, request)
    if leg != request:
        world.seen.requests[leg].arrival_s = world.seen.requests[request].arrival_s
        world.arrivals[leg] = world.arrivals[request]
    if becomes == PASSES:
        join(world, COMMON, asked_first(world, request))


# ---------------------------------------------------------------- asking
@compiled
def serve(world: World) -> int:
    """Decide on the requests that wait for routers, until none is left, all are busy, or Python is needed."""
    control, rules, routers, books = world.control, world.rules, len(world.routers), world.books
    common, gateway = world.lists[COMMON], world.gateway
    while control.deciding < routers and control.lacking == NONE:
        request = int(common.head)
        if request == NONE:
            if control.offering == 0:
                break
            if control.stale != 0:
                control.stale = 0
                return NEEDS_CANDIDATES
            _take_offer(world)
            continue
        again, passed = is_routed_again(world, request), _has_passed(world, request)
        if not passed and control.stale != 0:
            control.stale = 0
            return NEEDS_CANDIDATES
        if world.jobs[request].state in (GONE, EXPIRED, REFUSED) or (
            not passed and call_int(gateway.misses, gateway.own, world, request_of(world, request)) != 0
        ):
            common.head = world.jobs[request].next
            call_next(world)
            continue
        view = world.decode_seen if again else world.seen
        if len(view.candidates) == 0:  # nobody to ask about: all wait until a GPU comes up
            common.head = world.jobs[request].next
            if passed or call_int(gateway.leave, gateway.own, world, request_of(world, request), HOLD) == 0:
                join(world, HELD, request)
            call_next(world)
            continue
        r = router_of(world, request)
        if world.routers[r].deciding != 0:
            common.head = world.jobs[request].next
            join(world, OWN + r, request)
            continue
        policy = world.policies[r + routers if again else r]
        if control.request == NONE:
            control.request = request
            if rules.mean_window_s > 0 and (request < world.pools.requests or world.pools.whole):
                expect(world, request)
        if control.answered == 0:
            if call_int(books.lacks_room, books.own, world, 1) != 0:
                return NEEDS_NOTES
            call_none(books.age, books.own, world, control.now)
            if call_int(policy.lacks_room, policy.own, policy.seen, request) != 0:
                return NEEDS_ROOM
            if policy.compiled == 0:
                return NEEDS_ROUTE
            control.answer = call_int(policy.route, policy.own, policy.seen, request, control.now)
        control.answered = 0
        if not _decided(world, view.candidates, request, control.answer, r):
            return BAD_ROUTE
        if control.news > 0:  # a GPU is rid of who was refused
            return DONE
    return DONE


@compiled
def _take_offer(world: World) -> None:
    """Who waits in the gateway is asked about, if there is a GPU that may get it."""
    control, gateway, request = world.control, world.gateway, NONE
    view = world.decode_seen if is_routed_again(world, asked_first(world, 0)) else world.seen
    if len(view.candidates) > 0:
        request = call_int(gateway.offer, gateway.own, world, control.now)
    if request == NONE:
        control.offering = 0
    else:
        join(world, COMMON, asked_first(world, request))


@compiled
def _has_passed(world: World, row: int) -> bool:
    """Whether the gateway knows no more of it: one of its GPUs is chosen, or it was given back by one."""
    return row != asked_first(world, request_of(world, row)) or bool(world.jobs[row].state == KEPT)


@compiled
def _decided(world: World, candidates: Any, request: int, answer: int, r: int) -> bool:
    """What becomes of a request, now or when the router's decision has taken its time; False if there is no such
    answer."""
    control, rules, job = world.control, world.rules, world.jobs[request]
    if answer not in (HOLD, REFUSE) and not is_candidate(candidates, answer):
        return False
    world.lists[COMMON].head, control.request = job.next, NONE
    if rules.overhead == NO_OVERHEAD:
        _carry_out(world, request, answer)
        return True
    seconds = rules.decision_s
    for unit in range(4):
        seconds += rules.unit_s[unit] * world.seen.work[unit]
        world.seen.work[unit] = 0
    waited = control.now - world.arrivals[request]
    job.overhead_s = rules.prediction_s + seconds
    if rules.overhead == SERIAL:
        world.routers[r].deciding, world.routers[r].missed, job.answer = 1, 0, answer
        control.deciding += 1
        control.freed = NONE
        push(world.events, control, control.now + seconds, key(DECIDED, request))
    else:
        _carry_out(world, request, answer)
    job.router_wait_s = waited
    return True


@compiled
def decided(world: World, request: int) -> None:
    """The decision has taken its time."""
    r = router_of(world, request)
    world.routers[r].deciding = 0
    world.control.deciding -= 1
    if world.jobs[request].state not in (GONE, EXPIRED) and world.jobs[request].answer != WITHDRAWN:
        _carry_out(world, request, world.jobs[request].answer)
    if world.routers[r].missed != 0:
        release(world)
    world.control.freed = r
    call_next(world)


@compiled
def _carry_out(world: World, request: int, answer: int) -> None:
    gateway = world.gateway
    if not _has_passed(world, request):
        if answer >= 0 and 0 < world.rules.max_in_flight <= world.seen.sent[answer].outstanding:
            answer = HOLD  # another was sent there meanwhile
        if call_int(gateway.leave, gateway.own, world, request_of(world, request), answer) != 0:
            return
    if answer == HOLD:
        join(world, HELD, request)
    elif answer == REFUSE:
        _refuse(world, request)
    else:
        _send(world, request, answer)


@compiled
def _refuse(world: World, row: int) -> None:
    handoff = world.pools.handoff
    ends_elsewhere = call_int(handoff.refused, handoff.own, world, row, world.control.now)
    world.jobs[row].state = REFUSED
    if ends_elsewhere == 0:
        failed(world, request_of(world, row))


@compiled
def _send(world: World, row: int, g: int) -> None:
    world.seen.requests[row].gpu = g
    enter(world, row, 1)
    touch(world, g)
    handoff = world.pools.handoff
    if call_int(handoff.placed, handoff.own, world, row, world.control.now) == 0:
        pass_frontend(world, row)


@compiled
def pass_frontend(world: World, row: int) -> None:
    """It goes to its GPU, and joins the queue there when it has passed the frontend."""
    control, seen = world.control, world.seen.requests[row]
    cost = world.seen.costs[seen.gpu]
    seconds = cost.frontend_s + cost.frontend_token_s * seen.prompt_tokens
    if seconds > 0:
        world.jobs[row].state = QUEUED
        push(world.events, control, control.now + seconds, key(REACHED, row))
    else:
        reached(world, row)


@compiled
def reached(world: World, request: int) -> None:
    """A request joins the queue of the GPU to which it was sent."""
    control, job, g = world.control, world.jobs[request], int(world.seen.requests[request].gpu)
    if job.state == GONE:
        return
    touch(world, g)
    job.reached = 1
    handoff = world.pools.handoff
    if world.servers[g].stage == DOWN:
        if call_int(handoff.lost_on_the_way, handoff.own, world, request, control.now) == 0:
            lose(world, request, world.servers[g].gone != 0)
        return
    if call_int(handoff.waits, handoff.own, world, request, control.now) != 0:
        job.state = QUEUED
        return
    engine = world.engines[g]
    call_none(engine.submit, engine.own, world, request, control.now)
    if call_int(engine.lacks_room, engine.own, world, g, control.now) != 0:
        control.lacking = g
    wake(world, g)


@compiled
def lose(world: World, row: int, is_known: bool) -> None:
    """It has reached a GPU that is down. If routers know that, they hear of it; else when they do."""
    job = world.jobs[row]
    job.state = GONE_WITH_IT
    job.losses += 1
    if is_known:
        tell_of_loss(world, row)
