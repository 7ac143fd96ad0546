"""The arrays of a continuously batching engine: made for a run, and made larger when it needs more than was guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from prebleexp.engines.batch import Batches
from prebleexp.engines.records import GPU, JOB, WAITING, Batching, Window
from prebleexp.sim.arrays import copy_written, move_up
from prebleexp.sim.records import NONE
from prebleexp.sim.types import Setup, records

if TYPE_CHECKING:
    from prebleexp.sim.comer import Coming

LEAST = 16
"""rows"""
ROOM = 4
"""times as many rows as are wanted are there when an array is outgrown: what nobody writes to takes no memory"""


def batching(setup: Setup, groups: int) -> Batching:
    n, gpus = len(setup.workload), setup.gpus
    rows = min(max(LEAST, 2 * n // gpus), 2048)
    state, jobs = records(gpus, GPU), records(n, JOB)
    state.working = state.fresh = NONE
    state.batch_capacity = state.window_capacity = rows
    state.batch_offset = state.window_offset = np.arange(gpus) * rows
    jobs.next = NONE
    jobs.target = np.minimum(setup.workload.output_tokens, setup.workload.max_new_tokens)
    total = gpus * rows
    return Batching(
        state,
        jobs,
        Batches(np.zeros(total, np.int64), np.zeros(total, np.int32), np.zeros(total, np.int32)),
        records(total, WAITING),
        Window(np.zeros(total), np.zeros(total, np.int64), np.zeros(total, np.int64)),
        np.zeros((gpus + 1, groups + 1), np.int64),
        np.zeros(n, np.int32),
        records(rows, WAITING),
    )


def come(mine: Batching, row: int, one: Coming) -> None:
    """A request comes while the run is stepped."""
    job = records(1, JOB)
    job.next, job.target = NONE, one.target
    mine.jobs[row] = job[0]


def with_more(mine: Batching, g: int, outstanding: int) -> Batching:
    """Half as many rows again for a GPU as it has requests, or twice as many of its hit window, whichever it lacks.
    Those of the GPUs behind it move: what all have is what all need, also where most requests wait on few GPUs."""
    gpu, behind, last = mine.gpus[g], mine.gpus[g + 1 :], mine.gpus[-1]
    if gpu.window_capacity <= gpu.window_rows + 1:
        used = int(last.window_offset + last.window_capacity)
        capacity, start = int(gpu.window_capacity), int(gpu.window_offset)
        ring = slice(start, start + capacity)
        for column in mine.window:
            column[ring] = np.roll(column[ring], -int(gpu.window_first))
        gpu.window_first, gpu.window_capacity = 0, 2 * capacity
        behind.window_offset += capacity
        longer = (_with_gap(column, start + capacity, used, capacity) for column in mine.window)
        mine = mine._replace(window=Window(*longer))
    if gpu.batch_capacity <= outstanding + 1:
        used = int(last.batch_offset + last.batch_capacity)
        end = int(gpu.batch_offset + gpu.batch_capacity)
        wanted = outstanding + max(LEAST, outstanding // 2)
        more = wanted - int(gpu.batch_capacity)
        gpu.batch_capacity = wanted
        behind.batch_offset += more
        batches = Batches(*(_with_gap(column, end, used, more) for column in mine.batches))
        merge = mine.merge if len(mine.merge) >= wanted else records(wanted, WAITING)
        mine = mine._replace(batches=batches, waiting=_with_gap(mine.waiting, end, used, more), merge=merge)
    return mine


def _with_gap(column: Any, end: int, used: int, more: int) -> Any:
    """With so many more rows before row `end`, of those that are used. There is room for others from the first time on,
    so that a column which takes much memory is hardly ever there twice."""
    if used + more > len(column):
        longer = np.zeros(ROOM * (used + more), column.dtype).view(type(column))
        copy_written(longer, column[:used])
        column = longer
    move_up(column[end : used + more], more)
    return column
