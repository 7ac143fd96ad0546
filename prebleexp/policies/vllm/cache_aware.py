"""vLLM's cache-aware router."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prebleexp.policies.cache_aware import CacheAware, balance, follows
from prebleexp.policies.candidates import is_candidate
from prebleexp.policies.stamped_tree import StampedTree, add, evict_each, take_up
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import GPUS, NONE, View

HEADER, DIGITS = 6, 8
"""characters: before a prompt's tokens, and for each of them"""


@dataclass(frozen=True)
class VLLMCacheAware(CacheAware):
    """Of the GPUs that got the longest known prefix, the first with the fewest outstanding requests, if that is enough
    of the prompt; else, and while loads are too far apart, the first of all with the fewest.

    The default policy of vllm-router 0.1.17 (the wheel; spec section 4). Run: decisions, ties and evictions are as
    recorded; newer than any source that was read, so its rule was inferred. It asks a worker for the prompt's tokens
    first; that round trip is time, not rule, and is not here. vLLM 0.32 and 0.33 answer only if they were started with
    `--enable-scale-out`: without it the router sends by load alone, and logs nothing. Its tree may cut between the
    digits of a token, this one between tokens alone: sizes differ by less than a token for each branch. Unproven:
    sessions, which are not here, and what becomes of a match whose GPUs may not be taken (here: least outstanding).
    """

    eviction_interval_secs: int = 120
    """between two evictions from the tree, in simulated seconds"""
    max_tree_size: int = 1 << 25
    """characters of each GPU in the tree, 8 a token, beyond which its stalest leave at the next eviction"""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        evict_each(mine, self.eviction_interval_secs, now, (self.max_tree_size - HEADER) / DIGITS)
        gpu, imbalanced = balance(view, self.balance_abs_threshold, self.balance_rel_threshold)
        leaf, cut, shared, tokens = take_up(mine, view, request)
        enough = follows(tokens, view.requests[request].prompt_tokens, self.cache_threshold)
        if not imbalanced and shared != 0 and enough:
            gpu = least_outstanding_of(mine, view, shared, gpu)
        add(mine, leaf, cut, gpu)
        return gpu


@compiled
def least_outstanding_of(tree: StampedTree, view: View, node: int, otherwise: int) -> int:
    """The first with the fewest outstanding requests of the candidates that have the node."""
    best, least, link = otherwise, NONE, node
    while link != NONE:
        gpu = int(tree.rows[link].gpu)
        if gpu != NONE and is_candidate(view.candidates, gpu):
            outstanding = int(view.sent[gpu].outstanding)
            if least == NONE or outstanding < least or (outstanding == least and gpu < best):
                best, least = gpu, outstanding
            view.work[GPUS] += 1
        link = int(tree.rows[link].next)
    return best
