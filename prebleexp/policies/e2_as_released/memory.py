"""What E2 as released remembers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.policies import prefix_records, tpot
from prebleexp.policies.growing import longer
from prebleexp.policies.tpot import Tpots
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup, records

FIRST_TPOT_S = 0.15

ROW = prefix_records.dtype(
    [
        *prefix_records.NODE,
        *prefix_records.LINK,
        ("depth", np.int32),  # as the release counts it
        ("delays", np.int32),  # its row of `Tree.delays`, if any was noted here; 0: none was
        ("subtree_gpu", np.int32),  # the GPU that its subtree was last given to as a whole, …
        ("subtree_stamp", np.int64),  # … and when; a node below obeys if that is later than its own stamp
        ("stamp", np.int64),
        ("accessed", np.int64),  # when it was last touched: a counter, only its order matters
        ("expected_output", np.float64),  # of the request whose prompt ends here; NaN: not known
        ("output", np.int64),  # expected of the link's unfinished requests, in units of `OUTPUT_UNIT`
    ]
)

DELAYS = prefix_records.dtype(
    [
        ("first", np.int32),  # turns whose first token's delay was noted, if there are any
        ("last", np.int32),
        ("first_late", np.int32),  # of these, the first of the window's second half, if any as far as was looked
        ("early", np.int32),  # samples before it, …
        ("late", np.int32),  # … from it on, …
        ("early_s", np.float64),  # … and their sums, but for rounding
        ("late_s", np.float64),
    ]
)
"""Of a link. Few have any: those of nodes that requests count for."""

PREFIX = prefix_records.dtype(
    [
        *prefix_records.PREFIX,
        ("prompt", np.int64),  # prompt tokens of the window's requests
        ("hit", np.int64),  # of these, tokens that other prompts share
        ("miss", np.float64),  # 1 − hit / prompt, as of the last request
        ("output", np.float64),  # max_new_tokens of the last request
        ("output_sum", np.int64),  # expected of all of them, in units of `OUTPUT_UNIT`
    ]
)

ROUTED = np.dtype(
    [
        ("time", np.float64),  # when it was routed
        ("leaf", np.int32),  # node in which its prompt ends
        ("prefix", np.int32),
        ("output", np.int64),  # expected, in units of `OUTPUT_UNIT`
        ("sample_time", np.float64),
        ("sample_s", np.float64),
        ("next_sample", np.int64),
    ],
    align=True,
)
"""A turn: that a request was routed. One that is lost with its GPU has several."""

CONTROL = prefix_records.dtype(
    [
        *prefix_records.CONTROL,
        ("routed", np.int64),  # requests so far
        ("oldest", np.int64),  # of these, the first that is in the window
        ("delays", np.int64),  # rows of `Tree.delays` in use, but for the first
    ]
)


class Quirks(NamedTuple):
    """Whether a mistake is kept (see `prebleexp.policies.e2_released`)."""

    candidate_position: bool
    inert_oracle: bool
    last_decode_length: bool
    no_request_cost: bool


class Tree(NamedTuple):
    """See `prefix_records.Tree`."""

    control: Any
    rows: Any
    begins: Any
    links: Any
    delays: Any
    """(rows,) `DELAYS`, the first of nobody"""
    prefixes: Any
    order: Any
    """(prefixes,) room for a list of prefixes …"""
    costs: Any
    """… and their costs"""


class Memory(NamedTuple):
    quirks: Quirks
    tree: Tree
    routed: Any
    """(turns,) in order; those of the window are turns oldest … routed − 1. Room for one a request at first"""
    turn: Any
    """(n,) each request's last"""
    order: Any
    """GPUs by load when they were last rebalanced"""
    served: Any
    """(GPUs,) how many nodes of the last sum each serves"""
    held: Any
    """(GPUs,) tokens of the prompt in hand that each holds"""
    loads: Any
    """(GPUs,) seconds, as last summed, and as shifts have changed them"""
    tpots: Tpots


def memory(setup: Setup, quirks: Quirks) -> Memory:
    """The policy's memory before it routes anything."""
    n, gpus = setup.requests, setup.gpus
    rows, base = prefix_records.first_rows(setup), prefix_records.tree(setup, ROW, CONTROL)
    base.rows.expected_output[0] = np.nan
    made = (prefix_records.made(rows, kind) for kind in (DELAYS, PREFIX))
    tree = Tree(*base, *made, np.zeros(rows, np.int64), np.zeros(rows))  # type: ignore[call-arg]
    return Memory(  # type: ignore[call-arg]
        quirks,
        tree,
        records(n, ROUTED),
        np.zeros(n, np.int32),
        np.arange(gpus),
        *np.zeros((2, gpus), np.int64),
        np.zeros(gpus),
        tpot.seeded(gpus, FIRST_TPOT_S),
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
    each prefix that changes hands."""
    gpus = len(view.sent)
    return view.requests[request].segments + 4 + 2 * gpus + (mine.tree.control.prefixes + 1) * gpus


def with_more_room(mine: Any, view: Any, request: int) -> Memory:
    value: Memory = getattr(mine, "value", mine)
    if value.tree.control.routed == len(value.routed):
        value = value._replace(routed=longer(value.routed))
    return value._replace(tree=prefix_records.with_more_room(value.tree, _rows(value, view, request)))
