"""Mooncake's choice of a prefill worker."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from prebleexp.checks import positive
from prebleexp.policies.alike import alike
from prebleexp.policies.base import REFUSE
from prebleexp.policies.prefix_index import PrefixIndex
from prebleexp.policies.research.prefills import NS, Prefilling, book, look_up, prefill_ns, prefills
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup


class Limited(NamedTuple):
    """`prefills.Prefills`, and …"""

    caches: PrefixIndex
    hits: Any
    queued: Any
    booked: Any
    most_ns: float
    """… the longest prediction that is not refused"""


@dataclass(frozen=True)
class Mooncake(Prefilling):
    """The GPU with the shortest predicted time to the first token: the predicted prefills of its requests that have
    none yet, and this one's; the first of equals. A request whose prediction exceeds an SLO, if one is set, is refused.

    Source: algorithm 1 of the Mooncake paper (FAST 2025; spec: routers, group B, section 4), from its text alone: the
    open-source Conductor has no such rule, and neither code nor recordings of it are public. Left out is what needs
    workers to move KV between them: fetching the best prefix, and choosing a decode worker with its bound on the time
    between tokens. The paper's fit of prefill times is not published: each GPU's cost model takes its place, which
    is our guess, and knows them better than a fit would.

    Raises InvalidInput for an SLO that is no number of seconds above 0."""

    ttft_slo_s: float | None = None
    """a request that is predicted to wait longer for its first token is refused; None: none is"""

    def __post_init__(self) -> None:
        if self.ttft_slo_s is not None:
            positive("policy.ttft_slo_s", self.ttft_slo_s, "a number of seconds > 0, or null: nothing is refused")

    def start(self, setup: Setup) -> Limited:
        return Limited(*prefills(setup), math.inf if self.ttft_slo_s is None else self.ttft_slo_s / NS)

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        look_up(mine, view, request)
        asked = best = view.candidates[0]
        own = prefill = prefill_ns(mine, view, request, asked)
        least = mine.queued[best] + own
        for g in view.candidates:
            if mine.hits[g] != mine.hits[asked] or not alike(view.costs[g], view.costs[asked]):
                asked, prefill = g, prefill_ns(mine, view, request, g)
            if mine.queued[g] + prefill < least:
                best, least, own = g, mine.queued[g] + prefill, prefill
        if least > mine.most_ns:
            return REFUSE
        book(mine, request, best, own)
        return best
