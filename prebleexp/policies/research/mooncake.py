"""Mooncake's choice of a prefill worker."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from prebleexp.checks import is_number, positive, require
from prebleexp.policies.alike import alike
from prebleexp.policies.base import REFUSE
from prebleexp.policies.prefix_index import PrefixIndex, store
from prebleexp.policies.research.prefills import NS, Prefilling, book, look_up, prefill_ns, prefills
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import prefill_s
from prebleexp.sim.records import View
from prebleexp.sim.tiers import PEERS, SHARED
from prebleexp.sim.types import Setup


class Limited(NamedTuple):
    """What Mooncake's scheduler remembers: `prefills.Prefills`, and from which predicted TTFT on it rejects, ns."""

    caches: PrefixIndex
    hits: Any
    queued: Any
    booked: Any
    most_ns: float
    """… the longest prediction that is not refused, …"""
    fetches: int
    """… whether what a GPU lacks may be fetched, …"""
    stores: int
    """… from a store: it is behind the last GPU in `caches` and `hits` then; else from other GPUs, …"""
    threshold: float
    """… so many times what a GPU has, or more, there must be, …"""
    load_s: float
    """… what a load takes, …"""
    token_s: float
    """… and a token of it"""


@compiled
def _most(mine: Any) -> int:
    """Tokens of the prompt in hand that may be fetched, at most."""
    most = 0
    if mine.fetches:
        for hit in mine.hits:
            most = max(most, hit)
    return int(most)


@compiled
def _ready_ns(mine: Any, view: View, request: int, gpu: int, most: int) -> int:
    """How long the GPU would take for what it lacks, alone: to fetch it from where most is, or else to compute it."""
    hit = int(mine.hits[gpu])
    if most <= hit or most < mine.threshold * hit:
        return prefill_ns(mine, view, request, gpu)
    prompt = int(view.requests[request].prompt_tokens)
    load_s = mine.load_s + (most - hit) * mine.token_s
    return round((load_s + prefill_s(view.costs[gpu], max(1, prompt - most), prompt)) / NS)


@dataclass(frozen=True)
class Mooncake(Prefilling):
    """The GPU with the shortest predicted time to the first token: the predicted prefills of its requests that have
    none yet, and this one's; the first of equals. A request whose prediction exceeds an SLO, if one is set, is refused.

    Source: algorithm 1 of the Mooncake paper (FAST 2025; spec: routers, group B, section 4), from its text alone: the
    open-source Conductor has no such rule, and neither code nor recordings of it are public. Fetched is from the GPU
    that has most (`cluster.peers`), or from a store that all share (`cluster.shared`), if there is one, where
    `balancing_threshold` says so: if that has so many times as many tokens as a GPU, or more, the time to load the
    others is predicted, alone on its link, and that of the rest. The store is believed to have all that any GPU ever
    had. Left out is the choice of a decode worker with its bound on the time between tokens.
    The paper's fit of prefill times is not published: each GPU's cost model takes its place, which is our guess, and
    knows them better than a fit would. Nor is the threshold.

    Raises InvalidInput for an SLO that is no number of seconds above 0, and a threshold below 1."""

    ttft_slo_s: float | None = None
    """a request that is predicted to wait longer for its first token is refused; None: none is"""
    balancing_threshold: float | None = None
    """1.0: whatever is elsewhere is fetched; None: nothing is, as the router knows"""

    def __post_init__(self) -> None:
        if self.ttft_slo_s is not None:
            positive("policy.ttft_slo_s", self.ttft_slo_s, "a number of seconds > 0, or null: nothing is refused")
        least = self.balancing_threshold
        valid = least is None or (is_number(least) and least >= 1)
        require(valid, "policy.balancing_threshold", least, "a number >= 1, or null: the router knows of no fetching")

    def start(self, setup: Setup) -> Limited:
        may = self.balancing_threshold is not None
        stores = may and setup.loads_s[SHARED][0] < math.inf
        load_s, token_s = setup.loads_s[SHARED if stores else PEERS]
        known = prefills(replace(setup, gpus=setup.gpus + 1) if stores else setup)
        most_ns = math.inf if self.ttft_slo_s is None else self.ttft_slo_s / NS
        fetches = (int(may and load_s < math.inf), int(stores))
        return Limited(*known, most_ns, *fetches, float(self.balancing_threshold or 1), load_s, token_s)

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        look_up(mine, view, request)
        asked = best = view.candidates[0]
        most = _most(mine)
        own = prefill = _ready_ns(mine, view, request, asked, most)
        least = mine.queued[best] + own
        for g in view.candidates:
            if mine.hits[g] != mine.hits[asked] or not alike(view.costs[g], view.costs[asked]):
                asked, prefill = g, _ready_ns(mine, view, request, g, most)
            if mine.queued[g] + prefill < least:
                best, least, own = g, mine.queued[g] + prefill, prefill
        if least > mine.most_ns:
            return REFUSE
        book(mine, request, best, own)
        return best

    def stored(self, mine: Any, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        store(mine.caches, view, request, gpu, tokens)
        if mine.stores:
            store(mine.caches, view, request, len(mine.hits) - 1, tokens)
