"""What every GPU did, step by step: for traces and time lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from prebleexp.sim.records import GPU, Sim

Columns = dict[str, npt.NDArray[Any]]


class Steps:
    """An observer of `simulate` (its `on_event`): it looks at the cluster after every event, and changes nothing."""

    def __init__(self) -> None:
        self._gpus: list[int] = []
        self._starts: list[float] = []
        self._states: list[tuple[Any, ...]] = []
        self._forwarded: npt.NDArray[np.int64] | None = None
        self._queued: npt.NDArray[np.int64] | None = None
        self._queue_times: list[float] = []
        self._queues: list[npt.NDArray[np.int64]] = []

    def __call__(self, sim: Sim) -> None:
        gpus, control = sim.gpus, sim.control
        if self._forwarded is None or self._queued is None:
            self._forwarded, self._queued = np.zeros(len(gpus), np.int64), np.zeros(len(gpus), np.int64)
        g = int(control.gpu)
        if gpus[g].forwarded_tokens != self._forwarded[g]:
            self._forwarded[g] = gpus[g].forwarded_tokens
            self._gpus.append(g)
            self._starts.append(float(control.now))
            self._states.append(gpus[g].item())
        if (gpus.queued != self._queued).any():
            self._queued = gpus.queued.copy()
            self._queue_times.append(float(control.now))
            self._queues.append(self._queued)

    def columns(self) -> Columns:
        """A row for every step that computed a token, in order of their starts.

        `gpu`; `start_s` and `end_s`, between which the step kept it; `prefilled_tokens`, `generated_tokens`,
        `hit_tokens`, `evicted_tokens` and `retracted` (requests), of this step alone; `decode_steps`, which one step of
        the event loop may bundle; and, at its end, `running` (requests), `kv_free` and `evictable` (tokens).
        """
        gpu = np.array(self._gpus, np.int64)
        states = np.array(self._states, GPU) if self._states else np.zeros(0, GPU)
        columns: Columns = {"gpu": gpu, "start_s": np.array(self._starts), "end_s": states["clock"].copy()}
        for name in ("prefilled_tokens", "hit_tokens", "evicted_tokens", "retracted", "decode_steps"):
            columns[name] = _since_the_last(states[name], gpu)
        forwarded = _since_the_last(states["forwarded_tokens"], gpu)
        columns["generated_tokens"] = forwarded - columns["prefilled_tokens"]
        for name in ("running", "kv_free", "evictable"):
            columns[name] = states[name].copy()
        return columns

    def queues(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """When the number of waiting requests changed anywhere, shape (k,), and what it was then on every GPU, shape
        (k, gpus)."""
        return np.array(self._queue_times), np.array(self._queues, np.int64).reshape(len(self._queues), -1)


def _since_the_last(totals: npt.NDArray[np.int64], gpu: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Differences between the running totals of each GPU."""
    differences = np.zeros_like(totals)
    for g in np.unique(gpu):
        rows = gpu == g
        differences[rows] = np.diff(totals[rows], prepend=0)
    return differences
