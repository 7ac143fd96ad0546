"""SGLang's cache-aware router."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from prebleexp.checks import positive
from prebleexp.policies import stamped_tree
from prebleexp.policies.cache_aware import CacheAware, balance, follows
from prebleexp.policies.candidates import is_candidate
from prebleexp.policies.stamped_tree import StampedTree, add, evict_each, home, stamp, take_up, tick
from prebleexp.sim.draws import generator
from prebleexp.sim.records import NONE, View
from prebleexp.sim.types import Setup

REFRESH = 8
"""of the clock's ticks, each such one refreshes what a match has found"""


class Remembered(NamedTuple):
    tree: StampedTree
    draws: Any


@dataclass(frozen=True)
class SGLangCacheAware(CacheAware):
    """The GPU that was the first to get the prefix, if that is enough of the prompt; else, and while loads are too far
    apart, the first with the fewest outstanding requests. It alone is followed: where else the prefix went since does
    not count, until the first has been dropped from the tree for want of room.

    The default policy of sglang-router 0.3.2 (the wheel; its source: the gateway's of 2025-12-31 to 2026-01-13). Run
    and read: decisions, ties, stamps and evictions are as recorded. Its order of workers is random, but fixed while it
    runs; here it is that of the GPUs. Any of several takes the place of a GPU that was dropped: there the first in a
    hash map when it is matched, here one that is drawn when it is followed. Unproven: what becomes of a match whose GPU
    may not be taken (here: least outstanding).
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

    def start(self, setup: Setup) -> Any:
        return Remembered(super().start(setup), generator(setup.seed))

    def lacks_room(self, mine: Any, view: View, request: int) -> int:
        return stamped_tree.lacks_room(mine.tree, view, request)

    def with_more_room(self, mine: Any, view: View, request: int) -> Any:
        value: Remembered = getattr(mine, "value", mine)
        return value._replace(tree=stamped_tree.with_more_room(value.tree, view, request))

    def changed(self, mine: Any, view: View, gpu: int, now: float) -> None:
        stamped_tree.forget_all(mine.tree, gpu)

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        tree = mine.tree
        evict_each(tree, self.eviction_interval_secs, now, self.max_tree_size / self.characters_per_token)
        gpu, imbalanced = balance(view, self.balance_abs_threshold, self.balance_rel_threshold)
        leaf, cut, shared, tokens = take_up(tree, view, request)
        if not imbalanced:
            epoch = tick(tree)
            if shared != 0:
                enough = follows(tokens, view.requests[request].prompt_tokens, self.cache_threshold)
                first = home(tree, shared, enough, mine.draws)
                if epoch % REFRESH == 0 and first != NONE:
                    stamp(tree, shared, first)
                if enough and is_candidate(view.candidates, first):
                    gpu = first
        add(tree, leaf, cut, gpu)
        return gpu
