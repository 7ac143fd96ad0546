"""Runs: cached blocks of one key that follow each other; where they are, who holds them, and which idle one is evicted
first (see `engines.vllm.blocks`)."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.vllm.records import Engines
from prebleexp.sim.children import child_of, remove_child, set_child
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE


@compiled
def add_run(mine: Engines, g: int, request: int, holder: Any, key: int, low: int, high: int, nobodys: bool) -> None:
    runs = mine.blocks.runs
    first = NONE if nobodys else child_of(mine.blocks, g, key)
    run = _new_run(mine)
    record = runs[run]
    record.key, record.low, record.high, record.holders = key, low, high, 1
    record.above, record.owner, record.leaver = NONE, request, NONE
    record.beyond = 0 if first == NONE else _highest(mine, first)
    if nobodys:  # will look for them
        record.older = record.newer = NONE
    elif first == NONE:
        record.older = record.newer = run
        set_child(mine.blocks, g, key, run)
        mine.blocks.control.keys += 1
    else:  # behind the newest
        record.older, record.newer = runs[first].older, first
        runs[runs[first].older].newer = runs[first].older = run
    add_hold(mine, holder, run, high - low)


@compiled
def cut(mine: Engines, g: int, run: int, at: int) -> int:
    """Cut off the blocks before `at`; returns the run that they make."""
    runs = mine.blocks.runs
    upper_index = _new_run(mine)
    upper, lower = runs[upper_index], runs[run]
    upper.key, upper.owner, upper.holders, upper.above = lower.key, lower.owner, lower.holders, lower.above
    upper.low, upper.high = lower.low, at
    upper.leaver, upper.attempt, upper.beyond = lower.leaver, lower.attempt, lower.beyond
    lower.low, lower.above = at, upper_index
    upper.older, upper.newer = run, lower.newer  # as old as the rest: it may as well come behind it
    runs[upper.newer].older = lower.newer = upper_index
    if lower.holders == 0:  # the later positions are evicted first
        upper.before, upper.behind = run, lower.behind
        if lower.behind == NONE:
            mine.gpus[g].last = upper_index
        else:
            runs[lower.behind].before = upper_index
        lower.behind = upper_index
    return upper_index


@compiled
def forget(mine: Engines, g: int, run: int) -> None:
    """A run has no blocks left."""
    runs, record = mine.blocks.runs, mine.blocks.runs[run]
    leave_queue(mine, g, run)
    newer, older, key = int(record.newer), int(record.older), int(record.key)
    if newer == run:
        remove_child(mine.blocks, g, key)
        mine.blocks.control.keys -= 1
    elif newer != NONE:
        runs[older].newer, runs[newer].older = newer, older
        if child_of(mine.blocks, g, key) == run:
            set_child(mine.blocks, g, key, newer)
    record.older = mine.blocks.control.free_run
    mine.blocks.control.free_run = run


@compiled
def _highest(mine: Engines, first: int) -> int:
    """Behind the last block of all runs of a key; what was there and was evicted, these had before."""
    runs, run, most = mine.blocks.runs, first, 0
    while True:
        most, run = max(most, int(runs[run].high)), int(runs[run].newer)
        if run == first:
            return most


@compiled
def neighbour(mine: Engines, run: int, key: int, block: int) -> int:
    """The run next to one in age that has a block: what was cut off a run is next to the rest. -1: neither has it."""
    runs = mine.blocks.runs
    if run != NONE and runs[run].key == key:
        for one in (int(runs[run].older), int(runs[run].newer)):
            if one != NONE and runs[one].low <= block and block < runs[one].high:
                return one
    return NONE


@compiled
def _new_run(mine: Engines) -> int:
    control = mine.blocks.control
    run = int(control.free_run)
    if run != NONE:
        control.free_run = mine.blocks.runs[run].older
    else:
        run = int(control.runs)
        control.runs += 1
    return run


# ---------------------------------------------------------------- the queue of idle runs
@compiled
def join_queue(mine: Engines, g: int, run: int) -> None:
    gpu, runs = mine.gpus[g], mine.blocks.runs
    runs[run].before, runs[run].behind = gpu.last, NONE
    if gpu.last == NONE:
        gpu.first = run
    else:
        runs[gpu.last].behind = run
    gpu.last = run


@compiled
def leave_queue(mine: Engines, g: int, run: int) -> None:
    gpu, runs = mine.gpus[g], mine.blocks.runs
    before, behind = int(runs[run].before), int(runs[run].behind)
    if before == NONE:
        gpu.first = behind
    else:
        runs[before].behind = behind
    if behind == NONE:
        gpu.last = before
    else:
        runs[behind].before = before


# ---------------------------------------------------------------- what requests hold
@compiled
def add_hold(mine: Engines, holder: Any, run: int, blocks: int) -> None:
    control, holds = mine.blocks.control, mine.blocks.holds
    one = int(control.free_hold)
    if one != NONE:
        control.free_hold = holds[one].before
    else:
        one = int(control.holds)
        control.holds += 1
    last, holder.holds = int(holder.holds), one
    holds[one].run, holds[one].blocks, holds[one].before, holds[one].behind = run, blocks, last, one
    if last != NONE:
        holds[one].behind, holds[last].behind = holds[last].behind, one


@compiled
def free_hold(mine: Engines, one: int) -> None:
    mine.blocks.holds[one].before = mine.blocks.control.free_hold
    mine.blocks.control.free_hold = one
