"""What a vLLM engine remembers.

KV blocks have no identity: which physical block holds what decides nothing. A block that is cached lies in a `RUN`, one
that is not is a number: free ones of them are always at the front of vLLM's list of free blocks, since released blocks
without a key are put there, and cached ones behind.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.engines.recent import FIELDS

GPU = np.dtype(
    [
        # blocks
        ("free", np.int64),  # held by nobody: not cached ones, and those of idle runs
        ("unkeyed", np.int64),  # of these, not cached
        ("first", np.int64),  # idle runs, in the order in which they are evicted
        ("last", np.int64),
        # requests
        ("queue", np.int64),  # root of the heap of waiting requests, …
        ("queue_last", np.int64),  # … and one that nobody stands behind there, or -1
        ("queued", np.int64),  # how many wait
        ("received", np.int64),  # rank of the last that joined behind the others, …
        ("put_back", np.int64),  # … and in front of them
        ("running", np.int64),
        ("held_back", np.int64),  # whether the step that is being scheduled leaves prompts out
        ("steady", np.int64),  # of these, those that decode steadily (see `steady`), …
        ("context", np.int64),  # … and the positions of them that are scheduled
        ("held", np.int64),  # requests that have blocks and neither run nor wait: another GPU reads them, or is read
        ("reserved", np.int64),  # requests that have blocks, and whose KV is under way to them, …
        ("reservations", np.int64),  # … and how many there were so far
        ("lacked", np.int64),  # blocks that these lack for a first step with drafts, until they run
        ("moving", np.int64),  # request that stops, or has stopped, to be moved to another GPU
        ("flush", np.int64),  # whether requests finished since the last scheduling: one more follows, perhaps empty
        # transfers that are over (see `engines.vllm.hearing`)
        ("news", np.int64),  # the first of those that no step has asked for, and the last
        ("last_news", np.int64),
        ("stored", np.int64),  # likewise of stores in tiers
        ("last_stored", np.int64),
        ("idle_s", np.float64),  # since when it has had nothing to compute, the last time that it had not
        # steps
        ("scheduled", np.int64),  # so far
        ("begun", np.int64),  # of these, how many have begun
        ("over", np.int64),  # … and how many are over
        ("quiet_until", np.int64),  # in those before this one nobody is due; 0: that is not known
        ("step_ended_s", np.float64),  # the last of them
        # what is told of it
        ("waiting_tokens", np.int64),  # to compute before all have their next token
        ("generated", np.int64),  # output tokens of running requests
        *FIELDS,
    ],
    align=True,
)

JOB = np.dtype(
    [
        ("known", np.int32),  # tokens: the prompt's, and generated ones
        ("limit", np.int32),  # tokens with which it is finished
        ("computed", np.int32),  # positions scheduled so far, those under way included
        ("steady_from", np.int32),  # step from which on it decodes steadily; -1: it does not
        ("blocks", np.int32),  # of KV that it holds; …
        ("keyed", np.int32),  # … of these, from the first on, how many are cached
        ("holds", np.int32),  # the last of its `HOLD`s
        ("answer", np.int32),  # the run of its answer alone that it has begun; -1: none; `ANONYMOUS`: nor need it
        ("segment", np.int32),  # of its context, the one in which its next block to be cached ends, or one before it
        ("running", np.int8),  # or `STOPPED`
        ("filling", np.int8),  # whether it has tokens to compute before its next one; in the queue `PULLS` … `LOADED`
        ("finished", np.int8),
        ("expected", np.int8),  # tokens that steps under way will generate, where one is scheduled before others end
        ("under_way", np.int32),  # scheduled positions whose step is not over
        ("stale", np.int32),  # of these, those from before it was preempted
        # in the heap of waiting requests
        ("heap_left", np.int32),
        ("heap_right", np.int32),
        ("heap_key", np.int64),  # its rank
    ],
    align=True,
)
"""Of a request; a line of a processor's cache."""

RUN = np.dtype(
    [
        ("key", np.int32),  # by the segment in which its blocks end, and the table: see `engines.vllm.blocks`
        ("low", np.int32),  # its blocks, as numbers within a context: low … high − 1
        ("high", np.int32),
        ("holders", np.int32),  # requests; 0: idle
        ("above", np.int32),  # what was cut off it: the blocks before `low`
        ("older", np.int32),  # of one key, a ring in order of age; the next free one, if it is free
        ("newer", np.int32),
        ("before", np.int32),  # idle runs, in the order in which they are evicted
        ("behind", np.int32),
        ("beyond", np.int32),  # from this block on no older run of its key ever had any
        ("owner", np.int32),  # a request whose context has these blocks
        ("leaver", np.int32),  # who had them, left, and has them stored in tiers; -1: nobody
        ("attempt", np.int32),  # … when it had been preempted so often
    ],
    align=True,
)
"""Cached blocks of one key that follow each other, and that the same requests hold."""

HOLD = np.dtype([(name, np.int32) for name in ("run", "blocks", "before", "behind")], align=True)
"""A request holds so many blocks: the run's, and, as far as these do not suffice, those above it. Behind the last of
its holds is the first."""

STEP = np.dtype(
    [
        ("counts", np.int64),  # whether it chose or preempted a request
        ("quiet", np.int64),  # whether they are all steady, and none is looked at
        ("scheduled_s", np.float64),
        ("seconds", np.float64),
        ("requests", np.int64),  # that it computes: …
        ("steady", np.int64),  # … steady ones, …
        ("chosen", np.int64),  # … and others, of which (and of steady ones that finish) there are so many rows …
        ("admitted", np.int64),  # … the last ones of them just admitted
        ("preempted", np.int64),
        ("reserved", np.int64),  # requests whose KV is asked for
        ("news", np.int64),  # the first of the transfers that were over when it was launched
        ("last_news", np.int64),
        ("stored", np.int64),  # likewise of stores in tiers
        ("last_stored", np.int64),
        ("heard", np.int64),  # how many they were, but for stores
        ("waits", np.int64),  # stores that must be over before it begins, …
        ("waited_s", np.float64),  # … and when they were
        ("dropped", np.int64),  # copies that tiers dropped for what it fills
        ("refused", np.int64),  # offers for which a tier had no room
        ("kept", np.int64),  # copies that the host has after them
        ("finished", np.int64),
        ("fresh", np.int64),  # steady from this step on, without a token of the one before
        ("computed", np.int64),  # tokens, …
        ("prefilled", np.int64),  # … of them, of prompts
        ("hits", np.int64),  # prompt tokens found in the cache
        ("recomputed", np.int64),  # prompt tokens that preemptions threw away
        ("evicted", np.int64),  # blocks
        ("free", np.int64),  # blocks, when it was scheduled
        ("free_after", np.int64),  # … and when it was over
        ("waiting", np.int64),
        ("running", np.int64),
    ],
    align=True,
)

CHOSEN = np.dtype(
    [
        ("request", np.int32),
        ("tokens", np.int32),  # that it computes; 0: it is steady, and finishes
        ("samples", np.int32),  # tokens that it brings at most: one, and those that were drafted; 0: none
        ("hits", np.int32),  # if it was just admitted, tokens that were cached
    ],
    align=True,
)
"""What a step computes of a request."""

STORE = np.dtype([(name, np.int64) for name in ("free_run", "runs", "free_hold", "holds", "keys")], align=True)
"""First of the free ones, and how many were ever used; keys that have runs."""

PULLS, PULLED, LOADED, FAILED = 2, 3, 4, 5
"""of a prompt that was computed elsewhere: its KV is to be read from there; it has blocks for that, or has been read;
of one that tiers have KV of: it has blocks, and that is loaded, or has been; of one of which less has come than was to
come: it has blocks, and computes the rest"""

TOLD = 2
"""of a prompt that is finished: it was read, but its GPU has not heard of that"""

STOPPED = 2
"""of a request that is moved to another GPU: it is in no more steps, but for those under way"""

STEPS = 8
"""steps of a GPU that are remembered: at most three are scheduled at once, and the last two are not over; as many again
may be empty, and take no time"""

NEVER = 2**31 - 1
ANONYMOUS = -2
"""as an answer's run: no prompt contains the answer, so the request alone, if preempted, looks for its blocks"""


class Blocks(NamedTuple):
    """Cached blocks of all GPUs, kept as runs of blocks, which are found by (GPU, segment)."""

    control: Any
    runs: Any
    holds: Any
    slot_keys: Any
    """oldest run by (GPU, segment): see `prebleexp.sim.children`"""
    slot_nodes: Any


class Settings(NamedTuple):
    """The engine's fields, as they are for this GPU."""

    max_num_batched_tokens: int
    max_num_seqs: int
    block_size: int
    blocks: int
    """that requests can hold"""
    blocks_kept_free: int
    """at an admission, if anything runs"""
    long_prefill_token_threshold: int
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    reserve_full_isl: bool
    by_priority: bool
    async_scheduling: bool
    host_s: float
    context_length: int
    drafts: int
    """of a request and step; 0: nothing is drafted"""
    draft_cost: float
    """of a draft's pass, as a share of a step"""
    lookahead: int
    """positions behind a step's own for which a request holds blocks"""
    first_step: int
    """positions behind what is known that a first step with drafts needs; 0: none"""
    slots: int
    """tokens of a step's budget that a request takes beside its own"""
    key_ahead: int
    """tokens behind a block that its key covers"""
    drops_last: bool
    """whether the last block of what is found is computed again: for a head that looks at the next token, where keys do
    not cover that"""
    idle_poll_s: float
    """between two looks for transfers that are over, of a GPU that has nothing to compute"""
    hears_at_results: bool
    """whether it hears with a step's results of all that is over by then, not when the step was launched"""
    keys_ahead: int
    """blocks that may be cached before there can be room for more: in all steps that are scheduled without a pause, of
    all GPUs that begin together; and by what comes over a link at once"""
    tiered: bool
    """whether tiers stand behind the caches"""
    fenced: bool
    """whether blocks of a request that a step under way has are given back when that is over: KV of others may come
    into them. So it is not preempted before, and whoever needs blocks is not scheduled, nor those behind"""
    connected: bool
    """whether there is a KV connector: to tiers, or between GPUs with roles"""
    fails: bool
    """whether a request whose KV does not arrive ends with an error; else its GPU computes what is missing"""
    tables: int
    """of blocks, that each request has: one, or one for each group of layers"""
    grouped: bool
    """whether layers have groups"""
    names_keys: bool
    """whether an eviction is told with the key of the block in place of a request that had it"""
    one_by_one: bool
    """whether each running request is looked at in every step: with tiers and drafts, which look at blocks after every
    step, and in a pipeline, where a request is in one of several"""
    segment_ids: int
    """more than any segment has: names of answers that nobody continues begin there"""


class Engines(NamedTuple):
    """All that vLLM's schedulers keep, of every GPU."""

    settings: Settings
    gpus: Any
    jobs: Any
    preemptions: Any
    """(n,) how often each request was preempted"""
    blocks: Blocks
    running: Any
    """(GPUs, max_num_seqs) requests, in order of admission"""
    due: Any
    """(GPUs, max_num_seqs) the step in which each must be looked at"""
    crossing: Any
    """(GPUs, block_size) steady requests by phase: those of phase p need a block of each table in step p, p +
    block_size, …"""
    stirred: Any
    """(GPUs, block_size) those for which `tables.cross` does anything, by phase; with one table `crossing`"""
    looked_at: Any
    """(max_num_seqs,) room for rows of it"""
    steps: Any
    """(GPUs, `STEPS`)"""
    chosen: Any
    """(GPUs, `STEPS`, max_num_seqs)"""
    preempted: Any
    """(GPUs, `STEPS`, max_num_seqs) requests, in order"""
    finished: Any
    """(GPUs, `STEPS`, max_num_seqs) likewise"""
    fresh: Any
    """(GPUs, `STEPS`, max_num_seqs) likewise"""
    whole: Any
    """(GPUs, `STEPS`, max_num_seqs) `CHOSEN` of all requests, if somebody watches"""
    recent: Any
    """(GPUs, `RECENT`, 2): see `prebleexp.engines.recent`"""
    groups: Any
    """`Groups`; None: all layers look back to all, and have their blocks in common"""
    adapters: Any
    """`engines.vllm.adapters.Adapters`; None: no request has one"""
    speculation: Any
    """`engines.vllm.drafts.Speculation`; None: nothing is drafted"""
    cadence: Any
    """`engines.vllm.scheduling.Cadence`; None: every step may compute prompts"""
    parallel: Any
    """`engines.vllm.lockstep.Ranks` or `engines.vllm.pipelined.Pipeline`; None: each GPU steps alone, in one stage"""
