"""What every GPU did, step by step: for traces and time lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from prebleexp.sim.records import REPORT, TOTALS
from prebleexp.sim.types import records

Columns = dict[str, npt.NDArray[Any]]


class Steps:
    """An observer of `simulate` (its `on_event`): it looks at the cluster after every event, and changes nothing."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, float, float]] = []
        self._totals: list[Any] = []
        self._states: list[Any] = []
        self._ends: npt.NDArray[np.float64] = np.zeros(0)
        self._queued: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._queue_times: list[float] = []
        self._queues: list[npt.NDArray[np.int64]] = []
        self._begun_s = 0.0

    def since(self, begun_s: float) -> None:
        """The clock that it saw was so far on when the run began."""
        self._begun_s = begun_s

    def __call__(self, world: Any) -> None:
        """`world`: any with `servers`, `totals`, `live` and `control`."""
        servers, live = world.servers, world.live
        if not len(self._ends):
            self._ends, self._queued = np.zeros(len(servers)), np.zeros(len(servers), np.int64)
        for g in np.flatnonzero(servers.ends_s != self._ends).tolist():
            self._rows.append((g, float(servers[g].begun_s), float(servers[g].ends_s)))
            self._totals.append(world.totals[g].copy())
            self._states.append(live[g].copy())
        self._ends = servers.ends_s.copy()
        if (live.queued != self._queued).any():
            self._queued = live.queued.copy()
            self._queue_times.append(float(world.control.now))
            self._queues.append(self._queued)

    def columns(self) -> Columns:
        """A row for every step, in order of their starts.

        `gpu`; `start_s` and `end_s`, between which the step kept it; `prefilled_tokens`, `generated_tokens`,
        `hit_tokens`, `evicted_tokens` and `retracted` (requests), of this step alone; `decode_steps`, which one step of
        the event loop may bundle; and, once it has begun, `running` (requests), `kv_free` and `evictable` (tokens).
        """
        gpu = np.array([row[0] for row in self._rows], np.int64)
        starts, ends = (np.array([row[column] for row in self._rows], np.float64) - self._begun_s for column in (1, 2))
        totals, states = records(len(gpu), TOTALS), records(len(gpu), REPORT)
        for row, (total, state) in enumerate(zip(self._totals, self._states, strict=True)):
            totals[row], states[row] = total, state
        columns: Columns = {"gpu": gpu, "start_s": starts, "end_s": ends}
        for name in ("prefilled_tokens", "hit_tokens", "evicted_tokens", "retracted", "decode_steps"):
            columns[name] = _since_the_last(totals[name], gpu)
        columns["generated_tokens"] = _since_the_last(totals["forwarded_tokens"], gpu) - columns["prefilled_tokens"]
        for name in ("running", "kv_free", "evictable"):
            columns[name] = states[name].copy()
        return columns

    def queues(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """When the number of waiting requests changed anywhere, shape (k,), and what it was then on every GPU, shape
        (k, gpus)."""
        return np.array(self._queue_times) - self._begun_s, np.array(self._queues, np.int64).reshape(
            len(self._queues), -1
        )


def _since_the_last(totals: npt.NDArray[np.int64], gpu: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Differences between the running totals of each GPU."""
    differences = np.zeros_like(totals)
    for g in np.unique(gpu):
        rows = gpu == g
        differences[rows] = np.diff(totals[rows], prepend=0)
    return differences
