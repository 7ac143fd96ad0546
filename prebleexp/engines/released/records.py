"""The state of a run of the released simulator."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.engines.batch import Batches
from prebleexp.sim.records import Cache, Means, View

GPU = np.dtype(
    [
        ("outstanding", np.int64),  # requests routed here and not reported finished
        ("generated", np.int64),  # output tokens of the requests in the batch
        ("queued", np.int64),  # of these, waiting
        ("running", np.int64),  # of these, in the batch
        ("kv_free", np.int64),  # tokens of KV memory that hold nothing
        ("window_hit_tokens", np.int64),  # prompt tokens found in the cache, over the prefills of the hit window
        ("window_prompt_tokens", np.int64),  # prompt tokens of these prefills
        ("clock", np.float64),
        ("new_token_ratio", np.float64),
        ("decode_steps", np.int64),
        ("report_clock", np.float64),  # of the last decode step at which all running requests reported
        ("report_step", np.int64),  # its number in decode_steps
        ("slack", np.int64),  # zero, for `prebleexp.engines.batch`
        ("parked", np.int64),  # idle, and not in the event queue
        ("fruitless", np.int64),  # steps in a row that admitted nothing and decoded nothing
        ("max_prefill", np.int64),
        ("queue_head", np.int64),
        ("queue_tail", np.int64),
        ("context", np.int64),  # running batch: sum of context tokens
        ("node_depth", np.int64),  # running batch: sum of tokens from the root to each request's locked node
        ("budget", np.int64),  # running batch: sum of max_new_tokens − output, as of decode step 0
        ("batch_offset", np.int64),  # its rows of Batches
        ("batch_capacity", np.int64),
        ("batch_rows", np.int64),  # rows of `order` in use, holes included
        ("joined", np.int64),  # requests that ever joined the batch
        ("window_offset", np.int64),  # its rows of Window
        ("window_capacity", np.int64),
        ("window_first", np.int64),
        ("window_rows", np.int64),
        ("least_kv_free", np.int64),
    ],
    align=True,
)

JOB = np.dtype(
    [
        ("target", np.int32),  # output tokens after which it is finished
        ("node", np.int32),  # deepest cache node of its context
        ("cached", np.int32),  # prompt tokens found in the cache
        ("new", np.int32),  # prompt tokens to prefill
        ("rank", np.int32),  # the queue is sorted by it
        ("next", np.int32),  # behind it in the queue
        ("joined_step", np.int32),  # decode_steps when it had its first token
        ("row", np.int32),  # where it stands in the batch's `order`
    ],
    align=True,
)

CONTROL = np.dtype(
    [
        ("clock", np.float64),  # the largest clock seen
        ("now", np.float64),  # time of the event in hand
        ("unfinished", np.int64),
        ("events", np.int64),  # in the queue
        ("request", np.int64),  # waits for a route: the router is plain Python
        ("answer", np.int64),  # the GPU it chose
        ("arrived", np.int64),  # requests so far
        ("taken_up", np.int64),  # of these, by the router, first come, first served
        ("deciding", np.int64),  # whether it is busy
        ("mean_first", np.int64),  # first row of Means that is in the window
        ("mean_rows", np.int64),
        ("finished", np.int64),  # requests in Scratch.finished
        ("gpu", np.int64),  # which GPU lacks room, or has stepped
        ("parking", np.int64),  # whether idle GPUs may leave the event queue
    ],
    align=True,
)


class Events(NamedTuple):
    """The event queue: a binary heap by time."""

    times: Any
    codes: Any


class Window(NamedTuple):
    """Per GPU a ring of its prefills of the hit window."""

    times: Any
    hits: Any
    prompts: Any


class Scratch(NamedTuple):
    """Lists of requests: in order of arrival, and room for those of one step."""

    arrived: Any

    batch: Any
    queue: Any
    merge: Any
    finished: Any


class Rules(NamedTuple):
    """What stays the same during a run."""

    step_cost_s: float
    output_step_cost_s: float
    end_s: float
    """the run ends when a clock exceeds it"""
    stepwise: bool
    """take every idle step, route through every event, admit by the exact sum: slow, for tests"""
    mean_window_s: float
    """these as in `prebleexp.sim.rules.Rules`"""
    mean_per_prefix: bool
    follow: bool
    overhead: int
    prediction_s: float
    decision_s: float
    unit_s: Any
    pause: int


class Sim(NamedTuple):
    """All state of a run of the paper's released simulator: GPUs, requests, caches, events."""

    control: Any
    rules: Rules
    seen: View
    live: Any
    """`seen.gpus`"""
    made: Any
    """(n,) `prebleexp.sim.records.JOB`: what becomes of requests"""
    jobs: Any
    gpus: Any
    totals: Any
    servers: Any
    """(GPUs,) `prebleexp.sim.records.SERVER`: the last step that computed something"""
    events: Events
    cache: Cache
    batches: Batches
    window: Window
    means: Means
    left: Any
    """(length classes, tokens) output still to come of a request that has produced so much; (0, 0): not known"""
    scratch: Scratch
    router: Any
    """`prebleexp.sim.addresses.ROUTER`"""
