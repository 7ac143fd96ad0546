"""The state of a run: records for GPUs, requests, jobs and cache nodes, and the tuple of arrays that holds them all.

Fields are 8 bytes wide (cache nodes: 4, there are many) and records are contiguous, so that one GPU, one job or
one node is one or two cache lines. Compiled code and plain Python read them alike: `gpus[g].outstanding`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

REQUEST = np.dtype(
    [
        ("index", np.int64),
        ("arrival_s", np.float64),
        ("prompt_tokens", np.int64),
        ("max_new_tokens", np.int64),
        ("expected_output", np.float64),  # tokens it is expected to generate
        ("length_class", np.int64),  # its row of Sim.left
        ("informed", np.int64),  # 0: that is max_new_tokens, since nothing else is known
        ("prefix_group", np.int64),  # -1: not known
        ("first_segment", np.int64),  # its prompt is rows first_segment … first_segment + segments of `Prompts`
        ("segments", np.int64),
    ],
    align=True,
)
"""What a policy may know of a request. Its true output length is not here."""

GPU = np.dtype(
    [
        # What a router may look at
        ("outstanding", np.int64),  # requests routed here and not reported finished
        ("generated", np.int64),  # output tokens of the requests in the batch
        ("ahead", np.float64),  # of these: how much less they have left than was expected, if that is followed
        ("queued", np.int64),  # of these, waiting
        ("running", np.int64),  # of these, in the batch
        ("kv_free", np.int64),  # tokens of KV memory that hold nothing
        ("evictable", np.int64),  # tokens of KV memory that only the prefix cache holds
        ("window_hit_tokens", np.int64),  # prompt tokens found in the cache, over the prefills of the hit window
        ("window_prompt_tokens", np.int64),  # prompt tokens of these prefills
        ("requests", np.int64),  # requests ever routed here
        # The engine's own
        ("clock", np.float64),
        ("new_token_ratio", np.float64),
        ("decode_steps", np.int64),
        ("report_clock", np.float64),  # of the last decode step at which all running requests reported
        ("report_step", np.int64),  # its number in decode_steps
        ("slack", np.int64),  # KV tokens that a running request holds besides its context
        ("partial", np.int64),  # first of the requests part-way through their prefill, linked by `next`; -1: none
        ("parked", np.int64),  # idle, and not in the event queue
        ("fruitless", np.int64),  # steps in a row that admitted nothing and decoded nothing
        ("max_prefill", np.int64),
        ("queue_head", np.int64),
        ("queue_tail", np.int64),
        ("context", np.int64),  # running batch: sum of context tokens
        ("node_depth", np.int64),  # running batch: sum of tokens from the root to each request's locked node
        ("budget", np.int64),  # running batch: sum of max_new_tokens − output, as of decode step 0
        ("locked", np.int64),  # tokens in locked cache nodes
        ("lru", np.int64),  # root of the heap of eviction candidates
        ("batch_offset", np.int64),  # its rows of Batches
        ("batch_capacity", np.int64),
        ("batch_rows", np.int64),  # rows of `order` in use, holes included
        ("joined", np.int64),  # requests that ever joined the batch
        ("window_offset", np.int64),  # its rows of Window
        ("window_capacity", np.int64),
        ("window_first", np.int64),
        ("window_rows", np.int64),
        ("hit_tokens", np.int64),
        ("prefilled_tokens", np.int64),
        ("forwarded_tokens", np.int64),
        ("recomputed_tokens", np.int64),
        ("evicted_tokens", np.int64),
        ("retracted", np.int64),
        ("least_kv_free", np.int64),
    ],
    align=True,
)

JOB = np.dtype(
    [
        ("gpu", np.int64),
        ("state", np.int64),
        ("target", np.int64),  # output tokens after which it is finished
        ("node", np.int64),  # deepest cache node of its context
        ("cached", np.int64),  # prompt tokens found in the cache
        ("new", np.int64),  # prompt tokens to prefill
        ("computed", np.int64),  # of these, so far, where prefills are chunked
        ("rank", np.int64),  # the queue is sorted by it
        ("next", np.int64),  # behind it in the queue
        ("joined_step", np.int64),  # decode_steps when it had its first token
        ("row", np.int64),  # where it stands in the batch's `order`
        ("output_seen", np.int64),
        ("hit_tokens", np.int64),
        ("prefilled_tokens", np.int64),
        ("overhead_s", np.float64),  # what routing it took
        ("router_wait_s", np.float64),  # from its arrival until the router took it up
        ("ttft_s", np.float64),
        ("latency_s", np.float64),
        ("finish_s", np.float64),
    ],
    align=True,
)

NODE = np.dtype(
    [
        ("accessed", np.int64),  # when it was last touched: a counter, only its order matters
        ("heap_key", np.int64),  # `accessed` when it was put on the heap of eviction candidates
        ("parent", np.int32),  # -1: a root. In the free list: the next free node
        ("owner", np.int32),  # a request whose context goes through the node
        ("segment", np.int32),  # the node ends behind this many segments of the owner's prompt …
        ("outputs", np.int32),  # … and this many output tokens
        ("depth", np.int32),  # tokens from the root to its end
        ("first", np.int32),  # segment id its edge begins with; -1: an output token
        ("locks", np.int32),  # running requests whose context goes through it
        ("children", np.int32),
        ("heap_left", np.int32),
        ("heap_right", np.int32),
        ("in_heap", np.int32),
        ("unique_stamp", np.int32),  # last prefill that counted its tokens
    ],
    align=True,
)

CONTROL = np.dtype(
    [
        ("clock", np.float64),  # the largest clock seen
        ("now", np.float64),  # time of the event in hand
        ("unfinished", np.int64),
        ("events", np.int64),  # in the queue
        ("touches", np.int64),  # of cache nodes, so far
        ("free_node", np.int64),  # head of the free list
        ("free_nodes", np.int64),
        ("stamp", np.int64),  # prefills so far
        ("request", np.int64),  # waits for a route: the router is plain Python
        ("answer", np.int64),  # the GPU it chose
        ("arrived", np.int64),  # requests so far
        ("taken_up", np.int64),  # of these, by the router, first come, first served
        ("deciding", np.int64),  # whether it is busy
        ("mean_first", np.int64),  # first row of Means that is in the window
        ("mean_rows", np.int64),
        ("finished", np.int64),  # requests in Scratch.finished
        ("evicted", np.int64),  # rows of Cache.evicted_… in use
        ("gpu", np.int64),  # which GPU lacks room, or had finished requests
        ("parking", np.int64),  # whether idle GPUs may leave the event queue
    ],
    align=True,
)


class Prompts(NamedTuple):
    """All prompts as runs of tokens; a request's are rows first_segment … first_segment + segments."""

    ids: Any
    """(s,) int32, a path from the root of a prefix tree over all prompts"""
    ends: Any
    """(s,) int32, tokens from the prompt's beginning to the segment's end"""


class Events(NamedTuple):
    """The event queue: a binary heap by time."""

    times: Any
    codes: Any


class Cache(NamedTuple):
    """The prefix caches of all GPUs. Nodes 0 … gpus − 1 are their roots."""

    nodes: Any
    slot_keys: Any
    """children by (parent, segment id): see `sim.children`"""
    slot_nodes: Any
    evicted_owner: Any
    """what the step in hand evicted: a request, …"""
    evicted_beyond: Any
    """… of whose context it was what lies beyond this many tokens"""


class Batches(NamedTuple):
    """Running batches: per GPU a heap by (decode step at which it finishes, order of joining), and the order of
    joining."""

    keys: Any
    jobs: Any
    order: Any
    """job numbers, -1 where one has left"""


class Window(NamedTuple):
    """Per GPU a ring of its prefills of the hit window."""

    times: Any
    hits: Any
    prompts: Any


class Means(NamedTuple):
    """Requests in the order in which they finished, and sums over those of a window; by group, 0 is all of them."""

    times: Any
    requests: Any
    tokens: Any
    counts: Any


class Scratch(NamedTuple):
    """Lists of requests: in order of arrival, and room for those of one step."""

    arrived: Any

    batch: Any
    queue: Any
    merge: Any
    finished: Any


class Sim(NamedTuple):
    """All state of a run."""

    control: Any
    gpus: Any
    requests: Any
    prompts: Prompts
    jobs: Any
    events: Events
    cache: Cache
    batches: Batches
    window: Window
    means: Means
    left: Any
    """(length classes, tokens) output still to come of a request that has produced so much; (0, 0): not known"""
    turns: Any
    """(GPUs + 1, groups + 1) what each priority group had of the round; the last row is scratch"""
    scratch: Scratch
