"""What routers hear of GPUs: of each request that ends there the books are closed, then the policy hears of it that was
asked, and then the request may be routed once more."""

from __future__ import annotations

import numpy as np

from prebleexp.sim.answers import PASSES, TURNED_AWAY
from prebleexp.sim.book import strike
from prebleexp.sim.compiled import compiled
from prebleexp.sim.moves import is_over, routed_anew
from prebleexp.sim.moves import join as join_moved
from prebleexp.sim.moves import leave as leave_moved
from prebleexp.sim.news import tell
from prebleexp.sim.notices import (
    CANCELLED,
    COPIED,
    DROPPED,
    FINISHED,
    LEFT,
    LOST,
    OF_CONTEXT,
    OF_GPU,
    OF_REQUEST,
    ROUTED,
    SUBJECTS,
)
from prebleexp.sim.plug import call_int, call_none
from prebleexp.sim.pools import asked_first, decodes, request_of
from prebleexp.sim.records import NONE, World
from prebleexp.sim.router_queue import join, router_of
from prebleexp.sim.router_records import COMMON
from prebleexp.sim.running_mean import learn
from prebleexp.sim.sessions import ended, failed
from prebleexp.sim.types import State

UNROUTED, GONE_WITH_IT, FAILED = int(State.UNROUTED), int(State.LOST), int(State.FAILED)


@compiled
def tell_of_loss(world: World, row: int) -> None:
    """A row is lost, or was given back: routers hear of it, and before of its request's other one, if that was sent
    somewhere and is nowhere."""
    requests, other = world.seen.requests, request_of(world, row)
    if other != row and world.jobs[other].state == UNROUTED and requests[other].gpu != NONE:
        tell(world, LOST, other, int(requests[other].gpu), 0)
    if requests[row].gpu == NONE:  # no router has it in its book
        is_lost(world, row)
    else:
        tell(world, LOST, row, int(requests[row].gpu), 0)


@compiled
def is_lost(world: World, row: int) -> None:
    """The router has heard of it: the request is routed again, from its beginning, or that was its end."""
    handoff = world.pools.handoff
    if call_int(handoff.is_lost, handoff.own, world, row, world.control.now) == 0:
        is_lost_alone(world, row, row)


@compiled
def is_lost_alone(world: World, row: int, request: int) -> bool:
    """Whether the request has another attempt, by the rules for lost ones; one that was given back has, whatever
    these are."""
    world.jobs[row].reached = 0
    routed_anew(world, row)
    if world.seen.requests[row].gpu == NONE:  # it waited for a router, who has told nobody
        call_none(world.gateway.hear, world.gateway.own, world, LOST, request)
    becomes, gateway = TURNED_AWAY, world.gateway
    if world.rules.retry or world.jobs[row].state not in (GONE_WITH_IT, FAILED):
        becomes = call_int(gateway.join, gateway.own, world, request, world.control.now)
    if becomes == TURNED_AWAY:
        failed(world, request)
        return False
    if becomes == PASSES:
        join(world, COMMON, asked_first(world, request))
    begin_anew(world, row)
    return True


@compiled
def begin_anew(world: World, row: int) -> None:
    job, seen = world.jobs[row], world.seen.requests[row]
    job.state, job.reached, seen.gpu = UNROUTED, 0, NONE
    seen.ttft_s = seen.latency_s = np.nan  # the latter a prompt's leg had that was computed


# ---------------------------------------------------------------- hearing
@compiled
def hear(world: World, kind: int, request: int) -> None:
    """The routers' books, before a policy hears of it."""
    call_none(world.books.age, world.books.own, world, world.control.now)
    if kind in (FINISHED, CANCELLED, LOST):
        handoff = world.pools.handoff
        strike(world, request)
        if call_int(handoff.goes_on, handoff.own, world, kind, request) != 0:
            return
        request = request_of(world, request)
        call_none(world.gateway.hear, world.gateway.own, world, kind, request)
        if kind == LOST:
            return
        if kind == CANCELLED:
            failed(world, request)
            return
        if world.rules.mean_window_s > 0:
            learn(world, request)
        ended(world, request)
    elif kind == LEFT:
        leave_moved(world, request)
    elif kind == ROUTED:
        join_moved(world, request)


@compiled
def hearers(world: World, kind: int, request: int, g: int) -> tuple[int, int]:
    """The first of the policies that hear of it, and who is behind the last: all, or the one that was asked."""
    routers = len(world.routers)
    if kind in (COPIED, DROPPED):  # at a place: hosts, disks, then the store for all
        gpus = len(world.servers)
        if g == 2 * gpus:
            return 0, len(world.policies)
        g %= gpus
    first = routers if decodes(world, g) else 0
    if SUBJECTS[kind] != OF_REQUEST:
        return first, first + routers
    first += router_of(world, request)
    return first, first + 1


@compiled
def is_silent(world: World, kind: int, request: int, routed: int) -> bool:
    """Whether a policy is not told of it: it believes that the request is over."""
    return SUBJECTS[kind] == OF_REQUEST and is_over(world, kind, request, routed)


@compiled
def go_on(world: World, kind: int, request: int) -> None:
    """The policy has heard of it, and may be asked about the request once more."""
    if kind == LOST:
        is_lost(world, request)
    elif kind == FINISHED:
        handoff = world.pools.handoff
        call_none(handoff.computed, handoff.own, world, request, world.control.now)


@compiled
def tell_policy(world: World) -> None:
    """Let compiled policies hear what has happened."""
    control = world.control
    for row in range(control.news):
        news = world.news[row]
        kind, request = int(news.kind), int(news.request)
        hear(world, kind, request)
        first, behind = hearers(world, kind, request, int(news.gpu))
        for k in range(first, behind):
            policy = world.policies[k]
            function = policy.hears[kind]
            if function == 0 or is_silent(world, kind, request, int(policy.hears[ROUTED] != 0)):
                continue
            if SUBJECTS[kind] == OF_CONTEXT:
                call_none(function, policy.own, policy.seen, request, news.gpu, news.tokens, control.now)
            else:
                of = news.gpu if SUBJECTS[kind] == OF_GPU else request
                call_none(function, policy.own, policy.seen, of, control.now)
        go_on(world, kind, request)
    control.news = 0
