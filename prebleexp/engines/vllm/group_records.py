"""What a vLLM engine remembers where layers have groups, beside `engines.vllm.records`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

FULL, SLIDING, CHUNKED = range(3)
"""what layers look back to: all, a window, or where their chunk of the context begins"""

LINK = np.dtype([("rank", np.int64), ("before", np.int32), ("behind", np.int32)], align=True)
"""A request among the steady ones of its phase: how many were admitted to its GPU before it, and its neighbours. In a
phase itself the first and the last meet."""

TABLE = np.dtype(
    [
        ("low", np.int32),  # its blocks before this one were given up, or never held
        ("first", np.int32),  # the first one that it held when it was admitted
        ("gone_from", np.int32),  # of those that tiers were not offered, others hold these: they are not offered, …
        ("gone_to", np.int32),  # … but those from here on
        ("cached", np.int32),  # of those that it holds, how many are cached: those of its `HOLD`s
        ("holds", np.int32),  # the last of these
        ("answer", np.int32),  # the run of its answer alone that it has begun; -1: none
    ],
    align=True,
)
"""What a request holds of one group of layers, where there are several: up to the job's `blocks`, as in all groups."""

GROUP = np.dtype(
    [
        ("kind", np.int64),  # `FULL`, `SLIDING` or `CHUNKED`
        ("window", np.int64),  # tokens
        ("tail", np.int64),  # blocks that a hit must have at its end
        ("cap", np.int64),  # blocks that a request holds at most; `NEVER`: no limit
        ("every", np.int64),  # the last `tail` blocks of every so many are cached; 0: none of these; -1: all are
        ("key", np.int64),  # what is added to the keys of its blocks; 0 of the group of which routers hear
    ],
    align=True,
)
"""Layers that have their blocks in common."""

ALIKE = np.dtype([(name, np.int64) for name in ("kind", "window", "tail", "first", "size")], align=True)
"""Groups of one kind, which a lookup sees together: so many of `Groups.members` from the first one on."""


class Groups(NamedTuple):
    """Groups of layers, each with a table of its own for every request, over one pool of blocks."""

    all: Any
    """(groups,) `GROUP`"""
    alike: Any
    """(kinds,) `ALIKE`, those that look back to all first"""
    members: Any
    """(groups,) which, one kind after the other"""
    order: Any
    """(groups,) in which tiers are looked through: so many that look back to all …"""
    full: int
    """… and then those with a window, the longest first"""
    tables: Any
    """(n, groups) `TABLE`"""
    due: Any
    """(n,) positions that are computed in steps which are over, as soon as a request has so many it gives blocks up"""
    links: Any
    """(n + GPUs · block_size,) `LINK`s of requests, and of each GPU's phases behind them: see `engines.vllm.phases`"""
    offsets: Any
    """in how many steps from taking a block a steady request takes one or gives some up, each once: 0, and what follows
    from windows"""
    next: Any
    """(offsets,) of the step in hand, who is next of each of its phases"""
    walked: Any
    """(GPUs,) the last step of which `next` was"""
    ranks: Any
    """(GPUs,) admissions so far"""
    junctions: Any
    """(n,) blocks of a prefix that some groups have, and others are to keep, when the request computes it"""
    told: int
    """group of which routers hear, and whose blocks a step reads: the first that looks back to all, if there is one"""
    held: Any
    """(GPUs,) blocks of that group that requests hold"""
    keep_answers: bool
    """whether some group with a window caches blocks of answers"""
    block_tokens: float
    """of all layers, that take as much memory as a block of the pool"""
    whole: Any
    """(GPUs, `STEPS`, max_num_seqs, groups) blocks that requests hold when a step is scheduled, if somebody watches"""
