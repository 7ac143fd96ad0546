"""The state of a run of Dynamo's replay. Times are milliseconds, as it counts them.

Workers 0 … prefill − 1 compute prompts, those behind them tokens. KV is in blocks; a block that is cached has a key,
which stands for it and all before it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.engines.serial_heap import Events

COMING, WAITING, PREFILLING, HELD, DECODE_WAITING, DECODING, DONE, REFUSED = range(8)
"""stages of a request: before its arrival; at its prefill worker; its KV there is held; it is at its decode worker"""
REQUEST = np.dtype(
    [
        ("arrival_ms", np.float64),
        ("prompt", np.int64),  # tokens
        ("output", np.int64),
        ("stage", np.int64),
        ("first_key", np.int64),  # keys of its full blocks begin there in `Sim.keys`, …
        ("own_key", np.int64),  # … those of blocks with generated tokens are this + their number
        ("prefill_worker", np.int64),
        ("decode_worker", np.int64),
        ("reserved", np.int64),  # in which order blocks were reserved for it, over all workers
        ("preempted", np.int64),  # whether it waits at its decode worker to be computed again
        ("transfer_ms", np.float64),
        ("transferred", np.int64),  # tokens
        ("generated", np.int64),
        # at its prefill worker, and at its decode worker
        ("p_first", np.int64),  # its blocks begin there in `Sim.p_blocks`
        ("p_blocks", np.int64),
        ("p_cached", np.int64),  # of these, from the first on, those that are
        ("p_computed", np.int64),  # tokens
        ("p_next", np.int64),  # behind it in a list of the worker
        ("d_first", np.int64),
        ("d_blocks", np.int64),
        ("d_cached", np.int64),
        ("d_computed", np.int64),
        ("d_next", np.int64),
        # what is recorded
        ("prefill_admit_ms", np.float64),
        ("source_held_ms", np.float64),
        ("destination_reserved_ms", np.float64),
        ("destination_activated_ms", np.float64),
        ("decode_admit_ms", np.float64),
        ("source_released_ms", np.float64),
        ("first_token_ms", np.float64),
        ("last_token_ms", np.float64),
        ("terminal_time_ms", np.float64),
        ("reused_input_tokens", np.int64),
        ("decode_reused_input_tokens", np.int64),  # most of any admission there
        ("readmission_count", np.int64),
    ],
    align=True,
)

WORKER = np.dtype(
    [
        ("blocks", np.int64),
        ("used", np.int64),  # that are held
        ("unused", np.int64),  # first of those that are neither held nor cached, linked by `behind`
        ("oldest", np.int64),  # of those that are cached and that nobody holds, in the order of being given back
        ("newest", np.int64),
        ("busy", np.int64),  # whether a step is under way
        ("running", np.int64),  # length of its row of `Sim.running`
        ("waiting", np.int64),  # first of a list: requests that wait to run
        ("waiting_last", np.int64),  # … its last, at a prefill worker
        ("releasing", np.int64),  # a prefill worker's: requests that were read, whose blocks its next step frees
        ("releasing_last", np.int64),
        ("held", np.int64),  # a decode worker's: requests without blocks here, …
        ("held_last", np.int64),
        ("arrived", np.int64),  # … and those whose KV has come since its last step began
        ("arrived_last", np.int64),
        ("tried", np.int64),  # the first of `held` with which a reservation was tried last, …
        ("tried_at", np.int64),  # … and `freed` then
        ("freed", np.int64),  # how often a request here was done or preempted
        ("touched", np.int64),  # whether it is in `Sim.touched`
        ("begun_ms", np.float64),
    ],
    align=True,
)

CONTROL = np.dtype(
    [
        ("now", np.float64),
        ("events", np.int64),  # in the heap
        ("serial", np.int64),  # of the next event
        ("arrived", np.int64),
        ("unfinished", np.int64),
        ("reservations", np.int64),
        ("next_prefill", np.int64),  # of round robin
        ("next_decode", np.int64),
        ("handed_over", np.int64),  # requests in `Sim.handed_over`
        ("ended", np.int64),  # workers in `Sim.ended`
        ("touched", np.int64),  # … and in `Sim.touched`
        ("stopped", np.int64),  # whether the run is over
    ],
    align=True,
)

BLOCK = np.dtype(
    [
        ("key", np.int32),  # -1: it is not cached
        ("holders", np.int32),
        ("older", np.int32),  # copies of one key, a ring in order of age
        ("newer", np.int32),
        ("before", np.int32),  # idle ones, in the order in which they are evicted
        ("behind", np.int32),
    ],
    align=True,
)


class Pool(NamedTuple):
    """KV blocks of all workers, with a table to look them up by."""

    blocks: Any
    slot_keys: Any
    """oldest copy by (worker, key): see `prebleexp.sim.children`"""
    slot_nodes: Any


class Rules(NamedTuple):
    """What stays the same during a run."""

    prefills: int
    """prefill workers"""
    decodes: int
    reserve_first: bool
    """whether a request waits for blocks of its decode worker before it is computed (sglang)"""
    late: bool
    """whether prefill workers cache a prompt when it was read (sglang), or as soon as a step computes it"""
    shared: bool
    """whether a reservation takes blocks that the decode worker has; with trtllm it does not"""
    again: bool
    """whether a prompt's last block is computed even if it is cached; with trtllm it is not, and a step that computes
    nothing takes no time"""
    routed: bool
    """whether each request's workers are given"""
    block_size: int
    prefill_seqs: int
    prefill_tokens: int
    decode_seqs: int
    decode_tokens: int
    prefill_ms: float
    decode_ms: float
    token_bytes: int
    link: float
    """bytes a second; 0: transfers take no time"""
    whole_prompt: bool
    """whether that is what is sent, or what is not cached at its target"""
    end_ms: float
    pause: int


class Sim(NamedTuple):
    """All state of a replay's run: workers, requests, blocks, events."""

    control: Any
    rules: Rules
    events: Events
    requests: Any
    workers: Any
    pool: Pool
    keys: Any
    """of the full blocks of prompts"""
    p_blocks: Any
    """blocks that requests have at their prefill workers"""
    d_blocks: Any
    running: Any
    """(workers, most that run): requests, in order of admission"""
    handed_over: Any
    """(n,) requests that decode workers are to hear of, in order"""
    ended: Any
    """(workers,) decode workers whose step is over"""
    touched: Any
    """(workers,) those that may begin a step"""
    totals: Any
    """(workers,) `prebleexp.sim.records.TOTALS`"""
    servers: Any
    """(workers,) `prebleexp.sim.records.SERVER`: the last step"""
    live: Any
    """(workers,) `prebleexp.sim.records.REPORT`"""
