"""What a continuously batching engine remembers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.engines.batch import Batches

GPU = np.dtype(
    [
        ("kv_free", np.int64),  # tokens of KV memory that hold nothing
        ("slack", np.int64),  # KV tokens that a running request holds besides its context
        ("least_kv_free", np.int64),
        ("max_prefill", np.int64),
        ("new_token_ratio", np.float64),  # of what running requests may still generate, the share that is kept free
        # the queue
        ("queued", np.int64),
        ("least_need", np.int64),  # no request of the queue needs less than so many tokens
        ("waiting_tokens", np.int64),  # of the queue and of requests part-way, prompt tokens to compute
        # the step in hand
        ("steps", np.int64),  # decode steps
        ("fresh", np.int64),  # last to have joined the batch since the last step that decoded, linked by `next`
        ("working", np.int64),  # first of the requests part-way through their prefill, linked by `next`
        ("last", np.int64),  # the last of them
        # the running batch (see `prebleexp.engines.batch`)
        ("running", np.int64),
        ("decode_steps", np.int64),
        ("report_clock", np.float64),  # end of the last step that decoded
        ("report_step", np.int64),  # its number in decode_steps
        ("generated", np.int64),  # output tokens
        ("context", np.int64),  # sum of context tokens
        ("node_depth", np.int64),  # sum of tokens from the root to each request's locked node
        ("budget", np.int64),  # sum of max_new_tokens − output, as of decode step 0
        ("joined", np.int64),  # requests that ever joined the batch
        ("batch_rows", np.int64),  # rows of `order` in use, holes included
        ("batch_offset", np.int64),  # its rows of Batches, and of `waiting`
        ("batch_capacity", np.int64),
        # the hit window
        ("window_offset", np.int64),  # its rows of Window
        ("window_capacity", np.int64),
        ("window_first", np.int64),
        ("window_rows", np.int64),
        ("window_hit_tokens", np.int64),
        ("window_prompt_tokens", np.int64),
    ],
    align=True,
)

JOB = np.dtype(
    [
        ("target", np.int32),  # output tokens after which it is finished
        ("node", np.int32),  # deepest cache node of its context
        ("cached", np.int32),  # prompt tokens found in the cache
        ("new", np.int32),  # prompt tokens to prefill
        ("computed", np.int32),  # of these, so far
        ("chunk", np.int32),  # of these, in the step in hand
        ("next", np.int32),  # behind it, part-way as well
        ("joined_step", np.int32),  # decode_steps when it had its first token
        ("row", np.int32),  # where it stands in the batch's `order`
    ],
    align=True,
)

WAITING = np.dtype(
    [
        ("request", np.int32),
        ("number", np.int32),  # in order of arrival
        ("cached", np.int32),  # what of its prompt was found in the cache when that was last looked up
        ("node", np.int32),  # the last cache node that lies in its prompt as a whole; -1: never looked up
        ("first", np.int32),  # segment with which its prompt goes on there
        ("need", np.int64),  # tokens it takes besides its new ones
        ("rank", np.int64),  # the queue is sorted by it
        ("changes", np.int64),  # of the cache, until then
    ],
    align=True,
)


class Window(NamedTuple):
    """Per GPU a ring of its prefills of the hit window."""

    times: Any
    hits: Any
    prompts: Any


class Batching(NamedTuple):
    """All that continuous batching keeps, of every GPU."""

    gpus: Any
    jobs: Any
    batches: Batches
    waiting: Any
    window: Window
    turns: Any
    """(GPUs + 1, groups + 1) what each priority group had of the round; the last row is scratch"""
    batch: Any
    """(n,) room for a list of requests"""
    merge: Any
    """room for a queue"""
