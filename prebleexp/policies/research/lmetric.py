"""LMetric: waiting prefills times requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prebleexp.policies.candidates import MOST, nth
from prebleexp.policies.research.prefills import Prefilling, book, look_up, missing
from prebleexp.sim.records import View


@dataclass(frozen=True)
class LMetric(Prefilling):
    """The GPU with the least product of prompt tokens to compute before this request's first token, its own uncached
    ones among them, and of requests there, with this one; the first of equals. It has no setting.

    Source: Zhang et al., OSDI 2026 (arXiv 2603.15202), and the authors' router, blitz-router 75090e01 (spec: routers,
    group B, section 5): the rule was read, there are no recordings of it. The authors' router adds a request at once to
    both factors and replaces both by what the engine reports after each of its steps. Here requests there are those
    that were sent and are not finished, which is what such a report says; tokens are those that were uncached at
    routing, until the first token comes, so that a prompt part-way through its chunks still counts whole. Ports for
    SGLang, llm-d and Dynamo leave out or change a factor; this is none of them."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        look_up(mine, view, request)
        candidates, sent = view.candidates, view.sent
        best, least = candidates[0], MOST
        for i in range(len(candidates)):
            g = nth(candidates, len(sent), i)
            score = (mine.queued[g] + missing(mine, view, request, g)) * (sent[g].outstanding + 1)
            if score < least:
                best, least = g, score
        book(mine, request, best, missing(mine, view, request, best))
        return best
