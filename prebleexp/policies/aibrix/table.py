"""AIBrix's table of prompt blocks: who was sent each, and which goes next (pkg/utils/prefixcacheindexer, lrustore).

A block is known by the whole prefix that it ends. A segment id stands for its whole path, so every prompt that goes
through a segment has all blocks that end in it, and puts them into the table together, in order. Of these, the first
that are gone are the first of the prompt: the table drops what was put longest ago, block by block. So what it holds of
a segment are its last blocks, as one run for each set of GPUs, next to each other in the order of putting.

Looking up does not touch a block there, only putting does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.policies.growing import longer
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import SEGMENTS, View
from prebleexp.sim.types import Setup, records

RUN = np.dtype(
    [
        ("segment", np.int32),
        ("low", np.int32),  # blocks low … high of every prompt through the segment
        ("high", np.int32),
        ("before", np.int32),  # put before it; 0: none. In the free list: the next free run
        ("behind", np.int32),
        ("put_s", np.float64),
    ],
    align=True,
)

CONTROL = np.dtype(
    [
        ("oldest", np.int64),
        ("newest", np.int64),
        ("blocks", np.int64),
        ("runs", np.int64),  # rows that were ever used
        ("free", np.int64),  # first of the free list; 0: none
    ],
    align=True,
)


class Table(NamedTuple):
    """AIBrix's prefix table: which GPUs were sent which blocks, kept as runs of blocks. Run 0 stands for none."""

    block: int
    """tokens"""
    most: int
    """blocks"""
    unused_s: float
    """after which a block goes …"""
    interval_s: float
    """… when this is next looked at"""
    control: Any
    runs: Any
    holders: Any
    """(runs, words) the GPUs that were sent each, 64 a word"""
    first: Any
    """(segment ids,) the first run of a segment; 0: none"""


def table(setup: Setup, block: int, most: int, unused_s: float, interval_s: float) -> Table:
    """An empty one. Each time that a prompt is put, a segment makes one run at most, and a run has a block at least."""
    rows = setup.segments + 2
    control = records(1, CONTROL)[0]
    control.runs = 1
    return Table(
        block,
        most,
        unused_s,
        interval_s,
        control,
        records(rows, RUN),
        np.zeros((rows, -(-setup.gpus // 64)), np.int64),
        np.zeros(setup.segment_ids, np.int32),
    )


@compiled
def lacks_room(table: Table, view: View, request: int) -> int:
    """Whether putting the prompt may need more runs than there are."""
    return int(table.control.runs + view.requests[request].segments > len(table.runs))


def with_more_room(table: Table, view: Any, request: int) -> Table:
    runs = table.runs
    while table.control.runs + view.requests[request].segments > len(runs):
        runs = longer(runs)
    holders = np.zeros((len(runs), table.holders.shape[1]), np.int64)
    holders[: len(table.holders)] = table.holders
    return table._replace(runs=runs, holders=holders)


@compiled
def blocks_of(table: Table, view: View, request: int) -> int:
    """How many whole blocks of `table.block` tokens the request's prompt has."""
    return int(view.requests[request].prompt_tokens) // table.block


# ---------------------------------------------------------------- looking up
@compiled
def shares(table: Table, view: View, request: int, ready: Any, percent: Any) -> None:
    """Write to percent[g] what whole percentage of the prompt's blocks, from the first on, GPU g was sent; -1: none, or
    it is not in `ready`: (words,) the GPUs that are asked for, of which those are left that were sent all."""
    percent[:] = -1
    prompt, blocks, at = view.requests[request], blocks_of(table, view, request), 0
    for row in range(prompt.first_segment, prompt.first_segment + prompt.segments):
        until = view.prompts.ends[row] // table.block
        if at < until:
            view.work[SEGMENTS] += 1
            at = _along(table, view.prompts.ids[row], at, until, blocks, ready, percent)
            if at < until:
                break
    for word in range(len(ready)):
        _note(percent, ready[word], word, at, blocks)


@compiled
def _along(table: Table, segment: int, at: int, until: int, blocks: int, ready: Any, percent: Any) -> int:
    """The first block of a segment, from its first on, that none of those in `ready` was sent."""
    run = int(table.first[segment])
    if run == 0 or table.runs[run].low > at:
        return at
    while at < until:
        left = False
        for word in range(len(ready)):
            sent = table.holders[run, word]
            _note(percent, ready[word] & ~sent, word, at, blocks)
            ready[word] &= sent
            left |= ready[word] != 0
        if not left:
            break
        at = int(table.runs[run].high)
        run = int(table.runs[run].behind)
    return at


@compiled
def _note(percent: Any, gpus: int, word: int, found: int, blocks: int) -> None:
    """These GPUs were sent so many blocks."""
    if gpus == 0 or found == 0:
        return
    share = 100 * found // blocks
    for gpu in range(64 * word, min(64 * word + 64, len(percent))):
        if (gpus >> (gpu & 63)) & 1 == 1:
            percent[gpu] = share


# ---------------------------------------------------------------- putting
@compiled
def put(table: Table, view: View, request: int, gpu: int, now: float) -> None:
    """The prompt is sent to the GPU."""
    prompt, low = view.requests[request], 0
    for row in range(prompt.first_segment, prompt.first_segment + prompt.segments):
        high = view.prompts.ends[row] // table.block
        if low < high:
            view.work[SEGMENTS] += 1
            _put(table, view.prompts.ids[row], low, high, gpu, now)
            low = high


@compiled
def _put(table: Table, segment: int, low: int, high: int, gpu: int, now: float) -> None:
    """Blocks low … high, all that end in the segment."""
    runs, fresh, at = table.runs, 0, low
    old = int(table.first[segment])
    until = high if old == 0 else int(runs[old].low)
    while at < until:
        if fresh == 0:
            fresh = _new(table, segment, at, gpu, now)
        runs[fresh].high = until
        table.control.blocks += until - at
        _drop(table, table.control.blocks - table.most)  # may take what is left of this very segment
        at = until
        old = int(table.first[segment])
        until = high if old == 0 or old == fresh else int(runs[old].low)
    if fresh != 0:
        table.first[segment] = fresh
    if old != 0 and old != fresh:
        _put_again(table, old, fresh, high, gpu, now)


@compiled
def _put_again(table: Table, run: int, last: int, high: int, gpu: int, now: float) -> None:
    """A segment's runs from this one on, the last of which ends before block `high`, come behind its run `last`."""
    runs, left = table.runs, True
    while left:
        behind, left = int(runs[run].behind), runs[run].high < high
        _unlink(table, run)
        table.holders[run, gpu >> 6] |= np.int64(1) << np.int64(gpu & 63)
        if last != 0 and _same(table, last, run):
            runs[last].high = runs[run].high
            _free(table, run)
        else:
            _append(table, run, now)
            last = run
        run = behind


@compiled
def _same(table: Table, one: int, other: int) -> bool:
    """Whether two runs were sent to the same GPUs."""
    for word in range(table.holders.shape[1]):  # noqa: SIM110
        if table.holders[one, word] != table.holders[other, word]:
            return False
    return True


# ---------------------------------------------------------------- dropping
@compiled
def expire(table: Table, now: float) -> None:
    """Drop what is unused for too long, as of the last time that anybody looked."""
    looked = now // table.interval_s * table.interval_s
    runs, run = table.runs, int(table.control.oldest)
    while run != 0 and looked - runs[run].put_s > table.unused_s:
        _drop(table, int(runs[run].high - runs[run].low))
        run = int(table.control.oldest)


@compiled
def _drop(table: Table, blocks: int) -> None:
    """Drop so many blocks, those first that were put longest ago."""
    while blocks > 0:
        run = int(table.control.oldest)
        record = table.runs[run]
        gone = min(blocks, int(record.high - record.low))
        record.low += gone
        blocks -= gone
        table.control.blocks -= gone
        if record.low == record.high:
            behind = int(record.behind)
            goes_on = behind != 0 and table.runs[behind].segment == record.segment
            table.first[record.segment] = behind if goes_on else 0
            _unlink(table, run)
            _free(table, run)


# ---------------------------------------------------------------- runs, in the order of putting
@compiled
def _new(table: Table, segment: int, low: int, gpu: int, now: float) -> int:
    """The newest run, without blocks so far."""
    control = table.control
    run = int(control.free)
    if run != 0:
        control.free = table.runs[run].before
    else:
        run = int(control.runs)
        control.runs += 1
    record = table.runs[run]
    record.segment, record.low, record.high = segment, low, low
    table.holders[run] = 0
    table.holders[run, gpu >> 6] = np.int64(1) << np.int64(gpu & 63)
    _append(table, run, now)
    return run


@compiled
def _free(table: Table, run: int) -> None:
    table.runs[run].before = table.control.free
    table.control.free = run


@compiled
def _append(table: Table, run: int, now: float) -> None:
    record, newest = table.runs[run], int(table.control.newest)
    record.before, record.behind, record.put_s = newest, 0, now
    if newest == 0:
        table.control.oldest = run
    else:
        table.runs[newest].behind = run
    table.control.newest = run


@compiled
def _unlink(table: Table, run: int) -> None:
    before, behind = int(table.runs[run].before), int(table.runs[run].behind)
    if before == 0:
        table.control.oldest = behind
    else:
        table.runs[before].behind = behind
    if behind == 0:
        table.control.newest = before
    else:
        table.runs[behind].before = before
