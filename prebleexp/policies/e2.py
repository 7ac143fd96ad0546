"""E2 as the papers describe it (spec: e2), with every term and threshold to be switched off alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from prebleexp.checks import flag, is_number, one_of, positive, require
from prebleexp.policies import below
from prebleexp.policies.base import Policy, tuned
from prebleexp.policies.e2_as_described import holdings, rules
from prebleexp.policies.e2_as_described.losing import forget_all
from prebleexp.policies.e2_as_described.memory import Memory, Settings, lacks_room, memory, with_more_room
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup

DECODES = ("none", "remaining", "total")


@dataclass(frozen=True)
class E2(Policy):
    """Exploit a cached prefix or explore, by a load in GPU seconds (PREBLE, section 3.2; Arango et al.).

    A request of which more than half is cached goes to the least loaded of the GPUs that hold the longest match, any
    other to the least loaded of all. The load is L + M + P: the window's work, what must be evicted, and what the
    request itself costs. PREBLE has lengths=mean, the length-aware version lengths=oracle or a prediction. The papers
    lose no GPUs: of one that is lost, or back, it is forgotten here what it held and which prefixes it serves.

    Raises InvalidInput, naming the field, for thresholds below 1 and shares that are none.
    """

    window_s: float = tuned(180.0, 10.0, 600.0, log=True)
    """H, over which requests count"""
    rebalance_threshold: float | None = tuned(1.5, 1.0, 5.0)
    """Th: from this ratio of the most to the least loaded GPU on, prefixes are redirected; None: never"""
    replicate_factor: float | None = tuned(2.0, 1.0, 5.0)
    """growth of a prefix's mean queueing delay, from the first to the second half of the window, from which on another
    GPU caches it as well; None: never"""
    decode_heavy_hit_ratio: float | None = tuned(0.7, 0.1, 1.0)
    """GPUs with at least this share of cached prompt tokens in the last 30 s are preferred when exploring; None: not"""
    eviction_cost: bool = True
    """whether the load has M"""
    request_cost: bool = True
    """whether it has P"""
    decode: str = "remaining"
    """output in L: what is still to come (remaining), of all the window's requests (total), or not at all (none)"""
    tiers: bool = False
    """whether KV in the tiers below the caches counts as held, at the time that it takes to load"""
    recompute: bool = False
    """sum the window anew for every load: slow, the same results (a check)"""

    def __post_init__(self) -> None:
        positive("policy.window_s", self.window_s, "a number of seconds > 0")
        for name in ("rebalance_threshold", "replicate_factor"):
            value = getattr(self, name)
            valid = value is None or (is_number(value) and value >= 1)
            require(valid, f"policy.{name}", value, "a number >= 1, or null: never")
        share = self.decode_heavy_hit_ratio
        valid = share is None or (is_number(share) and 0 < share <= 1)
        require(valid, "policy.decode_heavy_hit_ratio", share, "a number in (0, 1], or null: never")
        for name in ("eviction_cost", "request_cost", "tiers", "recompute"):
            flag(f"policy.{name}", getattr(self, name))
        one_of("policy.decode", self.decode, DECODES)

    def start(self, setup: Setup) -> Memory:
        limits = (self.window_s, self.rebalance_threshold, self.replicate_factor, self.decode_heavy_hit_ratio)
        window_s, *others = (math.inf if limit is None else float(limit) for limit in limits)
        threshold, replicate, hit_ratio = others
        switches = (self.eviction_cost, self.request_cost, self.recompute)
        settings = Settings(
            window_s, threshold, replicate, hit_ratio, *switches, DECODES.index(self.decode), setup.counted
        )
        return memory(setup, settings, self.tiers)

    def lacks_room(self, mine: Any, view: View, request: int) -> int:
        return lacks_room(mine, view, request)

    def with_more_room(self, mine: Any, view: View, request: int) -> Memory:
        return with_more_room(mine, view, request)

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return rules.route(mine, view, request, now)

    def finished(self, mine: Any, view: View, request: int, now: float) -> None:
        rules.finish(mine, view, request, now)

    def evicted(self, mine: Any, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        holdings.evicted(mine, view, request, gpu, tokens)

    def copied(self, mine: Any, view: View, request: int, place: int, tokens: int, now: float) -> None:
        below.copied(mine.below, view, request, place, tokens)

    def dropped(self, mine: Any, view: View, request: int, place: int, tokens: int, now: float) -> None:
        below.dropped(mine.below, view, request, place, tokens)

    def changed(self, mine: Any, view: View, gpu: int, now: float) -> None:
        forget_all(mine, gpu)
        below.forget_host(mine.below, gpu)
