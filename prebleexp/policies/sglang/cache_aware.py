"""SGLang's cache-aware router."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prebleexp.checks import positive
from prebleexp.policies.cache_aware import CacheAware, balance, follows
from prebleexp.policies.candidates import is_candidate
from prebleexp.policies.stamped_tree import add, evict_each, home, stamp, take_up, tick
from prebleexp.sim.records import View

REFRESH = 8
"""of the clock's ticks, each such one refreshes what a match has found"""


@dataclass(frozen=True)
class SGLangCacheAware(CacheAware):
    """The GPU that was the first to get the prefix, if that is enough of the prompt; else, and while loads are too far
    apart, the first with the fewest outstanding requests. It alone is followed: where else the prefix went since does
    not count, until the first has been dropped from the tree for want of room.

    The default policy of sglang-router 0.3.2 (the wheel; its source: the gateway's of 2025-12-31 to 2026-01-13). Run
    and read: decisions, ties, stamps and evictions are as recorded. Its order of workers is random, but fixed while it
    runs; here it is that of the GPUs. Unproven: which of several takes the place of a home that was dropped (hash map
    order; here one of those that got it last, or that took up the row), and what becomes of a match whose GPU may not
    be taken (here: least outstanding).
    """

    eviction_interval_secs: int = 60
    """between two evictions from the tree, in simulated seconds"""
    max_tree_size: int = 1 << 26
    """characters of each GPU in the tree, beyond which its stalest leave at the next eviction"""
    characters_per_token: float = 4.0
    """of text, as which the tree counts a token"""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("policy.characters_per_token", self.characters_per_token)

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        evict_each(mine, self.eviction_interval_secs, now, self.max_tree_size / self.characters_per_token)
        gpu, imbalanced = balance(view, self.balance_abs_threshold, self.balance_rel_threshold)
        leaf, cut, shared, tokens = take_up(mine, view, request)
        if not imbalanced:
            epoch = tick(mine)
            if shared != 0:
                first = home(mine, shared)
                if epoch % REFRESH == 0:
                    stamp(mine, shared, first)
                enough = follows(tokens, view.requests[request].prompt_tokens, self.cache_threshold)
                if enough and is_candidate(view.candidates, first):
                    gpu = first
        add(mine, leaf, cut, gpu)
        return gpu
