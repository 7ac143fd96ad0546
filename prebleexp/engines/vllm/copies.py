"""Copies that tiers have of a context's blocks, and which of them whoever loads it needs.

Blocks of several tables are numbered by turns: of a request's copies those of later positions are dropped first, and of
one position those of the first table.

Whoever takes a block that a request has left while it is being stored waits for that.
"""

from __future__ import annotations

from prebleexp.engines.vllm.blocks import found_run, key_of, segment_at
from prebleexp.engines.vllm.group_lookup import FULL, behind
from prebleexp.engines.vllm.group_tables import kept
from prebleexp.engines.vllm.offered import between
from prebleexp.engines.vllm.records import Engines
from prebleexp.engines.vllm.runs import cut
from prebleexp.sim.children import child_of
from prebleexp.sim.compiled import chosen_by, compiled
from prebleexp.sim.records import NONE, World
from prebleexp.sim.tiers import PEERS, copy_of, place_of, want


@compiled
def copy_at(mine: Engines, world: World, tier: int, request: int, table: int, block: int) -> int:
    """Which copy of a block a tier has for the GPU where the request is; -1: none."""
    return copy_of_gpu(mine, world, tier, int(world.seen.requests[request].gpu), request, table, block)


@compiled
def copy_of_gpu(mine: Engines, world: World, tier: int, g: int, request: int, table: int, block: int) -> int:
    """The same at the place of any GPU."""
    place, number = place_of(world.tiers, tier, g), number_of(mine, table, block)
    return copy_of(world.tiers, place, key_of(mine, world, request, block), number)


@compiled
def number_of(mine: Engines, table: int, block: int) -> int:
    """Of a block of a context, among those of all tables."""
    return (block + 1) * mine.settings.tables - 1 - table


@compiled
def _every(mine: Engines, request: int, end: int) -> int:
    return end * mine.settings.block_size


@compiled
def _but_the_last(mine: Engines, request: int, end: int) -> int:
    tokens = end * mine.settings.block_size
    if mine.groups.full == len(mine.groups.order):
        return tokens
    return min(tokens, int(mine.jobs[request].known) - 1)


reached = chosen_by("groups", _every, _but_the_last)
"""the tokens of which a request has KV that loads its blocks before `end`: with windows, not of the last one known"""


@compiled
def all_of(mine: Engines, table: int, computed: int) -> int:
    return 0


@compiled
def _in_window(mine: Engines, table: int, computed: int) -> int:
    group = mine.groups.all[table]
    return behind(int(group.kind), int(group.window), computed, mine.settings.block_size)


needed_from = chosen_by("groups", all_of, _in_window)
"""the first block of a table that whoever has so many tokens computed needs"""


@compiled
def needed_between(mine: Engines, low: int, high: int, computed: int) -> int:
    """How many of the blocks low … high − 1 of all tables whoever has so many tokens computed needs."""
    blocks = 0
    for table in range(mine.settings.tables):
        blocks += max(0, high - max(low, needed_from(mine, table, computed)))
    return blocks


# ---------------------------------------------------------------- what is offered
@compiled
def _each(mine: Engines, world: World, request: int, table: int, block: int) -> bool:
    return True


@compiled
def _is_listed(mine: Engines, world: World, request: int, number: int, block: int) -> bool:
    table, group = mine.groups.tables[request, number], mine.groups.all[number]
    if group.kind == FULL:
        return True
    low, high = kept(mine, world, request, group, block, 0)
    if block < table.first or not low <= block < high or table.gone_from <= block < table.gone_to:
        return False
    if mine.jobs[request].finished == 0 and block >= table.low:
        return True
    g, segment = int(world.seen.requests[request].gpu), segment_at(mine, world, request, 0, block)
    run, _ = found_run(mine, world, g, request, segment, block, block + 1, int(group.key), NONE)
    return run != NONE


is_offered = chosen_by("groups", _each, _is_listed)
"""whether a full block of a table is offered to tiers"""


# ---------------------------------------------------------------- which blocks are on their way there
@compiled
def _of_job(mine: Engines, request: int, table: int) -> int:
    return int(mine.jobs[request].holds)


@compiled
def _of_table(mine: Engines, request: int, table: int) -> int:
    return int(mine.groups.tables[request, table].holds)


_holds = chosen_by("groups", _of_job, _of_table)
"""the last of what a request holds in a table"""


@compiled
def want_held(mine: Engines, world: World, g: int, request: int) -> None:
    """The step that is scheduled does not begin before those blocks of a request are stored which others left."""
    holds, runs = mine.blocks.holds, mine.blocks.runs
    for table in range(mine.settings.tables):
        one = _holds(mine, request, table)
        while one != NONE:
            run, left = int(holds[one].run), int(holds[one].blocks)
            while left > 0:
                low, high = int(runs[run].low), int(runs[run].high)
                leaver, attempt = int(runs[run].leaver), int(runs[run].attempt)
                if leaver != NONE:
                    of = int(runs[run].key % mine.settings.tables)
                    want(world.tiers, g, leaver, attempt, of, low, high)
                left, run = left - (high - low), int(runs[run].above)
            one = int(holds[one].before)


@compiled
def is_wanted(mine: Engines, world: World, g: int, store: int) -> bool:
    """Whether a store brings blocks that the step just scheduled takes or finds. Of those that are offered in that
    scheduling, with their request at its end, blocks of tables with a window are not looked at."""
    tiers, one = world.tiers, world.tiers.stores[store]
    late, told = one.step == mine.gpus[g].scheduled - 1, mine.settings.tables - 1 - int(tiers.control[0].told)
    for table in range(mine.settings.tables):
        of = tiers.wanted[g, one.request, (table - told) % mine.settings.tables]
        if of.turn != tiers.turns[g] or of.attempt != one.attempt or (late and not looks_back_to_all(mine, table)):
            continue
        for block in range(max(one.low, of.low), min(one.high, of.high)):
            if brought(mine, world, store, table, block) != NONE:
                return True
    return False


@compiled
def _always(mine: Engines, table: int) -> bool:
    return True


@compiled
def _if_full(mine: Engines, table: int) -> bool:
    return bool(mine.groups.all[table].kind == FULL)


looks_back_to_all = chosen_by("groups", _always, _if_full)


@compiled
def brought(mine: Engines, world: World, store: int, table: int, block: int) -> int:
    """The copy of a block that a store brings; -1: it does not bring it. Its request may be on another GPU by now."""
    one = world.tiers.stores[store]
    copy = copy_of_gpu(mine, world, int(one.tier), int(one.gpu), int(one.request), table, block)
    return copy if copy != NONE and world.tiers.copies[copy].store == store else NONE


@compiled
def leave(mine: Engines, world: World, g: int, request: int, full: int) -> None:
    """A request is about to give its blocks back, and offers those before `full`: of these and of those that are being
    stored it stays known who had them."""
    for table in range(mine.settings.tables):
        _leave(mine, world, g, request, table, full)


@compiled
def _leave(mine: Engines, world: World, g: int, request: int, table: int, full: int) -> None:
    holds, runs, one = mine.blocks.holds, mine.blocks.runs, _holds(mine, request, table)
    while one != NONE:
        run, left = int(holds[one].run), int(holds[one].blocks)
        while left > 0:
            above, size = int(runs[run].above), int(runs[run].high - runs[run].low)
            _leave_run(mine, world, g, request, table, run, full)
            left, run = left - size, above
        one = int(holds[one].before)


@compiled
def _leave_run(mine: Engines, world: World, g: int, request: int, table: int, run: int, full: int) -> None:
    """A run is cut where it changes whether its blocks are stored."""
    runs, at, high = mine.blocks.runs, int(mine.blocks.runs[run].low), int(mine.blocks.runs[run].high)
    while at < high:
        stored, until = _is_stored(mine, world, g, request, table, at, full), at + 1
        while until < high and _is_stored(mine, world, g, request, table, until, full) == stored:
            until += 1
        piece = cut(mine, g, run, until) if until < high else run
        if stored:
            runs[piece].leaver, runs[piece].attempt = request, mine.preemptions[request]
        at = until


@compiled
def _is_stored(mine: Engines, world: World, g: int, request: int, table: int, block: int, full: int) -> bool:
    """Whether a block that a request leaves is being stored for it, or may be when the next step is scheduled."""
    tiers = world.tiers
    for tier in range(PEERS):
        if tiers.tiers[tier].blocks == 0:
            continue
        low, high = between(mine, world, tier, request, table, full, 0)
        if low <= block < high:
            return is_offered(mine, world, request, table, block)
        copy = copy_of_gpu(mine, world, tier, g, request, table, block)
        if copy != NONE and tiers.copies[copy].store != NONE:
            store = tiers.stores[tiers.copies[copy].store]
            if store.request == request and store.gpu == g:
                return True
    return False


# ---------------------------------------------------------------- windows
@compiled
def _nothing(mine: Engines, world: World, g: int, request: int, low: int, high: int) -> None:
    """Whoever runs keeps its blocks."""


@compiled
def _leave_windows(mine: Engines, world: World, g: int, request: int, low: int, high: int) -> None:
    for table in range(len(mine.groups.all)):
        if mine.groups.all[table].kind != FULL:
            _leave(mine, world, g, request, table, 0)
            mine.groups.tables[request, table].answer = NONE  # what follows is a run of its own
            left = high if mine.jobs[request].finished != 0 else int(mine.groups.tables[request, table].low)
            for block in range(low, left):
                _has_left(mine, world, g, request, table, block)


@compiled
def _has_left(mine: Engines, world: World, g: int, request: int, table: int, block: int) -> None:
    """A block that was given up before it was offered: it is cached yet, and nobody has it."""
    if not _is_stored(mine, world, g, request, table, block, 0):
        return
    runs = mine.blocks.runs
    run = first = child_of(
        mine.blocks, g, key_of(mine, world, request, block) * mine.settings.tables + int(mine.groups.all[table].key)
    )
    while run != NONE and not (runs[run].owner == request and runs[run].low <= block < runs[run].high):
        run = int(runs[run].newer)
        if run == first:
            return
    if run != NONE:
        run = cut(mine, g, run, block + 1) if runs[run].high > block + 1 else run
        if runs[run].low < block:
            cut(mine, g, run, block)
        runs[run].leaver, runs[run].attempt = request, mine.preemptions[request]


leave_windows = chosen_by("groups", _nothing, _leave_windows)
"""blocks low … high − 1 were offered; those that are behind a window may be taken while their request runs"""
