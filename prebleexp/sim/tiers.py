"""KV tiers behind the caches of GPUs: what a run knows of them (spec: engine-features.md, section 5).

A tier holds copies of full blocks, by the key that their engine knows them by: the host memory and the disk of each GPU
have those of that GPU, one store for the cluster has everybody's. What leaves a GPU's cache stays in a tier. What a
full one drops is in `prebleexp.sim.keeping`. A copy that is on its way to a tier, or from it to a GPU, is pinned, until
the GPU has heard that it is there.

Engines with tiers have `fetch`, `offload`, `landed`, `heard` and `part` (see `prebleexp.engines.base`), and call what
is here.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from prebleexp.sim.children import child_of
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, World
from prebleexp.sim.types import records

HOST, DISK, SHARED, PEERS = range(4)
"""in the order in which they are looked at; the last are no memory of their own, but what other GPUs have"""
TIERS = 4
UNHEARD = 1 << TIERS
"""in `Fetch.coming`: the GPU has not heard that all is there"""
NAMES = ("host", "disk", "shared", "peer")
"""in columns"""
ALWAYS, THRESHOLD, CHEAPER = range(3)
"""when KV is loaded: whenever it is there, from so many tokens on, or where that is sooner than to compute it"""

GO_ON, DEFERRED, NO_ROOM, FETCHING = range(4)
"""what `fetch` says: nothing is loaded; ask again at the next START; there are no blocks for it; it is under way"""

TIER = np.dtype(
    [
        ("blocks", np.int64),  # of each place
        ("rule", np.int64),  # when it is loaded from
        ("least_tokens", np.int64),
        ("adaptive", np.int64),  # whether it drops by ARC's rule, not by LRU's
        ("in_line", np.int64),  # whether its loads wait for each other
        ("threshold", np.int64),  # offers of a block, of which the last stores it
        ("first", np.int64),  # of its places on links: GPUs that load, GPUs that store, its own side of both
    ],
    align=True,
)

PLACE = np.dtype(
    [
        ("used", np.int64),  # copies that it has, …
        ("pinned", np.int64),  # … and those of them that are pinned
        ("ranks", np.int64),  # that were given
        ("target", np.float64),  # how many copies that were used once are to be kept (ARC)
    ],
    align=True,
)

KEPT, OFTEN, GONE, OFTEN_GONE, OFFERED = range(5)
"""Orders of a place, each from what was used longest ago on: copies (with ARC, those that were used once), and with ARC
those that were used more often; keys of either that were dropped; keys that were offered, where a block must be offered
more than once."""
ORDERS = 5
ORDER = np.dtype([(name, np.int64) for name in ("oldest", "newest", "entries")], align=True)

COPY = np.dtype(
    [
        ("rank", np.int64),  # what has a higher one is dropped later; in `OFFERED` how often it was offered
        ("key", np.int32),  # of the block, …
        ("number", np.int32),  # … and its number within a context; -1: where a request's copies begin in the order
        ("owner", np.int32),  # a request whose context has it
        ("place", np.int32),
        ("order", np.int32),
        ("pins", np.int32),
        ("store", np.int32),  # that brings it; -1: it is there
        ("older", np.int32),  # the next free one, if it is free
        ("newer", np.int32),
    ],
    align=True,
)

STORE = np.dtype(
    [
        ("step", np.int64),  # of its GPU, which computes what it brings, …
        ("waited_for", np.int64),  # … and bits: those that begin only when it is over
        ("attempt", np.int64),  # how often its request had been preempted
        ("gpu", np.int32),  # -1: it is over
        ("tier", np.int32),
        ("request", np.int32),  # whose blocks low … high − 1 it brings, as far as the tier did not have them
        ("low", np.int32),
        ("high", np.int32),
        ("blocks", np.int32),
        ("stage", np.int32),  # `UNSENT`, …
        ("counts", np.int32),  # whether its request counts it
        ("next", np.int32),  # free one, if it is free; else of those that are to be sent, or to be heard of
    ],
    align=True,
)
UNSENT, URGENT, SENT, OVER = range(4)
"""of a store: it waits for the step that computes what it brings; a step waits for it; it is under way; over, and not
heard of"""

FETCH = np.dtype(
    [
        ("low", np.int32),  # the first block that comes from a tier: `Tiers.ends` has where each tier's part ends
        ("coming", np.int32),  # bits: the tiers of which a transfer is under way
        ("peer", np.int32),  # GPU that the last part comes from, …
        ("copied", np.int32),  # … of its host's copies, or else …
        ("holds", np.int32),  # … of its cache's blocks, which are pinned for it there (the engine's)
        ("asked", np.int32),  # whether it is under way, or waits for the step in which it got its blocks
        ("fails", np.int32),  # whether a part of it does not arrive, and the request ends with that
        ("step", np.int64),  # that one, of its GPU
        ("next", np.int32),  # request whose KV is under way to the same GPU
    ],
    align=True,
)
"""Of a request."""

WANTED = np.dtype([("turn", np.int64), ("attempt", np.int64), ("low", np.int32), ("high", np.int32)], align=True)
"""Blocks low … high − 1 of what a request left, after it was preempted so often, if it is of the scheduling in hand."""

STOCK = np.dtype(
    [
        ("free_copy", np.int64),
        ("copies", np.int64),  # that were ever used
        ("free_store", np.int64),
        ("stores", np.int64),  # likewise
        ("numbers", np.int64),  # more than any context has blocks
        ("kv_bytes", np.float64),  # of a block …
        ("block_tokens", np.int64),  # … and its tokens
        ("tables", np.int64),  # of blocks, that each request has: their copies are numbered by turns, …
        ("told", np.int64),  # … and routers hear of those of which this is left
        ("peers", np.int64),  # whether what other GPUs have is looked for
        ("prompts_only", np.int64),  # whether answers are not stored
    ],
    align=True,
)


class Tiers(NamedTuple):
    """All of it; arrays of length 0 in a run without tiers."""

    control: Any
    """(1,) `STOCK`"""
    tiers: Any
    """(`TIERS`,) `TIER`"""
    places: Any
    """(2 GPUs + 1,) `PLACE`: hosts, disks, then the shared one"""
    orders: Any
    """(2 GPUs + 1, `ORDERS`) `ORDER`"""
    copies: Any
    slot_keys: Any
    """copies by (key, place and number): see `prebleexp.sim.children`"""
    slot_nodes: Any
    stores: Any
    """transfers to tiers, by number"""
    wanted: Any
    """(GPUs, n, tables) `WANTED`: blocks of each request that a scheduling takes or finds there, and that may be on
    their way to tiers"""
    turns: Any
    """(GPUs,) schedulings so far, and one more"""
    wants: Any
    """(GPUs,) whether any blocks are wanted by the one in hand"""
    unsent: Any
    """(GPUs, 2) the first and the last of the stores that are to be sent"""
    fetches: Any
    """(n,) `FETCH`"""
    ends: Any
    """(`TIERS`, n) the block behind the last one that comes from each tier: where the next one's part begins"""
    loading: Any
    """(GPUs,) the first of the requests whose KV is under way to each, in the order in which they got their blocks"""
    tried: Any
    """(`PEERS`, n) first blocks of each request that need not be offered again"""
    jobs: Any
    """(n,) stores of each request that are not heard of"""
    uses: Any
    """(`PEERS`, context blocks of all requests) bits `USED` … `MISSED`"""
    first: Any
    """(n + 1,) where each request's begin"""
    markers: Any
    """(`PEERS`, n) the copy that stands for where a request's begin in the order; -1: it has used nothing"""
    tokens: Any
    """(`TIERS`, n) of each prompt, loaded from each tier"""
    totals: Any
    """(`TIERS`, GPUs) the same over all loads of a GPU"""
    looked: Any
    """(GPUs,) steps of which all that they fill was offered, …"""
    ended: Any
    """… and those of which all that finished by them was"""


@functools.cache
def nothing() -> Tiers:
    """What a run without tiers has, and writes nothing to."""
    none, ints = np.zeros((0, 0), np.int32), np.zeros(0, np.int64)
    return Tiers(
        control=records(0, STOCK),
        tiers=records(0, TIER),
        places=records(0, PLACE),
        orders=records(0, ORDER).reshape(0, ORDERS),
        copies=records(0, COPY),
        slot_keys=ints,
        slot_nodes=np.zeros(0, np.int32),
        stores=records(0, STORE),
        wanted=records(0, WANTED).reshape(0, 0, 0),
        turns=ints,
        wants=ints,
        unsent=np.zeros((0, 2), np.int64),
        fetches=records(0, FETCH),
        ends=none,
        loading=ints,
        tried=none,
        jobs=ints,
        uses=np.zeros((0, 0), np.uint8),
        first=ints,
        markers=none,
        tokens=none,
        totals=np.zeros((0, 0), np.int64),
        looked=ints,
        ended=ints,
    )


@compiled
def gpu_of(world: World, subject: int) -> int:
    """From or to which what is under way."""
    n = len(world.jobs)
    if subject < TIERS * n:
        return int(world.seen.requests[subject % n].gpu)
    return int(world.tiers.stores[subject - TIERS * n].gpu)


def is_loading(world: World, g: int) -> bool:
    """Whether KV is under way to a GPU from tiers."""
    return bool((world.tiers.loading[g : g + 1] != NONE).any())


def is_lending(world: World, g: int) -> bool:
    """Whether KV is under way from a GPU's cache, or its host, to other GPUs."""
    fetches = world.tiers.fetches
    return bool(((fetches.coming & 1 << PEERS != 0) & (fetches.peer == g)).any())


@compiled
def place_of(tiers: Tiers, tier: int, g: int) -> int:
    return len(tiers.places) - 1 if tier == SHARED else tier * (len(tiers.places) // 2) + g


@compiled
def copy_of(tiers: Tiers, place: int, key: int, number: int) -> int:
    """A block's copy at a place, on its way there or there; -1: it has none."""
    return child_of(tiers, key, place * tiers.control[0].numbers + number)


@compiled
def pin(tiers: Tiers, copy: int) -> None:
    one = tiers.copies[copy]
    one.pins += 1
    if one.pins == 1:
        tiers.places[one.place].pinned += 1


@compiled
def unpin(tiers: Tiers, copy: int) -> None:
    one = tiers.copies[copy]
    one.pins -= 1
    if one.pins == 0:
        tiers.places[one.place].pinned -= 1


@compiled
def want(tiers: Tiers, g: int, request: int, attempt: int, table: int, low: int, high: int) -> None:
    """The step that is being scheduled takes, or finds, blocks that a request has left. Those of an earlier attempt are
    stored: a request does not begin anew before."""
    one = tiers.wanted[g, request, table]
    if one.turn != tiers.turns[g] or one.attempt < attempt:
        one.turn, one.attempt, one.low, one.high = tiers.turns[g], attempt, low, high
    elif attempt < one.attempt:
        return
    one.low, one.high, tiers.wants[g] = min(one.low, low), max(one.high, high), 1


@compiled
def new_store(tiers: Tiers) -> int:
    """The number of a store that is not under way."""
    control = tiers.control[0]
    store = int(control.free_store)
    if store != NONE:
        control.free_store = tiers.stores[store].next
    else:
        store = int(control.stores)
        control.stores += 1
    return store


@compiled
def end_store(tiers: Tiers, store: int) -> None:
    tiers.stores[store].gpu, tiers.stores[store].next = NONE, tiers.control[0].free_store
    tiers.control[0].free_store = store
