"""What routers hear of GPUs: of each request that ends there the books are closed, then the policy hears of it that was
asked, and then the request may be routed once more."""

from __future__ import annotations

import numpy as np

from prebleexp.sim.book import strike
from prebleexp.sim.compiled import compiled
from prebleexp.sim.events import REACHED, key, push
from prebleexp.sim.moves import is_over, routed_anew
from prebleexp.sim.moves import join as join_moved
from prebleexp.sim.moves import leave as leave_moved
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
from prebleexp.sim.pools import PULL, RESERVE_FIRST, decodes, leg_of, prefills, request_of
from prebleexp.sim.pulling import let_go
from prebleexp.sim.records import NONE, World
from prebleexp.sim.router_queue import join, router_of
from prebleexp.sim.router_records import COMMON
from prebleexp.sim.running_mean import learn
from prebleexp.sim.sessions import ended, failed
from prebleexp.sim.types import State

UNROUTED, KEPT, GONE_WITH_IT = int(State.UNROUTED), int(State.HELD), int(State.LOST)


@compiled
def is_lost(world: World, row: int) -> None:
    """The router has heard that a request is lost: it is routed again, from its beginning, or that was its end. One
    that was given back is not lost, and routed again whatever the rules."""
    control, job, request = world.control, world.jobs[row], request_of(world, row)
    first = leg_of(world, request)
    if first != row and job.state == UNROUTED:  # its prompt is lost, and its GPU is rid of it
        world.seen.requests[row].gpu = NONE
        return
    job.reached = 0
    routed_anew(world, row)
    if first != row and job.state == KEPT:  # it was given back; its prompt's KV is there still
        world.seen.requests[row].gpu = NONE
        world.arrivals[row] = control.now
        join(world, COMMON, row)
        return
    if world.rules.gated and world.seen.requests[row].gpu == NONE:  # it waited for a router, who has told nobody
        call_none(world.gateway.hear, world.gateway.own, world, LOST, request)
    routed_anew(world, first)
    asked = first if world.pools.prompts_first else request
    if (world.rules.retry or job.state != GONE_WITH_IT) and _joins_again(world, asked):
        _begin_anew(world, row)
        whole, made = world.jobs[first], world.jobs[request]
        if whole.shown > made.shown and first == row:  # it was served as a whole
            made.ttft_s = whole.ttft_s if np.isnan(made.ttft_s) else made.ttft_s
            made.latency_s, made.output_seen, made.shown = whole.latency_s, whole.output_seen, whole.shown
            world.seen.requests[request].output_seen = whole.output_seen
        if first != row:  # nobody saw what its prompt's leg brought
            leg = world.jobs[first]
            leg.ttft_s = leg.latency_s = leg.finish_s = np.nan
            leg.output_seen = leg.shown = job.shown
            if world.pools.protocol == PULL and world.seen.requests[first].gpu != NONE:
                let_go(world, request)
            _begin_anew(world, first)
    else:
        failed(world, request)


@compiled
def _begin_anew(world: World, row: int) -> None:
    job, seen = world.jobs[row], world.seen.requests[row]
    job.state, job.reached, seen.gpu = UNROUTED, 0, NONE
    seen.ttft_s = seen.latency_s = np.nan  # the latter a prompt's leg had that was computed


@compiled
def _joins_again(world: World, request: int) -> bool:
    """Whether a lost request has another attempt."""
    gateway = world.gateway
    if world.rules.gated:
        return call_int(gateway.join, gateway.own, world, request_of(world, request), world.control.now) != 0
    join(world, COMMON, request)
    return True


# ---------------------------------------------------------------- hearing
@compiled
def hear(world: World, kind: int, request: int) -> None:
    """The routers' books, before a policy hears of it."""
    if len(world.routers) > 1:
        call_none(world.books.age, world.books.own, world, world.control.now)
    if kind in (FINISHED, CANCELLED, LOST):
        g = int(world.seen.requests[request].gpu)
        strike(world, request)
        part = prefills(world, g) and (kind == FINISHED or world.pools.both_at_arrival)
        given_back = kind == LOST and world.jobs[request].state == KEPT
        if world.rules.gated and not part and not given_back:
            call_none(world.gateway.hear, world.gateway.own, world, kind, request_of(world, request))
        if kind == LOST or part:
            return
        request = request_of(world, request)
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
    if routers == 1 or SUBJECTS[kind] != OF_REQUEST:
        return first, first + routers
    first += router_of(world, request)
    return first, first + 1


@compiled
def is_silent(world: World, kind: int, request: int, routed: int) -> bool:
    """Whether a policy is not told of it: it believes that the request is over."""
    return SUBJECTS[kind] == OF_REQUEST and is_over(world, kind, request, routed)


@compiled
def go_on(world: World, kind: int, request: int) -> None:
    """The policy has heard of it: it may be asked about the request once more. Where a prompt is computed, its KV is
    held, and who makes the output is asked for or, if it was chosen before, told of it."""
    if kind == LOST:
        is_lost(world, request)
    if kind != FINISHED or not prefills(world, int(world.seen.requests[request].gpu)):
        return
    if world.pools.protocol == RESERVE_FIRST:
        return  # it is on its way
    whole = request_of(world, request)
    world.jobs[whole].state = KEPT
    if world.pools.both_at_arrival:
        push(world.events, world.control, world.control.now, key(REACHED, whole))
        return
    world.arrivals[whole] = world.control.now
    join(world, COMMON, whole)


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
