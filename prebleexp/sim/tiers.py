"""KV tiers behind the caches of GPUs: what a run knows of them (spec: clusters.md, section 3).

A tier holds copies of full blocks, by the key that their engine knows them by: the host memory and the disk of each GPU
have those of that GPU, one store for the cluster has everybody's. What leaves a GPU's cache stays in a tier. Full, a
tier drops the copy that was used longest ago; of those that were used at once, one prompt's later blocks go first. A
copy that is on its way to a tier, or from it to a GPU, is pinned.

Engines with tiers have `fetch`, `offload` and `landed` (see `prebleexp.engines.base`), and call what is here.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from prebleexp.sim.children import child_of, remove_child, set_child
from prebleexp.sim.compiled import compiled
from prebleexp.sim.news import tell
from prebleexp.sim.records import DROPPED, NONE, World
from prebleexp.sim.types import records

HOST, DISK, SHARED, PEERS = range(4)
"""in the order in which they are looked at; the last are no memory of their own, but what other GPUs have"""
TIERS = 4
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
        ("first", np.int64),  # of its places on links: GPUs that load, GPUs that store, its own side of both
    ],
    align=True,
)

PLACE = np.dtype([(name, np.int64) for name in ("used", "pinned", "oldest", "newest")], align=True)
"""Copies that it has, those of them that are pinned, and all in order of their last use."""

COPY = np.dtype(
    [
        ("key", np.int32),  # of the block, …
        ("number", np.int32),  # … and its number within a context
        ("owner", np.int32),  # a request whose context has it
        ("place", np.int32),
        ("pins", np.int32),
        ("store", np.int32),  # that brings it; -1: it is there
        ("older", np.int32),  # the next free one, if it is free
        ("newer", np.int32),
    ],
    align=True,
)

STORE = np.dtype(
    [
        ("gpu", np.int32),  # -1: it is over
        ("tier", np.int32),
        ("request", np.int32),  # whose blocks low … high − 1 it brings, as far as the tier did not have them
        ("low", np.int32),
        ("high", np.int32),
        ("holds", np.int32),  # the engine's: what is pinned for it on the GPU
        ("next", np.int32),  # free one, if it is free
    ],
    align=True,
)

FETCH = np.dtype(
    [
        ("low", np.int32),  # the first block that comes from a tier: `Tiers.ends` has where each tier's part ends
        ("coming", np.int32),  # bits: the tiers of which a transfer is under way
        ("peer", np.int32),  # GPU that the last part comes from, …
        ("copied", np.int32),  # … of its host's copies, or else …
        ("holds", np.int32),  # … of its cache's blocks, which are pinned for it there (the engine's)
        ("next", np.int32),  # request whose KV is under way to the same GPU
    ],
    align=True,
)
"""Of a request."""

STOCK = np.dtype(
    [
        ("free_copy", np.int64),
        ("copies", np.int64),  # that were ever used
        ("free_store", np.int64),
        ("stores", np.int64),  # likewise
        ("numbers", np.int64),  # more than any context has blocks
        ("kv_bytes", np.float64),  # of a block …
        ("block_tokens", np.int64),  # … and its tokens
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
    copies: Any
    slot_keys: Any
    """copies by (key, place and number): see `prebleexp.sim.children`"""
    slot_nodes: Any
    stores: Any
    """transfers to tiers, by number"""
    fetches: Any
    """(n,) `FETCH`"""
    ends: Any
    """(`TIERS`, n) the block behind the last one that comes from each tier: where the next one's part begins"""
    loading: Any
    """(GPUs,) the first of the requests whose KV is under way to each"""
    tried: Any
    """(`TIERS`, n) first blocks of each request that were stored, or that a tier had or had no room for"""
    tokens: Any
    """(`TIERS`, n) of each prompt, loaded from each tier"""
    totals: Any
    """(`TIERS`, GPUs) the same over all loads of a GPU"""
    looked: Any
    """(GPUs,) steps of which all that they computed was looked at"""


@functools.cache
def nothing() -> Tiers:
    """What a run without tiers has, and writes nothing to."""
    none, ints = np.zeros((0, 0), np.int32), np.zeros(0, np.int64)
    return Tiers(
        control=records(0, STOCK),
        tiers=records(0, TIER),
        places=records(0, PLACE),
        copies=records(0, COPY),
        slot_keys=ints,
        slot_nodes=np.zeros(0, np.int32),
        stores=records(0, STORE),
        fetches=records(0, FETCH),
        ends=none,
        loading=ints,
        tried=none,
        tokens=none,
        totals=np.zeros((0, 0), np.int64),
        looked=ints,
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
    return len(world.tiers.loading) > 0 and bool(world.tiers.loading[g] != NONE)


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
def use(tiers: Tiers, copy: int) -> None:
    """It is used now: of all at its place it is dropped last."""
    _take_out(tiers, copy)
    _put_in(tiers, copy)


@compiled
def make_room(world: World, tier: int, place: int, copies: int) -> bool:
    """Drop copies until there is room for so many, but none that is pinned; false, and none, if that is not enough."""
    tiers = world.tiers
    at = tiers.places[place]
    excess = at.used + copies - tiers.tiers[tier].blocks
    if excess > at.used - at.pinned:
        return False
    copy = int(at.oldest)
    while excess > 0:
        newer = int(tiers.copies[copy].newer)
        if tiers.copies[copy].pins == 0:
            if world.told.dropped != 0:
                one = tiers.copies[copy]
                tell(world, DROPPED, int(one.owner), place, int(one.number) * tiers.control[0].block_tokens)
            drop(tiers, copy)
            excess -= 1
        copy = newer
    return True


@compiled
def add(tiers: Tiers, place: int, key: int, number: int, store: int) -> None:
    """A copy that this store brings, pinned until it is there."""
    control = tiers.control[0]
    copy = int(control.free_copy)
    if copy != NONE:
        control.free_copy = tiers.copies[copy].older
    else:
        copy = int(control.copies)
        control.copies += 1
    one = tiers.copies[copy]
    one.key, one.number, one.place, one.pins, one.store = key, number, place, 0, store
    one.owner = tiers.stores[store].request
    tiers.places[place].used += 1
    set_child(tiers, key, place * control.numbers + number, copy)
    _put_in(tiers, copy)
    pin(tiers, copy)


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


@compiled
def drop_all(tiers: Tiers, place: int) -> None:
    """Nothing of it is pinned."""
    while tiers.places[place].oldest != NONE:
        drop(tiers, int(tiers.places[place].oldest))


@compiled
def drop(tiers: Tiers, copy: int) -> None:
    one, control = tiers.copies[copy], tiers.control[0]
    _take_out(tiers, copy)
    remove_child(tiers, one.key, one.place * control.numbers + one.number)
    tiers.places[one.place].used -= 1
    one.older = control.free_copy
    control.free_copy = copy


@compiled
def _take_out(tiers: Tiers, copy: int) -> None:
    one, at = tiers.copies[copy], tiers.places[tiers.copies[copy].place]
    if one.older == NONE:
        at.oldest = one.newer
    else:
        tiers.copies[one.older].newer = one.newer
    if one.newer == NONE:
        at.newest = one.older
    else:
        tiers.copies[one.newer].older = one.older


@compiled
def _put_in(tiers: Tiers, copy: int) -> None:
    """Make a copy the newest of its place."""
    one, at = tiers.copies[copy], tiers.places[tiers.copies[copy].place]
    one.older, one.newer = at.newest, NONE
    if at.newest == NONE:
        at.oldest = copy
    else:
        tiers.copies[at.newest].newer = copy
    at.newest = copy
