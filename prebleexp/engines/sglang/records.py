"""What an SGLang engine remembers.

A GPU's KV tokens are free, or in its radix tree, or a request's own. What is in the tree can be evicted unless a
request locks it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.engines.recent import FIELDS

GPU = np.dtype(
    [
        # KV tokens
        ("free", np.int64),
        ("evictable", np.int64),
        ("lru", np.int64),  # root of the heap of nodes that may be evicted
        # waiting requests, linked by `behind`
        ("first_waiting", np.int64),
        ("last_waiting", np.int64),
        ("queued", np.int64),
        ("passes", np.int64),  # looks at the queue with somebody in it
        ("full", np.int64),  # whether nobody is admitted
        ("part_way", np.int64),  # the request that goes on with its prompt, or -1
        # requests that decode, linked by `before` and `behind`, in order
        ("first_running", np.int64),
        ("last_running", np.int64),
        ("running", np.int64),
        ("context", np.int64),  # their tokens that have KV, …
        ("generated", np.int64),  # … those of them that were generated and are known, …
        ("max_new", np.int64),  # … and the sum of their max_new_tokens
        ("late", np.int64),  # how many of them joined while a decode was under way, of which they are no part
        ("fresh", np.int64),  # the last to have joined of those that no decode is over of, linked by `next_fresh`
        ("leaving", np.int64),  # how many have left them since their last token is under way
        ("beyond_clip", np.int64),  # how many of them have more of these than `CLIP_MAX_NEW_TOKENS`
        ("ratio", np.float64),  # of what they may still generate, so much is reserved
        ("coming", np.int64),  # requests for whose prompts room is taken, and whose KV is not all there
        ("room", np.int64),  # what was free when all who waited for it and fitted had got it
        # steps
        ("scheduled", np.int64),  # so far
        ("begun", np.int64),  # of these, how many have begun
        ("joins", np.int64),  # whether the one scheduled last was a prefill, whose requests join those that run
        ("decodes", np.int64),  # decode steps scheduled
        ("decodes_over", np.int64),  # … and over
        ("decoded_s", np.float64),  # end of the last of these
        # what is told of it
        ("waiting_tokens", np.int64),  # to compute before all have their next token
        *FIELDS,
    ],
    align=True,
)

LIST = np.dtype([("first", np.int64), ("last", np.int64), ("length", np.int64)], align=True)
"""Requests in order, linked by `behind`."""

NOBODY = np.array((-1, -1, 0), LIST)
"""such a list without any"""

READY, RETRACTED = range(2)
"""of a GPU for outputs: those that join those that run at the next step, and those that have lost their KV"""

ELSEWHERE, WAITING, CHOSEN, RUNNING, LEAVING, DONE = range(6)
"""stages of a request. ELSEWHERE: it has not come, or was taken back. CHOSEN: in a prefill, or with room for its
prompt, and not yet among those that run. LEAVING: not among them any more, since its last token is under way"""

JOB = np.dtype(
    [
        ("prompt", np.int32),  # tokens that it came with, of which …
        ("shown", np.int32),  # … so many are of its answer, and were shown before a GPU was lost
        ("target", np.int32),  # output tokens with which it is finished, those not counted
        ("max_new", np.int32),  # that it may generate
        ("generated", np.int32),  # known when it joined those that run, but for its first token
        ("cached", np.int32),  # where its next prefill begins, …
        ("computed", np.int32),  # … and where its last one ends
        ("joined", np.int32),  # decode steps scheduled before it ran
        ("due", np.int32),  # the decode step that brings its last token; as it joined, if its prefill does
        ("next_due", np.int32),  # another one that is due in the same, in a ring
        ("next_fresh", np.int32),  # the one before it that no decode is over of
        ("held", np.int32),  # of its tokens, how many are the tree's
        ("lock", np.int32),  # the node where they end
        ("before", np.int32),
        ("behind", np.int32),
        ("stage", np.int32),
    ],
    align=True,
)
"""Of a request; a line of a processor's cache."""

NODE = np.dtype(
    [
        ("used", np.int64),  # when it was last used: a counter, only its order matters
        ("heap_key", np.int64),  # `used` when it was put on the heap
        ("parent", np.int32),  # in the free list: the next free node
        ("owner", np.int32),  # a request whose context goes through it
        ("segment", np.int32),  # of the owner's context, the one in which it ends
        ("depth", np.int32),  # tokens from the root to its end
        ("first", np.int32),  # the segment in which it begins
        ("locks", np.int32),  # requests that lock it
        ("children", np.int32),
        ("heap_left", np.int32),
        ("heap_right", np.int32),
        ("in_heap", np.int32),
    ],
    align=True,
)

STORE = np.dtype([(name, np.int64) for name in ("clock", "free_node", "made", "nodes")], align=True)
"""Of all nodes: the time of the last use; the first free one; how many were ever made, and how many there are."""

STEP = np.dtype(
    [
        ("scheduled_s", np.float64),
        ("seconds", np.float64),
        ("prefill", np.int64),  # else a decode
        ("requests", np.int64),
        ("tokens", np.int64),  # that it computes, …
        ("prompts", np.int64),  # … those of prompts among them
        ("chosen", np.int64),  # rows of `CHOICE`, if it is a prefill
        ("part_way", np.int64),  # the request of it that goes on with its prompt, or -1
        ("retracted", np.int64),
        ("free", np.int64),  # tokens when it was scheduled, …
        ("evictable", np.int64),
        ("ratio", np.float64),
        ("waiting", np.int64),
    ],
    align=True,
)

CHOICE = np.dtype([("request", np.int32), ("tokens", np.int32), ("begin", np.int32)], align=True)
"""What a step computes of a request: so many tokens from this position on."""

STEPS = 4
"""steps of a GPU that are remembered: two are scheduled and not over, and the one before them is looked at"""

AT_ONCE = 2
"""steps that are scheduled without a pause"""

# SGLang's constants
CLIP_MAX_NEW_TOKENS = 4096
RETRACT_DECODE_STEPS = 20
REFRESH_INTERVAL = 32
"""passes"""
MATCHED_WAITING = 128
"""requests that are looked up while they wait, at most"""
IN_BATCH_PREFIX = 32
"""tokens"""


class Tree(NamedTuple):
    """The radix trees of all GPUs. Nodes 0 … GPUs − 1 are the roots."""

    control: Any
    nodes: Any
    slot_keys: Any
    """children by (node, segment): see `prebleexp.sim.children`"""
    slot_nodes: Any


class Settings(NamedTuple):
    """The engine's fields, as they are for this GPU."""

    kv_tokens: int
    chunked_prefill_size: int
    max_running_requests: int
    by_prefix: bool
    """whether the queue is ordered by cached prefix"""
    overlap: bool
    skip_finishing: bool
    ratio: float
    """at first"""
    least_ratio: float
    ratio_decay: float
    host_s: float
    reserved_decode_tokens: int
    """kept free for each request of a GPU for outputs"""
    segment_ids: int
    """more than any segment has: names of answers that nobody continues begin there"""


class Engines(NamedTuple):
    """All that SGLang's schedulers keep, of every GPU."""

    settings: Settings
    gpus: Any
    jobs: Any
    retractions: Any
    """(n,) how often each request was retracted"""
    tree: Tree
    due: Any
    """(GPUs, a power of two) of each ring of requests that are due in one decode step, the last, and 1; 0: nobody"""
    steps: Any
    """(GPUs, `STEPS`)"""
    chosen: Any
    """(GPUs, `STEPS`, requests) `CHOICE`s of prefills"""
    retracted: Any
    """(GPUs, `STEPS`, requests) in order"""
    whole: Any
    """(GPUs, `STEPS`, requests) `CHOICE`s of all requests, if somebody watches"""
    ordered: Any
    """(2, requests) requests that are put in order, and room for it"""
    keys: Any
    """(2, requests) by these"""
    firsts: Any
    """(`MATCHED_WAITING`,) segments in which prompts are that no earlier one in the queue shares"""
    lists: Any
    """(GPUs, 2) `LIST`, `READY` and `RETRACTED`"""
    recent: Any
    """(GPUs, `RECENT`, 2): see `prebleexp.engines.recent`"""
