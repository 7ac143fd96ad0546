"""Which copies a full tier drops (docs/tiers.md says whose rules these are).

LRU. A request has a rank from its first use of anything on, and gives it to all that it uses: what it offers and is
stored, or found there, and what it loads; of these its later blocks go first. When it is finished it has used all of
that once more. In the order of a place, a marker stands where its copies begin.

ARC. What was used once, and what several requests used, are two orders. Keys that either has dropped are remembered:
whoever misses one of them makes that order's share larger. A request that is finished has used what it found.
"""

from __future__ import annotations

from prebleexp.sim.children import remove_child, set_child
from prebleexp.sim.compiled import compiled
from prebleexp.sim.news import tell
from prebleexp.sim.notices import DROPPED
from prebleexp.sim.records import NONE, World
from prebleexp.sim.tiers import (
    GONE,
    KEPT,
    OFFERED,
    OFTEN,
    OFTEN_GONE,
    PEERS,
    Tiers,
    copy_of,
    pin,
)

USED, STORED, FOUND, MISSED = 1, 2, 4, 8
"""of a block of a request's context, and a tier: it has used the copy; it had it stored, or found it there; it was not
there when it was offered"""
MOST_OFFERED = 64_000
"""keys of which a place knows how often they were offered"""


# ---------------------------------------------------------------- uses
@compiled
def use(tiers: Tiers, tier: int, request: int, place: int, key: int, number: int) -> None:
    """A request uses a block's copy, or is about to have it stored. What it has used before changes nothing."""
    at = int(tiers.first[request]) + number
    if tiers.uses[tier, at] & USED:
        return
    tiers.uses[tier, at] |= USED
    if tiers.tiers[tier].adaptive != 0:
        return
    rank = tiers.copies[_marker(tiers, tier, request, place)].rank
    copy = copy_of(tiers, place, key, number)
    if copy != NONE and tiers.copies[copy].rank < rank:
        _take_out(tiers, copy)
        _put_at_marker(tiers, tier, request, copy)


@compiled
def find(tiers: Tiers, tier: int, request: int, number: int) -> None:
    """A request has found a block's copy there, or loads it; one that it had stored itself tells nothing."""
    at = int(tiers.first[request]) + number
    if not tiers.uses[tier, at] & STORED:
        tiers.uses[tier, at] |= FOUND


@compiled
def touch(tiers: Tiers, copy: int) -> None:
    """It is lent to another GPU: of all that were used as often it is dropped last."""
    one = tiers.copies[copy]
    tiers.places[one.place].ranks += 1
    _take_out(tiers, copy)
    one.rank = tiers.places[one.place].ranks
    _put_before(tiers, copy, NONE)


@compiled
def _marker(tiers: Tiers, tier: int, request: int, place: int) -> int:
    marker = int(tiers.markers[tier, request])
    if marker == NONE:
        marker = _new_copy(tiers)
        tiers.markers[tier, request] = marker
        one, at = tiers.copies[marker], tiers.places[place]
        at.ranks += 1
        one.rank, one.number, one.place, one.order = at.ranks, NONE, place, KEPT
        _put_before(tiers, marker, NONE)
    return marker


@compiled
def _put_at_marker(tiers: Tiers, tier: int, request: int, copy: int) -> None:
    """Among those of its request: later blocks are older."""
    marker, one = int(tiers.markers[tier, request]), tiers.copies[copy]
    one.rank = tiers.copies[marker].rank
    behind = int(tiers.copies[marker].newer)
    while behind != NONE and tiers.copies[behind].rank == one.rank and tiers.copies[behind].number > one.number:
        behind = int(tiers.copies[behind].newer)
    _put_before(tiers, copy, behind)


@compiled
def finish(tiers: Tiers, tier: int, request: int, place: int, key_of_block: int, number: int) -> None:
    """A request that is finished has used a block: once for each, the last one first."""
    uses, copy = tiers.uses[tier, tiers.first[request] + number], copy_of(tiers, place, key_of_block, number)
    if copy == NONE or not uses & USED:
        return
    one = tiers.copies[copy]
    if tiers.tiers[tier].adaptive != 0:
        if not uses & (STORED | FOUND):
            return
        _take_out(tiers, copy)
        one.order = OFTEN if uses & FOUND else one.order
    else:
        tiers.places[place].ranks += 1
        _take_out(tiers, copy)
        one.rank = tiers.places[place].ranks
    _put_before(tiers, copy, NONE)


@compiled
def forget_uses(tiers: Tiers, request: int) -> None:
    """Whatever a request used, it begins anew."""
    for tier in range(PEERS):
        marker = int(tiers.markers[tier, request])
        if marker != NONE:
            _take_out(tiers, marker)
            _free(tiers, marker)
            tiers.markers[tier, request] = NONE
        tiers.tried[tier, request] = 0
        for at in range(tiers.first[request], tiers.first[request + 1]):
            tiers.uses[tier, at] = 0


# ---------------------------------------------------------------- offers
@compiled
def count(tiers: Tiers, tier: int, place: int, key: int, number: int) -> None:
    """A block is offered, where that matters."""
    if tiers.tiers[tier].threshold < 2:
        return
    copy = _elsewhere(tiers, place, OFFERED, key, number)
    if copy == NONE:
        if tiers.orders[place, OFFERED].entries >= MOST_OFFERED:
            _forget(tiers, int(tiers.orders[place, OFFERED].oldest))
        copy = _new_elsewhere(tiers, place, OFFERED, key, number)
    else:
        _take_out(tiers, copy)
        _put_before(tiers, copy, NONE)
    tiers.copies[copy].rank += 1


@compiled
def is_wanted(tiers: Tiers, tier: int, place: int, key: int, number: int) -> bool:
    """Whether a block that is not there was offered often enough to be stored."""
    threshold = int(tiers.tiers[tier].threshold)
    if threshold < 2:
        return True
    copy = _elsewhere(tiers, place, OFFERED, key, number)
    return bool(copy != NONE and tiers.copies[copy].rank >= threshold)


@compiled
def miss(tiers: Tiers, tier: int, request: int, place: int, key: int, number: int) -> None:
    """A block that is to be stored is not there: with ARC, was it dropped lately? A request is asked once."""
    at = int(tiers.first[request]) + number
    if tiers.tiers[tier].adaptive == 0 or tiers.uses[tier, at] & MISSED:
        return
    tiers.uses[tier, at] |= MISSED
    copy = _elsewhere(tiers, place, GONE, key, number)
    if copy == NONE:
        return
    of, once, often = tiers.places[place], tiers.orders[place, GONE].entries, tiers.orders[place, OFTEN_GONE].entries
    if tiers.copies[copy].order == GONE:
        of.target = min(of.target + max(1.0, often / once), float(tiers.tiers[tier].blocks))
    else:
        of.target = max(of.target - max(1.0, once / often), 0.0)
    _take_out(tiers, copy)
    _put_before(tiers, copy, NONE)


@compiled
def add(tiers: Tiers, tier: int, request: int, place: int, key: int, number: int, store: int) -> None:
    """A copy that this store brings, pinned until it is there."""
    ghost = _elsewhere(tiers, place, GONE, key, number)
    if ghost != NONE:
        _forget(tiers, ghost)
    copy = _new_copy(tiers)
    one = tiers.copies[copy]
    one.key, one.number, one.place, one.order, one.pins, one.store = key, number, place, KEPT, 0, store
    one.owner = request
    tiers.places[place].used += 1
    set_child(tiers, key, place * tiers.control[0].numbers + number, copy)
    if tiers.tiers[tier].adaptive != 0:
        _put_before(tiers, copy, NONE)
    else:
        _put_at_marker(tiers, tier, request, copy)
    tiers.uses[tier, tiers.first[request] + number] |= STORED
    pin(tiers, copy)


# ---------------------------------------------------------------- dropping
@compiled
def make_room(world: World, tier: int, place: int, copies: int) -> bool:
    """Drop copies until there is room for so many, but none that is pinned; false, and none, if that is not enough."""
    tiers = world.tiers
    at = tiers.places[place]
    excess = int(at.used + copies - tiers.tiers[tier].blocks)
    if excess > at.used - at.pinned:
        return False
    once, often = (
        _idle(tiers, int(tiers.orders[place, KEPT].oldest)),
        _idle(tiers, int(tiers.orders[place, OFTEN].oldest)),
    )
    while excess > 0:
        first = once != NONE and (often == NONE or tiers.orders[place, KEPT].entries >= int(at.target))
        copy = once if first else often
        if first:
            once = _idle(tiers, int(tiers.copies[copy].newer))
        else:
            often = _idle(tiers, int(tiers.copies[copy].newer))
        one, control = tiers.copies[copy], tiers.control[0]
        if world.told.hears[DROPPED] != 0 and one.number % control.tables == control.told:
            tell(world, DROPPED, int(one.owner), place, int(one.number) // control.tables * control.block_tokens)
        _drop(tiers, tier, copy)
        excess -= 1
    for order in (GONE, OFTEN_GONE):
        while tiers.orders[place, order].entries > tiers.tiers[tier].blocks:
            _forget(tiers, int(tiers.orders[place, order].oldest))
    return True


@compiled
def _idle(tiers: Tiers, copy: int) -> int:
    """The first from there on that may be dropped."""
    while copy != NONE and (tiers.copies[copy].pins > 0 or tiers.copies[copy].number == NONE):
        copy = int(tiers.copies[copy].newer)
    return copy


@compiled
def _drop(tiers: Tiers, tier: int, copy: int) -> None:
    one = tiers.copies[copy]
    key, number, place, order = int(one.key), int(one.number), int(one.place), int(one.order)
    drop(tiers, copy)
    if tiers.tiers[tier].adaptive != 0:
        ghost = _new_elsewhere(tiers, place, GONE, key, number)
        if order == OFTEN:
            _take_out(tiers, ghost)
            tiers.copies[ghost].order = OFTEN_GONE
            _put_before(tiers, ghost, NONE)


@compiled
def drop(tiers: Tiers, copy: int) -> None:
    one = tiers.copies[copy]
    _take_out(tiers, copy)
    remove_child(tiers, one.key, one.place * tiers.control[0].numbers + one.number)
    tiers.places[one.place].used -= 1
    _free(tiers, copy)


@compiled
def drop_all(tiers: Tiers, place: int) -> None:
    """Nothing of it is pinned; where requests' copies begin remains."""
    for order in (KEPT, OFTEN):
        copy = _idle(tiers, int(tiers.orders[place, order].oldest))
        while copy != NONE:
            behind = _idle(tiers, int(tiers.copies[copy].newer))
            drop(tiers, copy)
            copy = behind
    for order in (GONE, OFTEN_GONE, OFFERED):
        while tiers.orders[place, order].oldest != NONE:
            _forget(tiers, int(tiers.orders[place, order].oldest))
    tiers.places[place].target = 0.0


# ---------------------------------------------------------------- orders
@compiled
def _elsewhere(tiers: Tiers, place: int, order: int, key: int, number: int) -> int:
    """Of a block that is no copy: by what it is known among those that were dropped, or offered."""
    return copy_of(tiers, place + (2 if order == OFFERED else 1) * len(tiers.places), key, number)


@compiled
def _new_elsewhere(tiers: Tiers, place: int, order: int, key: int, number: int) -> int:
    copy, where = _new_copy(tiers), place + (2 if order == OFFERED else 1) * len(tiers.places)
    one = tiers.copies[copy]
    one.key, one.number, one.place, one.order, one.rank, one.pins = key, number, place, order, 0, 0
    set_child(tiers, key, where * tiers.control[0].numbers + number, copy)
    _put_before(tiers, copy, NONE)
    return copy


@compiled
def _forget(tiers: Tiers, copy: int) -> None:
    """One that is no copy."""
    one = tiers.copies[copy]
    where = one.place + (2 if one.order == OFFERED else 1) * len(tiers.places)
    _take_out(tiers, copy)
    remove_child(tiers, one.key, where * tiers.control[0].numbers + one.number)
    _free(tiers, copy)


@compiled
def _new_copy(tiers: Tiers) -> int:
    control = tiers.control[0]
    copy = int(control.free_copy)
    if copy != NONE:
        control.free_copy = tiers.copies[copy].older
    else:
        copy = int(control.copies)
        control.copies += 1
    tiers.copies[copy].pins, tiers.copies[copy].store = 0, NONE
    return copy


@compiled
def _free(tiers: Tiers, copy: int) -> None:
    tiers.copies[copy].older = tiers.control[0].free_copy
    tiers.control[0].free_copy = copy


@compiled
def _take_out(tiers: Tiers, copy: int) -> None:
    one = tiers.copies[copy]
    at = tiers.orders[one.place, one.order]
    at.entries -= 1
    if one.older == NONE:
        at.oldest = one.newer
    else:
        tiers.copies[one.older].newer = one.newer
    if one.newer == NONE:
        at.newest = one.older
    else:
        tiers.copies[one.newer].older = one.older


@compiled
def _put_before(tiers: Tiers, copy: int, newer: int) -> None:
    """Into its order, before another; -1: as the newest."""
    one = tiers.copies[copy]
    at = tiers.orders[one.place, one.order]
    at.entries += 1
    one.newer = newer
    one.older = at.newest if newer == NONE else tiers.copies[newer].older
    if one.older == NONE:
        at.oldest = copy
    else:
        tiers.copies[one.older].newer = copy
    if newer == NONE:
        at.newest = copy
    else:
        tiers.copies[newer].older = copy
