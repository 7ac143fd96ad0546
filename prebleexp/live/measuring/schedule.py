"""Who is due when, of a stream that is sent by the clock: the rules of `prebleexp.sim.sessions`, with ends that are
measured in place of simulated ones."""

from __future__ import annotations

import heapq
import math

import numpy as np

from prebleexp.sim.agenda import starts_s
from prebleexp.sim.types import Workload

Due = tuple[float, int]
"""when, in seconds from the start of the run, and which request"""


class Schedule:
    """Is told of ends and failures, and says who is due thereafter."""

    def __init__(self, workload: Workload, last_start_s: float = math.inf) -> None:
        """Sessions that begin after `last_start_s` never do."""
        n = len(workload)
        self._delay_s, self._goes_on = workload.delay_s.tolist(), workload.goes_on.tolist()
        stage = workload.stage - workload.stage[:1] if workload.staged else np.zeros(n, np.int32)
        self._stage, self._left = stage.tolist(), np.bincount(stage).tolist() if workload.staged else []
        self._at, self._ends = 0, 0
        self._capped = workload.is_capped
        self._from_s = np.where(workload.arrives, workload.arrival_s, 0.0).tolist() if self._capped else []
        self._waits = (workload.waits + (stage > 0) + (workload.after_ends > 0)).tolist()
        self._cancelled = [False] * n
        self._behind = _lists(np.repeat(np.arange(n), workload.waits), workload.after_ids)
        self._in_stage = _lists(np.flatnonzero(stage > 0), stage[stage > 0])
        capped = np.flatnonzero(workload.after_ends > 0)
        self._at_end = _lists(capped, workload.after_ends[capped])
        first = np.flatnonzero(workload.dated & (starts_s(workload) <= last_start_s))
        self.firsts: list[Due] = list(zip(workload.arrival_s[first].tolist(), first.tolist(), strict=True))
        """those that wait for nobody, in order"""

    def ended(self, request: int, now: float) -> list[Due]:
        """Those that are due since it ended."""
        return [*self._let_follow(self._behind.get(request, ()), now, delayed=True), *self._leave(request, now)]

    def failed(self, request: int, now: float) -> tuple[list[Due], list[int]]:
        """It was refused, cancelled or lost: those that are due since, and those that are never to come."""
        if self._goes_on[request]:
            return self.ended(request, now), []
        gone, due, next_ones = list[int](), list[Due](), [request]
        while next_ones:
            one = next_ones.pop()
            for following in self._behind.get(one, ()):
                if not self._cancelled[following]:
                    self._cancelled[following] = True
                    gone.append(following)
                    next_ones.append(following)
            due += self._leave(one, now)
        return due, gone

    def _let_follow(self, those: list[int] | tuple[int, ...], now: float, delayed: bool) -> list[Due]:
        due = []
        for one in those:
            self._waits[one] -= 1
            due_s = now + (self._delay_s[one] if delayed else 0.0)
            if self._capped:
                due_s = self._from_s[one] = max(self._from_s[one], due_s)
            if self._waits[one] == 0 and not self._cancelled[one]:
                due.append((due_s, one))
        return due

    def _leave(self, request: int, now: float) -> list[Due]:
        """One more has ended, and one of its stage less is left."""
        due = []
        if self._capped:
            self._ends += 1
            due += self._let_follow(self._at_end.get(self._ends, ()), now, delayed=False)
        if self._left:
            self._left[self._stage[request]] -= 1
            while self._left[self._at] == 0 and self._at + 1 < len(self._left):
                self._at += 1
                due += self._let_follow(self._in_stage.get(self._at, ()), now, delayed=True)
        return due


def last_due_s(workload: Workload, last_start_s: float = math.inf) -> float:
    """When the last request would be due if each answer came at once; 0 where there is none. With answers that take
    time, and none that fail, it is later."""
    schedule, last_s = Schedule(workload, last_start_s), 0.0
    waiting = [*schedule.firsts]
    heapq.heapify(waiting)
    while waiting:
        last_s, request = heapq.heappop(waiting)
        for one in schedule.ended(request, last_s):
            heapq.heappush(waiting, one)
    return last_s


def _lists(values: np.ndarray, keys: np.ndarray) -> dict[int, list[int]]:
    """By key the values, in their order."""
    found: dict[int, list[int]] = {}
    for value, key in zip(values.tolist(), keys.tolist(), strict=True):
        found.setdefault(key, []).append(value)
    return found
