"""What an autoscaler sees: how many GPUs it has, and what they tell of themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from prebleexp.sim.answers import WITHDRAWN
from prebleexp.sim.events import DECIDED, kind_of, subject_of
from prebleexp.sim.pools import PREFILL
from prebleexp.sim.records import NONE
from prebleexp.sim.states import State
from prebleexp.sim.types import Floats, Longs

OVER = (State.CANCELLED, State.EXPIRED, State.REFUSED)


class Fleet(NamedTuple):
    """The arrays have an element for each GPU that routers may send to, as of its last report."""

    gpus: int
    """that are up, as far as routers know, or are being started; not those that are drained"""
    in_flight: Longs
    """requests that routers have sent there and not heard the end of: always fresh"""
    queued: Longs
    """requests that wait there"""
    waiting_tokens: Longs
    """prompt tokens to compute before all have their first token"""
    kv_use: Floats
    """share of its KV memory that requests hold"""
    waiting: int
    """requests that have come and are not sent anywhere; with roles, for which none of these is chosen yet"""


def seen(world: Any, candidates: Any, gpus: int, waiting: int) -> Fleet:
    """What an autoscaler sees of these GPUs now."""
    reports, sent = world.seen.gpus[candidates], world.seen.sent.outstanding
    used = 1.0 - (reports.kv_free + reports.evictable) / reports.kv_tokens
    return Fleet(gpus, sent[candidates], reports.queued, reports.waiting_tokens, used, waiting)


def waiting(world: Any) -> tuple[int, int]:
    """Requests that have come and are not sent anywhere; and, with roles, those of which another GPU is still to be
    chosen, of whatever role is asked about second."""
    pools, sent, present = world.pools, world.seen.sent.outstanding, int(world.control.present)
    second = sum(row - row % pools.requests != pools.first for row in _asked_about(world))
    away = sent[pools.roles != PREFILL].sum() if pools.both_at_arrival else sent.sum()
    return present - int(away) - (second if pools.first else 0), second  # who waits for a prompt's GPU has one


def _asked_about(world: Any) -> Iterator[int]:
    """Rows that wait for routers, or are being decided about, of requests that have not given up."""
    jobs = world.jobs
    for one in world.lists:
        row = int(one.head)
        while row != NONE:
            if jobs[row].state not in OVER:
                yield row
            row = int(jobs[row].next)
    for one in world.events.keys[: world.control.events].tolist():
        row = subject_of(one)
        if kind_of(one) == DECIDED and jobs[row].state not in OVER and jobs[row].answer != WITHDRAWN:
            yield row
