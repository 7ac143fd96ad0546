"""The arrays of a continuously batching engine: made for a run, and made larger when it needs more than was guessed."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.engines.batch import Batches
from prebleexp.engines.records import GPU, JOB, WAITING, Batching, Window
from prebleexp.sim.records import NONE
from prebleexp.sim.types import Setup, records


def batching(setup: Setup, groups: int) -> Batching:
    n, gpus = len(setup.workload), setup.gpus
    rows = min(max(16, 2 * n // gpus), 2048)
    state, jobs = records(gpus, GPU), records(n, JOB)
    state.working = NONE
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


def with_more(mine: Batching, g: int, outstanding: int) -> Batching:
    """Twice the rows of a GPU, or more if it has more requests. They move to the end of the arrays; those it had stay
    unused."""
    gpu = mine.gpus[g]
    wanted = 2 * max(int(gpu.batch_capacity), int(gpu.window_capacity), outstanding + 2)

    def moved(column: Any, offset: int, capacity: int, first: int = 0) -> Any:
        rows = np.roll(column[offset : offset + capacity], -first)
        return np.concatenate([column, rows, np.zeros(wanted - capacity, column.dtype)]).view(type(column))

    offset, capacity = int(gpu.batch_offset), int(gpu.batch_capacity)
    batches = Batches(*(moved(column, offset, capacity) for column in mine.batches))
    waiting = moved(mine.waiting, offset, capacity)
    first = int(gpu.window_first)
    window = Window(*(moved(column, int(gpu.window_offset), int(gpu.window_capacity), first) for column in mine.window))
    gpu.batch_offset, gpu.window_offset = len(mine.waiting), len(mine.window.times)
    gpu.batch_capacity = gpu.window_capacity = wanted
    gpu.window_first = 0
    merge = mine.merge if len(mine.merge) >= wanted else records(wanted, WAITING)
    return mine._replace(batches=batches, waiting=waiting, window=window, merge=merge)
