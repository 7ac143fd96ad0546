"""Which blocks of a GPU are being stored: each knows the last offer of it, so that whoever takes it waits for that."""

from __future__ import annotations

from prebleexp.engines.vllm.copies import copy_of_gpu
from prebleexp.engines.vllm.group_records import FULL
from prebleexp.engines.vllm.records import Engines
from prebleexp.engines.vllm.runs import cut
from prebleexp.sim.compiled import chosen_by, compiled
from prebleexp.sim.records import NONE, World
from prebleexp.sim.tiers import PEERS


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
    holds, runs, tiers = mine.blocks.holds, mine.blocks.runs, world.tiers
    for table in range(mine.settings.tables):
        one = _holds(mine, request, table)
        while one != NONE:
            run, left = int(holds[one].run), int(holds[one].blocks)
            while left > 0:
                leaver = int(runs[run].leaver)
                if leaver != NONE:
                    tiers.wanted[g, leaver], tiers.wants[g] = max(tiers.wanted[g, leaver], runs[run].ticket), 1
                left -= int(runs[run].high - runs[run].low)
                run = int(runs[run].above)
            one = int(holds[one].before)


@compiled
def write_tickets(mine: Engines, world: World, g: int, request: int, full: int, ticket: int) -> None:
    """Of a request that is about to give its blocks back, and offers those before `full` with this ticket."""
    for table in range(mine.settings.tables):
        _write_tickets(mine, world, g, request, table, full, ticket)


@compiled
def _write_tickets(mine: Engines, world: World, g: int, request: int, table: int, full: int, ticket: int) -> None:
    holds, runs, one = mine.blocks.holds, mine.blocks.runs, _holds(mine, request, table)
    while one != NONE:
        run, left = int(holds[one].run), int(holds[one].blocks)
        while left > 0:
            above, size = int(runs[run].above), int(runs[run].high - runs[run].low)
            _write_ticket(mine, world, g, request, table, run, full, ticket)
            left -= size
            run = above
        one = int(holds[one].before)


@compiled
def _write_ticket(
    mine: Engines, world: World, g: int, request: int, table: int, run: int, full: int, ticket: int
) -> None:
    """Of the blocks of a run, which is cut where it changes."""
    runs, at, high = mine.blocks.runs, int(mine.blocks.runs[run].low), int(mine.blocks.runs[run].high)
    while at < high:
        theirs, until = _ticket_of(mine, world, g, request, table, at, full, ticket), at + 1
        while until < high and _ticket_of(mine, world, g, request, table, until, full, ticket) == theirs:
            until += 1
        if theirs == 0 and until == high:
            return
        piece = cut(mine, g, run, until) if until < high else run
        if theirs != 0:
            runs[piece].ticket, runs[piece].leaver = theirs, request
        at = until


@compiled
def _ticket_of(
    mine: Engines, world: World, g: int, request: int, table: int, block: int, full: int, ticket: int
) -> int:
    tiers, theirs = world.tiers, 0
    for tier in range(PEERS):
        if tiers.tiers[tier].blocks > 0:
            if tiers.tried[tier, request] <= block < full:
                return ticket
            copy = copy_of_gpu(mine, world, tier, g, request, table, block)
            if copy != NONE and tiers.copies[copy].store != NONE:
                store = tiers.stores[tiers.copies[copy].store]
                if store.request == request and store.gpu == g:
                    theirs = max(theirs, int(store.ticket))
    return theirs


# ---------------------------------------------------------------- windows
@compiled
def _nothing(mine: Engines, world: World, g: int, request: int) -> None:
    """Whoever runs keeps its blocks."""


@compiled
def _write_at_once(mine: Engines, world: World, g: int, request: int) -> None:
    for table in range(len(mine.groups.all)):
        if mine.groups.all[table].kind != FULL:
            _write_tickets(mine, world, g, request, table, 0, 0)
            mine.groups.tables[request, table].answer = NONE  # what follows is a run of its own


write_at_once = chosen_by("groups", _nothing, _write_at_once)
"""blocks that are behind a window may be taken while their request runs"""
