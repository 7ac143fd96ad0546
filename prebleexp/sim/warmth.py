"""What is served before time 0, and what is there when a run begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from prebleexp.sim.arrays import Ints, Longs

if TYPE_CHECKING:
    from prebleexp.sim.types import Workload


@dataclass(frozen=True)
class Before:
    """Requests that are served, and end, before a run begins, so that caches and whatever else remembers something are
    as these leave them. Segment ids mean what they mean in the run's own workload."""

    workload: Workload
    """w requests; their arrivals count from when the first may come"""
    gpus: Ints | None = None
    """(w,) where each is sent, whatever the router would do; -1: where the router sends it; None: all of them are"""
    one_by_one: bool = False
    """whether each comes when the one before it has ended and nothing else happens any more, whatever its arrival"""


class Begun(NamedTuple):
    """What was there when a run began; the rest of its outcome counts from then."""

    at_s: float
    """seconds from when the first of those before could come, whole ones"""
    requests: int
    """that were to be served before"""
    finished: int
    """of these"""
    kv_share: float
    """of the GPUs' KV memory that is in use, mean of those that may be sent to"""
    gpu_requests: Longs
    """(GPUs,) of those before, where routers sent them"""
