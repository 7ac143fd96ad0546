"""What E2 remembers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.policies import below, prefix_records, tpot
from prebleexp.policies.below import Below
from prebleexp.policies.growing import longer
from prebleexp.policies.tpot import Tpots
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, View
from prebleexp.sim.types import Setup, records

NS = 1e-9
NO_DECODE, REMAINING, TOTAL = range(3)
"""what `Settings.decode` may be"""

ROW = prefix_records.dtype(
    [
        ("users", np.int32),  # requests through the node that are in the window or unfinished
        *prefix_records.NODE,
        *prefix_records.LINK,
        ("requests", np.int32),  # requests of the window that go through the node and to the GPU
        ("up", np.int32),  # the GPU's link of the node's parent, as long as requests of the window or unfinished ones
        # go through the node to the GPU; 0: the parent is the root
        ("newer", np.int32),  # in the list of what the GPU holds and no unfinished request uses, by last use
        ("older", np.int32),
    ]
)
"""A cache line. Where a link serves, the GPU holds the node."""

ACCOUNT = np.dtype(
    [
        ("work_ns", np.int64),  # prefills of the prefix in the window that count for this GPU
        ("work_output", np.int64),  # likewise output, in units of `OUTPUT_UNIT`
        ("sent_ns", np.int64),  # the same of those that were sent to this GPU
        ("sent_output", np.int64),
        ("before", np.int32),  # in the list of the GPU's shared prefixes: links
        ("behind", np.int32),
        ("listed", np.int32),  # it is in that list
        ("relieved", np.int32),  # another GPU serves the prefix in place of this one: …
        ("successor", np.int32),  # … this
        ("replica", np.int32),  # the GPU was told to cache the prefix as well
    ],
    align=True,
)
"""Of a link: what the GPU has to do with the prefix that the node is; nothing, if it is none."""

RECOMPUTED = np.dtype([("gpu", np.int32), ("own", np.int32), ("tokens", np.int64), ("seconds", np.float64)], align=True)
"""Of a link: what it took the GPU to compute so many own tokens of a node again, when that was last asked."""

PREFIX = prefix_records.dtype(
    [
        *prefix_records.PREFIX,
        ("apart", np.int32),  # accounts of GPUs that were relieved or are replicas
        ("early", np.int32),  # delays noted in the first half of the window, …
        ("late", np.int32),  # … in the second, …
        ("early_s", np.float64),  # … and their sums
        ("late_s", np.float64),
        ("epoch", np.int64),  # delays noted in an earlier one do not count
    ]
)

ROUTED = np.dtype(
    [
        ("prefill_ns", np.int64),  # of what its GPU did not hold
        ("output", np.int64),  # expected, in units of `OUTPUT_UNIT`
        ("epoch", np.int32),
        ("prefix", np.int32),
        ("gpu", np.int32),
        ("finished", np.int16),
        ("expired", np.int16),  # no longer in the window
        ("behind", np.int32),  # the next turn that was sent to the GPU, or -1
        ("oldest", np.int32),  # link of what it used last, in the list of its GPU; -1: none is there
    ],
    align=True,
)
"""A turn: that a request was routed. One that is lost with its GPU has several."""

SAMPLE = np.dtype(
    [("time", np.float64), ("delay_s", np.float64), ("epoch", np.int32), ("prefix", np.int32)],
    align=True,
)
"""The queueing delay of a finished request, and whose it is."""

GPU = np.dtype(
    [
        ("work_ns", np.int64),  # prefills of the window's requests that were sent to it, …
        ("output", np.int64),  # … their expected output, …
        ("requests", np.int64),  # … and how many there are
        ("unfinished", np.int64),  # expected output of its unfinished requests
        ("share_ns", np.int64),  # prefills of the prefixes that it serves from now on, …
        ("share_output", np.int64),  # … and output
        ("share_s", np.float64),  # … in seconds
        ("tpot_s", np.float64),  # per output token, as observed
        ("newest", np.int32),  # ends of the list of what it holds and no unfinished request uses, by last use: links, …
        ("oldest", np.int32),  # … or -1
        ("turn", np.int64),  # the last one that was sent to it, or -1
        ("held", np.int64),  # tokens of the prompt in hand that it holds, if that was looked up
        ("missing_s", np.float64),  # P, what the others take, …
        ("window_s", np.float64),  # … L, …
        ("load_s", np.float64),  # … and its load: as last summed, maybe without M
        ("shared", np.int64),  # first of the shared prefixes that it has work of: a link
    ],
    align=True,
)
"""Sums are of whole numbers."""

CONTROL = prefix_records.dtype(
    [
        *prefix_records.CONTROL,
        ("routed", np.int64),  # requests so far
        ("oldest", np.int64),  # of these, the first that is in the window
        ("samples", np.int64),  # delays so far
        ("first_early", np.int64),  # of these, the first that counts as early …
        ("first_late", np.int64),  # … and as late
    ]
)


class Settings(NamedTuple):
    """The policy's fields; thresholds are infinite where one is switched off."""

    window_s: float
    threshold: float
    replicate: float
    hit_ratio: float
    eviction_cost: bool
    request_cost: bool
    recompute: bool
    decode: int
    counted: bool
    """`Setup.counted`"""


class Tree(NamedTuple):
    """The prefix tree of E2 as the paper describes it: a `prefix_records.Tree` with accounts of each row's costs."""

    control: Any
    rows: Any
    begins: Any
    links: Any
    accounts: Any
    """(rows,) `ACCOUNT`"""
    recomputed: Any
    """(rows,) `RECOMPUTED`"""
    used: Any
    """(rows,) of a link that serves: the last turn that went through it"""
    prefixes: Any


class Memory(NamedTuple):
    settings: Settings
    tree: Tree
    gpus: Any
    routed: Any
    """(turns,) in order; those of the window are turns oldest … routed − 1. Room for one a request at first"""
    leaves: Any
    """(turns,) the node in which the prompt ends; -1 when the turn counts no more"""
    times: Any
    """(turns,) when that was"""
    turn: Any
    """(n,) each request's last; -1: another router had it"""
    samples: Any
    """(turns,) `SAMPLE`s in order of time, at most one of each turn"""
    tpots: Tpots
    asked: Any
    """(3 · GPUs,) which GPUs are asked for their load for the prompt in hand; one may be there several times"""
    below: Below
    """what tiers behind the caches have"""
    loads: Any
    """(tiers, 2) seconds that a load from each takes, and a token of it"""


def memory(setup: Setup, settings: Settings, tiers: bool) -> Memory:
    """The policy's memory before it routes anything."""
    n, rows, base = setup.requests, prefix_records.first_rows(setup), prefix_records.tree(setup, ROW, CONTROL)
    accounts, recomputed, prefixes = (prefix_records.made(rows, kind) for kind in (ACCOUNT, RECOMPUTED, PREFIX))
    gpus = prefix_records.made(setup.gpus, GPU)
    gpus.newest = gpus.oldest = gpus.shared = gpus.turn = NONE
    return Memory(
        settings,
        Tree(*base, accounts, recomputed, np.zeros(rows, np.int32), prefixes),
        gpus,
        prefix_records.made(n, ROUTED),
        np.zeros(n, np.int32),
        np.zeros(n),
        np.full(n, NONE, np.int32),
        records(n, SAMPLE),
        tpot.seeded(setup.gpus, 0.0),
        np.zeros(3 * setup.gpus, np.int64),
        below.below(setup, tiers),
        np.array(setup.loads_s),
    )


# ---------------------------------------------------------------- room
@compiled
def lacks_room(mine: Memory, view: View, request: int) -> int:
    """Whether routing the request may need more rows, prefixes or turns than there are."""
    full = mine.tree.control.routed == len(mine.routed)
    return int(full or prefix_records.lacks_room(mine.tree, _rows(mine, view, request)) != 0)


@compiled
def _rows(mine: Memory, view: View, request: int) -> int:
    """What routing it takes at most: two nodes, and links for each of its path, for each that a split copies, and for
    each prefix that is redirected or replicated."""
    return view.requests[request].segments + len(view.sent) + mine.tree.control.prefixes + 6


def with_more_room(mine: Any, view: Any, request: int) -> Memory:
    value: Memory = getattr(mine, "value", mine)
    if value.tree.control.routed == len(value.routed):
        value = value._replace(routed=longer(value.routed), leaves=longer(value.leaves), times=longer(value.times))
        value = value._replace(samples=longer(value.samples))
    return value._replace(tree=prefix_records.with_more_room(value.tree, _rows(value, view, request)))
