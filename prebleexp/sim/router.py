"""Routers: requests wait for them in order, one takes one up, asks its policy, and sends, holds or refuses it."""

from __future__ import annotations

from typing import Any

from prebleexp.sim.answers import HOLD, REFUSE, WITHDRAWN
from prebleexp.sim.book import enter
from prebleexp.sim.candidates import is_candidate
from prebleexp.sim.compiled import compiled
from prebleexp.sim.events import DECIDED, REACHED, key, push
from prebleexp.sim.news import tell
from prebleexp.sim.notices import CANCELLED, LOST
from prebleexp.sim.plug import call_int, call_none
from prebleexp.sim.pools import (
    RESERVE_FIRST,
    is_part,
    is_routed_again,
    leg_of,
    prefills,
    request_of,
)
from prebleexp.sim.pulling import leave_kv, let_go
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
EXPIRED, RESERVED = int(State.EXPIRED), int(State.RESERVED)


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
    gateway = world.gateway
    if world.rules.gated and call_int(gateway.arrive, gateway.own, world, request, control.now) == 0:
        _refuse(world, request)
        return
    watch_patience(world, request)
    leg = leg_of(world, request)
    if leg != request:
        world.seen.requests[leg].arrival_s = world.seen.requests[request].arrival_s
        world.arrivals[leg] = world.arrivals[request]
    if not world.rules.gated:
        join(world, COMMON, leg if world.pools.prompts_first else request)


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
        again = is_routed_again(world, request)
        second = again == world.pools.prompts_first  # the gateway has let it pass, as whoever was given back
        offered = rules.gated and routers > 1 and not second and world.jobs[request].state != KEPT
        if offered and control.stale != 0:
            control.stale = 0
            return NEEDS_CANDIDATES
        if world.jobs[request].state in (GONE, EXPIRED, REFUSED) or (
            offered and call_int(gateway.waits, gateway.own, world, request_of(world, request)) == 0
        ):
            common.head = world.jobs[request].next
            call_next(world)
            continue
        view = world.decode_seen if again else world.seen
        if len(view.candidates) == 0:  # nobody to ask about: all wait until a GPU comes up
            common.head = world.jobs[request].next
            if offered:
                call_int(gateway.leave, gateway.own, world, request_of(world, request), HOLD)
            else:
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
            if routers > 1:
                if call_int(books.lacks_room, books.own, world, 1) != 0:
                    return NEEDS_NOTES
                call_none(books.age, books.own, world, control.now)
            if policy.lacks_room != 0 and call_int(policy.lacks_room, policy.own, policy.seen, request) != 0:
                return NEEDS_ROOM
            if policy.compiled == 0:
                return NEEDS_ROUTE
            control.answer = call_int(policy.route, policy.own, policy.seen, request, control.now)
        control.answered = 0
        if not _decided(world, view.candidates, request, control.answer, r):
            return BAD_ROUTE
        if control.news > 0 and world.pools.both_at_arrival:  # a GPU is rid of who was refused
            return DONE
    return DONE


@compiled
def _take_offer(world: World) -> None:
    """Who waits in the gateway is asked about, if there is a GPU that may get it."""
    control, gateway, request = world.control, world.gateway, NONE
    prompts_first = world.pools.prompts_first
    view = world.seen if prompts_first else world.decode_seen
    if len(view.candidates) > 0:
        request = call_int(gateway.offer, gateway.own, world, control.now)
    if request == NONE:
        control.offering = 0
    else:
        join(world, COMMON, leg_of(world, request) if prompts_first else request)


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
    second = is_routed_again(world, request) == world.pools.prompts_first
    if world.rules.gated and not second and world.jobs[request].state != KEPT:
        if answer >= 0 and 0 < world.rules.max_in_flight <= world.seen.sent[answer].outstanding:
            answer = HOLD  # another was sent there meanwhile
        comes_again = call_int(gateway.leave, gateway.own, world, request_of(world, request), answer) != 0
        if comes_again or answer == HOLD:  # it has never left the gateway's queue
            return
    if answer == HOLD:
        join(world, HELD, request)
    elif answer == REFUSE:
        _refuse(world, request)
    else:
        _send(world, request, answer)


@compiled
def _refuse(world: World, request: int) -> None:
    kept = world.jobs[request].state == KEPT
    if kept and world.jobs[leg_of(world, request)].reached != 0:
        let_go(world, request)
    second = is_routed_again(world, request) and world.pools.prompts_first
    let_pass = second and world.seen.requests[leg_of(world, request)].gpu != NONE
    if world.rules.gated and (kept or let_pass):
        call_none(world.gateway.hear, world.gateway.own, world, CANCELLED, request)
    world.jobs[request].state = REFUSED
    if world.pools.both_at_arrival and not kept:
        other = leg_of(world, request) if request < world.pools.requests else request_of(world, request)
        if world.seen.requests[other].gpu != NONE:
            tell(world, CANCELLED, other, int(world.seen.requests[other].gpu), 0)
            if other < request:  # that is how the request ends
                return
    failed(world, request_of(world, request))


@compiled
def _send(world: World, request: int, g: int) -> None:
    world.seen.requests[request].gpu = g
    enter(world, request, 1)
    touch(world, g)
    if not is_part(world, request):
        _pass_frontend(world, request)
    elif not world.pools.prompts_first:
        _decide(world, request)
    elif request < world.pools.requests:  # both are chosen
        _pass_frontend(world, leg_of(world, request))
        if world.pools.protocol == RESERVE_FIRST and world.jobs[leg_of(world, request)].state != GONE_WITH_IT:
            _pass_frontend(world, request)
    else:
        world.arrivals[request_of(world, request)] = world.control.now
        join(world, COMMON, request_of(world, request))


@compiled
def _decide(world: World, row: int) -> None:
    """A part has its GPU; if that is the output's, whether the prompt is to have another is asked now."""
    decides, now = world.pools.decides, world.control.now
    if world.jobs[row].state == KEPT:  # its prompt is computed, and it was given back since
        reached(world, row)
        return
    if row >= world.pools.requests or call_int(decides.goes, decides.own, world, row, now) == 0:
        _pass_frontend(world, row)
        return
    world.arrivals[leg_of(world, row)] = now
    join(world, COMMON, leg_of(world, row))


@compiled
def _pass_frontend(world: World, request: int) -> None:
    control, seen = world.control, world.seen.requests[request]
    cost = world.seen.costs[seen.gpu]
    seconds = cost.frontend_s + cost.frontend_token_s * seen.prompt_tokens
    passed = is_routed_again(world, request) and world.pools.protocol != RESERVE_FIRST  # there, both are at once
    passed = passed and world.pools.prompts_first
    if seconds > 0 and not passed:
        world.jobs[request].state = QUEUED
        push(world.events, control, control.now + seconds, key(REACHED, request))
    else:
        reached(world, request)


@compiled
def reached(world: World, request: int) -> None:
    """A request joins the queue of the GPU to which it was sent."""
    control, job, g = world.control, world.jobs[request], int(world.seen.requests[request].gpu)
    if job.state == GONE:
        return
    touch(world, g)
    job.reached = 1
    if world.servers[g].stage == DOWN:
        lose(world, request)
        return
    held = world.pools.protocol == RESERVE_FIRST and prefills(world, g)
    if held and world.jobs[request_of(world, request)].state != RESERVED:
        job.state = QUEUED  # there is no room for it yet where its output is made
        return
    engine = world.engines[g]
    call_none(engine.submit, engine.own, world, request, control.now)
    if call_int(engine.lacks_room, engine.own, world, g, control.now) != 0:
        control.lacking = g
    wake(world, g)


# ---------------------------------------------------------------- losing
@compiled
def lose(world: World, request: int) -> None:
    """A request has reached a GPU that is down. If routers know that, they hear of it; else when they do."""
    gone = world.servers[world.seen.requests[request].gpu].gone
    if world.pools.protocol == RESERVE_FIRST and is_part(world, request):
        engine = world.engines[world.seen.requests[request].gpu]
        request = call_int(engine.sever, engine.own, world, request, world.control.now)
    elif is_routed_again(world, request):
        leave_kv(world, request)
    job, g = world.jobs[request], int(world.seen.requests[request].gpu)
    job.state = GONE_WITH_IT
    job.losses += 1
    if gone != 0:
        other = request_of(world, request)
        if world.pools.both_at_arrival and other != request and world.seen.requests[other].gpu != NONE:
            tell(world, LOST, other, int(world.seen.requests[other].gpu), 0)  # its GPU is rid of it
        tell(world, LOST, request, g, 0)
