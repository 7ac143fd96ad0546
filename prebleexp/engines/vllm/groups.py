"""Which layers of a model have their KV blocks in common: vLLM's hybrid KV cache manager
(vllm/v1/core/kv_cache_utils.py).

Layers of one kind are split into groups of as many layers as the rarest kind has, so that a block of any group takes as
much memory, and all take from one pool. A request has a table of blocks for each group.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prebleexp.sim.types import FULL, SLIDING, Layers, Longs, Tables

ALMOST = 1.5
"""if no kind has so many times the layers of the rarest, a group has as many as the most frequent"""


class Grouping(NamedTuple):
    """Groups in vLLM's order, and the pool that they share."""

    groups: tuple[Layers, ...]
    blocks: int
    """of the pool; each holds a block's tokens in the layers of one group"""
    share: float = 1.0
    """of all KV of a token, that is in the layers of one group"""

    @property
    def tables(self) -> Tables:
        """Routers hear of the first that looks back to all, if there is one."""
        told = min(range(len(self.groups)), key=lambda number: self.groups[number].kind != FULL)
        return Tables(len(self.groups), told, self.share)


def grouped(kinds: tuple[Layers, ...]) -> tuple[Layers, ...]:
    """The groups of a model's kinds of layers, each with the layers that it has room for."""
    counts = [one.layers for one in kinds]
    size = max(counts) if max(counts) < ALMOST * min(counts) else min(counts)
    return tuple(one._replace(layers=size) for one in kinds for _ in range(-(-one.layers // size)))


def grouping(kinds: tuple[Layers, ...], kv_tokens: int, block_size: int) -> Grouping:
    """`kv_tokens`: of all layers, that fit into memory."""
    groups = grouped(kinds)
    layers = sum(one.layers for one in kinds)
    share = groups[0].layers / layers
    return Grouping(groups, kv_tokens * layers // (groups[0].layers * block_size), share)


def requests_at_once(of: Grouping, block_size: int, length: int) -> int:
    """How many requests that decode, each of so many tokens, fit into the pool."""
    return (of.blocks - 1) // sum(_decoding(one, block_size, length) for one in of.groups)


def _decoding(group: Layers, block_size: int, length: int) -> int:
    """Blocks that a request of so many tokens holds at most while it decodes."""
    blocks = -(-length // block_size)
    if group.kind == FULL:
        return blocks
    return min(blocks, -(-(group.window - 1) // block_size) + (group.kind == SLIDING))


def most_held(group: Layers, block_size: int, in_flight: int, context_length: int) -> int | None:
    """Blocks that a request holds at most in a group, if so many tokens may be in flight; None: no limit but its
    context."""
    if group.kind == FULL:
        return None
    tokens = group.window + in_flight - (group.kind == SLIDING)
    return -(-min(tokens, context_length) // block_size) + (group.kind == SLIDING)


def most_blocks(of: Grouping, block_size: int, tokens: Longs, in_flight: int, context_length: int) -> Longs:
    """(n,) blocks of all groups that requests of so many tokens hold at most."""
    blocks = -(-tokens // block_size)
    caps = [most_held(one, block_size, in_flight, context_length) for one in of.groups]
    return sum((blocks if cap is None else np.minimum(blocks, cap) for cap in caps), start=0 * blocks)
