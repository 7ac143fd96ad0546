"""What an autoscaler sees: how many GPUs it has, and what they tell of themselves."""

from __future__ import annotations

from typing import Any, NamedTuple

from prebleexp.sim.types import Floats, Longs


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
    """requests that have come and are not sent anywhere"""


def seen(world: Any, candidates: Any, gpus: int) -> Fleet:
    """What an autoscaler sees of these GPUs now."""
    reports, sent = world.seen.gpus[candidates], world.seen.sent.outstanding
    used = 1.0 - (reports.kv_free + reports.evictable) / reports.kv_tokens
    waiting = int(world.control.present - sent.sum())
    return Fleet(gpus, sent[candidates], reports.queued, reports.waiting_tokens, used, waiting)
