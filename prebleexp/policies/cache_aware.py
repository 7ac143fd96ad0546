"""What the cache-aware routers of SGLang and vLLM have in common: their settings, and when loads are too far apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from prebleexp.checks import is_integer, is_number, require
from prebleexp.policies import stamped_tree
from prebleexp.policies.base import Policy, tuned
from prebleexp.policies.candidates import nth
from prebleexp.policies.choices import least_outstanding
from prebleexp.policies.stamped_tree import StampedTree
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup


@dataclass(frozen=True)
class CacheAware(Policy):
    """A policy that remembers a tree of the prompts it has routed, and does without it while loads are too far apart. A
    GPU that is lost, or back, is a worker that is removed, or added: it has nothing in the tree. (SGLang's gateway does
    so with workers that are deregistered; those that only fail their health check keep what they have.)

    Raises InvalidInput, naming the field, for shares outside 0 to 1 and numbers below those named.
    """

    reads_lengths: ClassVar[bool] = False

    cache_threshold: float = tuned(0.3, 0.0, 0.95)
    """share of the prompt from which on, itself excluded, a match is followed"""
    balance_abs_threshold: int = tuned(64, 1, 256, log=True)
    """loads are too far apart if the most and the least outstanding differ by more requests than this, …"""
    balance_rel_threshold: float = tuned(1.5, 1.0, 3.0)
    """… and by more than this factor"""

    def __post_init__(self) -> None:
        share, factor = self.cache_threshold, self.balance_rel_threshold
        require(is_number(share) and 0 <= share <= 1, "policy.cache_threshold", share, "a number from 0 to 1")
        require(is_number(factor) and factor >= 1, "policy.balance_rel_threshold", factor, "a number >= 1")
        for name, least in (("balance_abs_threshold", 0), ("eviction_interval_secs", 1), ("max_tree_size", 1)):
            value = getattr(self, name)
            require(is_integer(value, least), f"policy.{name}", value, f"an integer >= {least}")

    def start(self, setup: Setup) -> StampedTree:
        return stamped_tree.stamped_tree(setup)

    def lacks_room(self, mine: Any, view: View, request: int) -> int:
        return stamped_tree.lacks_room(mine, view, request)

    def with_more_room(self, mine: Any, view: View, request: int) -> StampedTree:
        return stamped_tree.with_more_room(mine, view, request)

    def changed(self, mine: Any, view: View, gpu: int, now: float) -> None:
        stamped_tree.forget_all(mine, gpu)


@compiled
def balance(view: View, abs_threshold: float, rel_threshold: float) -> tuple[int, bool]:
    """(The first candidate with the fewest outstanding requests, whether loads are too far apart)."""
    first, high = least_outstanding(view), 0
    for i in range(len(view.candidates)):
        high = max(high, view.sent[nth(view.candidates, len(view.sent), i)].outstanding)
    low = view.sent[first].outstanding
    beyond = np.float32(high) > np.float32(low) * np.float32(rel_threshold)
    return first, bool(high - low > abs_threshold and beyond)


@compiled
def follows(tokens: int, of: int, threshold: float) -> bool:
    """Whether a match of so many tokens of a prompt is enough. The routers compare in single precision."""
    return bool(np.float32(tokens) / np.float32(of) > np.float32(threshold))
