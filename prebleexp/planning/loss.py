"""The loss of a replica: when it is, and what is kept in the minute after.

A load that is steady loses it half way. One that comes and goes, as a recording or a profile does, loses it where its
busiest minute begins: in a quiet one hardly anybody would notice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from prebleexp.busiest import within
from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.faults.timeline import Timeline
from prebleexp.intervals import mean_interval
from prebleexp.planning.contender import GPUS, USERS, Contender
from prebleexp.planning.planned import Planned
from prebleexp.planning.trials import Sample, Trial
from prebleexp.recovery import MINUTE_S
from prebleexp.service.batches import fewest_sure
from prebleexp.sim.types import Floats, Workload

LONG_S = 180.0
"""of a run in which a GPU is lost, at least, so that it has a minute after that"""
DETECT_MS = 1_000.0
"""from then until routers know"""


class Lost(NamedTuple):
    """What is kept in the minute after the loss of a replica."""

    kept: float
    """of the requests due in it, as `prebleexp.planning.promise.ToKeep.kept` is; mean over the streams"""
    half_width: float | None
    """of the interval of that mean; None of a single stream"""
    requests: int
    """due in it, of all streams"""
    busiest: bool
    """whether it is the busiest minute of a stream, and not one half way"""
    streams: int = 1
    ends: tuple[float, float] | None = None
    """of a single stream those of its interval, by batches of these requests"""
    unharmed: float | None = None
    """what of the requests due in that minute is kept where no replica is lost, mean over the streams; None where that
    is not asked"""


class Moment(NamedTuple):
    """When a replica is lost, and how many requests are due in the minute after; None where only a run says that."""

    at_s: float
    requests: int | None


@dataclass(frozen=True)
class Bereft(Contender):
    """A contender that loses a replica: what it keeps is the promise of the minute after, or of all requests, if that
    is kept less well."""

    def cell_of(self, trial: Trial) -> Cell:
        """Raises InvalidInput for a stream that is none."""
        cell = super().cell_of(trial)
        happen = ({"at_s": self._moment(trial, cell).at_s, "gpu": 0, "event": "down"},)
        names = {**cell.names, "faults": "timeline"}
        return replace(cell, faults=Timeline(detect_ms=DETECT_MS, happen=happen), names=names)

    def sample(self, metrics: Mapping[str, Any]) -> Sample:
        to_keep = self.to_keep
        minute, whole = to_keep.after_loss(metrics), to_keep.kept(metrics)
        minute = to_keep.nothing if minute is None else minute
        kept, due = min(minute, whole), metrics["due_requests"]
        if not self.is_recorded:
            return Sample(kept, due, None)
        of_minute = to_keep.alone_after_loss(metrics) if self._is_told else None
        known = [one for one in (to_keep.alone(metrics), of_minute) if one is not None]
        ends = (min(low for low, _ in known), min(high for _, high in known)) if known else None
        return Sample(kept, due, None, ends, of_both=(minute, whole))

    @property
    def _is_told(self) -> bool:
        """Whether the minute has so many requests that the stream could say of others like it that they keep the
        promise."""
        counts = [one.requests for one in self._known.values() if one.requests is not None]
        return min(counts, default=math.inf) >= fewest_sure(self.to_keep.strictest)

    def lost(self, trials: Sequence[Trial], metrics: Sequence[Mapping[str, Any]]) -> Lost | None:
        """What runs say of it: the metrics of each trial. None if a minute of these has no request."""
        kept = [one for one in map(self.to_keep.after_loss, metrics) if one is not None]
        if len(kept) < len(metrics):
            return None
        known = [self._moment(trial, super(Bereft, self).cell_of(trial)).requests for trial in trials]
        due = [
            round(one["offered_per_s"] * MINUTE_S) if count is None else count
            for count, one in zip(known, metrics, strict=True)
        ]
        ends = self.to_keep.alone_after_loss(metrics[0]) if len(due) == 1 else None
        return Lost(*mean_interval(kept), sum(due), not self._is_steady, len(due), ends)

    def unharmed(self, trials: Sequence[Trial]) -> list[Cell]:
        """Of each trial two runs in which nothing is lost: one counts the requests due from that minute on, the other
        those due after it."""
        found = []
        for trial in trials:
            cell = super().cell_of(trial)
            at_s = self._moment(trial, cell).at_s
            found += [replace(cell, slo=replace(cell.slo, warmup_s=since_s)) for since_s in (at_s, at_s + MINUTE_S)]
        return found

    def kept_unharmed(self, metrics: Sequence[Mapping[str, Any]]) -> float | None:
        """Of the requests that the first of two such runs counts and the second does not the share that is kept, mean
        over the streams; of a promise of one share. None if a minute of these has no request."""
        shares = []
        for since, after in zip(metrics[::2], metrics[1::2], strict=True):
            due = since["due_requests"] - after["due_requests"]
            if not due:
                return None
            shares.append((self._good(since) - self._good(after)) / due)
        return math.fsum(shares) / len(shares)

    def _good(self, metrics: Mapping[str, Any]) -> int:
        """How many of the requests that count keep the promise."""
        due = metrics["due_requests"]
        return round(self.to_keep.kept(metrics) * due) if due else 0

    @property
    def _is_steady(self) -> bool:
        return self.load_key == USERS or not (self.is_nested or not self.cell.profile.changes_nothing)

    @cached_property
    def _known(self) -> dict[tuple[int, int], Moment]:
        """By seed and requests: the stream is the same on any number of GPUs."""
        return {}

    def _moment(self, trial: Trial, cell: Cell) -> Moment:
        if self._is_steady:
            return Moment(float(f"{cell.duration_s / 2:.6g}"), None)
        key = trial.seed, trial.requests
        if key not in self._known:
            self._known[key] = _busiest(cell)
        return self._known[key]


def bereft(of: Planned, spare: int) -> tuple[Bereft, Trial]:
    """The load of the answer on its GPUs, and so many replicas more, of which one is lost. Raises InvalidInput where
    none can be."""
    one, cell, load = of.contender, of.cell, of.load
    if cell.cluster.groups:
        raise InvalidInput("groups of GPUs have none to spare")
    if not cell.faults.changes_nothing or not cell.autoscaler.changes_nothing:
        raise InvalidInput("GPUs come and go already")
    requests = of.answer.requests
    if not one.is_nested:
        requests = max(requests, math.ceil((load or 0) * LONG_S))
    count = replicas(of) + spare
    changed: dict[str, Any] = {"gpus": count * one.each}
    if one.load_key == USERS:
        changed["workload"] = cell.workload.with_users(int(load or 0))
    elif not one.is_recorded:
        changed["rps"] = load
    return Bereft(replace(cell, **changed), GPUS), Trial(count, 0, requests)


def replicas(of: Planned) -> int:
    """Of the answer."""
    return of.cell.gpus // of.contender.each


def _busiest(cell: Cell) -> Moment:
    """Where the minute begins in which most requests are due, of several the one nearest to half way. Of a run that is
    stopped it ends a minute before, so that its requests can end."""
    due_s = np.sort(_due_s(runs.draw(cell)))
    if not len(due_s):
        raise InvalidInput("no request comes")
    last = cell.duration_s - 2 * MINUTE_S if cell.horizon == "stop" else math.inf
    begins = due_s[(due_s >= cell.slo.warmup_s) & (due_s <= last)]
    begins = begins if len(begins) else due_s
    counts = within(due_s, begins, MINUTE_S)
    most = begins[counts == counts.max()]
    at_s = float(f"{most[np.argmin(np.abs(most - due_s[-1] / 2))]:.6g}")
    return Moment(at_s, int(within(due_s, np.array([at_s]), MINUTE_S)[0]))


def _due_s(workload: Workload) -> Floats:
    """When each request is due at the earliest: those that come after others, as if these took no time."""
    due_s = workload.arrival_s.copy()
    for i in np.flatnonzero(np.diff(workload.after_offsets)):
        first, end = workload.after_offsets[i : i + 2]
        due_s[i] = due_s[workload.after_ids[first:end]].max() + workload.delay_s[i]
    return due_s
