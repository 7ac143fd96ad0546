"""Least prefill work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prebleexp.policies.candidates import MOST, nth
from prebleexp.policies.research.prefills import Prefilling, book, look_up, missing
from prebleexp.sim.records import View


@dataclass(frozen=True)
class LeastPrefillWork(Prefilling):
    """The GPU with the fewest prompt tokens to compute before this request's first token, its own uncached ones among
    them; of equals the one with the fewest unfinished requests, then the first.

    Source: a public study of May 2026, which leaves the number of requests out of LMetric's product (spec: routers,
    group B, section 5); the cache-aware mode of Llumnix's router of 2026 has the same sum, with other ties. Only the
    rule was read, there are no recordings of it. Tokens and requests are counted as in `lmetric`."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        look_up(mine, view, request)
        candidates, sent = view.candidates, view.sent
        best, least = candidates[0], MOST
        for i in range(len(candidates)):
            g = nth(candidates, len(sent), i)
            work = mine.queued[g] + missing(mine, view, request, g)
            if work < least or (work == least and sent[g].outstanding < sent[best].outstanding):
                best, least = g, work
        book(mine, request, best, missing(mine, view, request, best))
        return best
