"""What requests pass before the policy is asked (`gateway=` of `route`): who is let in, and who waits in which order.

The rules are those of a simulated gateway (docs/gateway.md), as far as a router knows what they are about.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from prebleexp.errors import InvalidInput
from prebleexp.gateway.base import OPEN, Gateway
from prebleexp.live.router.passing import Passage
from prebleexp.live.router.upstreams import Stage, Upstream

ORDERS = ("fcfs", "priority")
TAKEN = (
    *("order", "max_in_flight", "limit", "queue_limit", "ttl_queue_s", "bucket_tokens", "refill_tokens_s", "shed"),
    *("saturated_queue", "saturated_kv"),
)
WORDS = {
    "limit": "too many requests are in the system",
    "saturation": "all servers are saturated, and this request's priority is above 0",
    "queue": "too many requests wait",
    "bucket": "too many prompt tokens have come lately",
}
"""of each rule in the order in which they are looked at, why it refuses"""


def check(given: Gateway) -> None:
    """Raises InvalidInput for what a router cannot do."""
    usual = {one.name: getattr(OPEN, one.name) for one in fields(Gateway)}
    other = [name for name, value in usual.items() if name not in TAKEN and getattr(given, name) != value]
    if "replicas" in other:
        raise InvalidInput(
            f"gateway.replicas={given.replicas} is not valid with route, which is one of them: start so many"
        )
    if other:
        raise InvalidInput(
            f"gateway.{other[0]}= is of simulated gateways; route takes {', '.join(f'gateway.{one}' for one in TAKEN)}"
        )
    if given.order not in ORDERS:
        raise InvalidInput(f"gateway.order={given.order} is of simulated gateways; route has {' and '.join(ORDERS)}")


class Gate:
    """Of one router. Times are seconds from when it was made."""

    def __init__(self, given: Gateway, upstreams: Sequence[Upstream]) -> None:
        self._given, self._upstreams = given, upstreams
        self.waiting: list[Passage] = []
        """who is next comes first"""
        self._level, self._filled_s = float(given.bucket_tokens or 0), 0.0
        self._tickets = 0

    def refuses(self, tokens: int, priority: int, gpus: Any, now: float) -> str | None:
        """By which of `WORDS`; None: a request of so many prompt tokens is let in, and its tokens are taken. `gpus`:
        what servers have told (`seen.gpus`)."""
        given = self._given
        if given.limit is not None and self._present >= given.limit:
            return "limit"
        if given.shed and priority > 0 and self._saturation(gpus) >= 1.0:
            return "saturation"
        if given.queue_limit is not None and len(self.waiting) >= given.queue_limit:
            return "queue"
        return "bucket" if given.bucket_tokens is not None and not self._takes(tokens, now) else None

    def room(self, candidates: Sequence[int]) -> Sequence[int]:
        """Those that may get one more."""
        most = self._given.max_in_flight
        if most is None:
            return candidates
        return [one for one in candidates if len(self._upstreams[one].flying) < most]

    # ------------------------------------------------------------ the queue
    def joins(self, passage: Passage) -> None:
        """It waits; who was asked about and held is where it was."""
        if passage.place is None:
            first = passage.ticket.request.priority if self._given.order == "priority" else 0
            passage.place = first, self._tickets
            self._tickets += 1
        insort(self.waiting, passage, key=_place)

    def leaves(self, passage: Passage) -> bool:
        """It waits no more; False: it did not."""
        if passage.place is None:
            return False
        at = bisect_left(self.waiting, passage.place, key=_place)
        if at == len(self.waiting) or self.waiting[at] is not passage:
            return False
        del self.waiting[at]
        return True

    # ------------------------------------------------------------ what is known
    @property
    def _present(self) -> int:
        return len(self.waiting) + sum(len(one.flying) for one in self._upstreams)

    def _saturation(self, gpus: Any) -> float:
        """Mean over the servers that are up, as they told last: 1 is full."""
        up = [gpus[one.number] for one in self._upstreams if one.stage is Stage.UP]
        given = self._given
        full = [
            max(
                one.queued / given.saturated_queue,
                (1.0 - (one.kv_free + one.evictable) / one.kv_tokens) / given.saturated_kv,
            )
            for one in up
        ]
        return float(sum(full)) / max(1, len(full))

    def _takes(self, tokens: int, now: float) -> bool:
        """Whether the bucket has so many tokens; then they are taken."""
        given = self._given
        level = self._level + given.refill_tokens_s * (now - self._filled_s)
        self._level, self._filled_s = min(float(given.bucket_tokens or 0), level), now
        if self._level < tokens:
            return False
        self._level -= tokens
        return True


def _place(passage: Passage) -> tuple[int, int]:
    assert passage.place is not None
    return passage.place
