"""The second simulator with ranks that step together, written from docs/core.md in plain Python: above any other of
vLLM's GPUs, and with `tests.support.costs.wave_cost`."""

from __future__ import annotations

import heapq
from typing import Any

from prebleexp.sim.types import Workload
from tests.support.oracle import core as oracle
from tests.support.oracle.core import END, START


class Lockstep(oracle.Oracle):
    """All that is its own: who begins, how long that takes, and what empty steps do."""

    def __init__(self, workload: Workload, of: Any) -> None:
        kinds = of.kinds or [(of.gpus, of.hardware)]
        self.mates: list[range] = []
        for count, hardware in kinds:
            first = len(self.mates)
            starts = [first + i // hardware.ranks * hardware.ranks for i in range(count)]
            self.mates += [range(start, start + hardware.ranks) for start in starts]
        self.hardware = [hardware for count, hardware in kinds for _ in range(count)]
        self.sync_interval = of.engine.dp_sync_interval
        self.steps = dict.fromkeys(self.mates, 0)
        self.empty = set[int]()
        super().__init__(workload, of)  # type: ignore[call-arg]

    def _happens(self, kind: int, subject: int, now: float) -> None:
        if kind == END and subject in self.empty:
            self.empty.remove(subject)
            self.gpus[subject].stepping = False
            self._release()
            heapq.heappush(self.heap, (now, START, subject))
        elif kind == START and len(self.mates[subject]) > 1:
            if not self.gpus[subject].stepping and subject not in self.empty:
                self._begin_all(self.mates[subject], subject, now)
        else:
            super()._happens(kind, subject, now)

    def _begin_all(self, mates: range, asked: int, now: float) -> None:
        cost, own_s, tokens = self.hardware[asked], {}, {}
        for g in mates:
            seconds = self.gpus[g].begin(now)
            if seconds is not None:
                own_s[g], tokens[g] = seconds, sum(new for _, new, _ in self.gpus[g].step["chosen"])
        for g in mates:
            if g not in own_s:
                self._finds_nothing(g, now)
        if not own_s and (self.steps[mates] == 1 or self.steps[mates] % self.sync_interval == 0):
            self.steps[mates], self.gpus[asked].awake = 0, False
            return
        self.steps[mates] += 1
        worked = list(own_s)
        for g in mates:
            if g not in own_s:
                own_s[g], tokens[g] = cost.step_s + cost.token_s, 1
                self.empty.add(g)
        slowest = max(own_s.values())
        seconds = slowest + cost.all_s + cost.all_token_s * sum(tokens.values())
        for g in mates:
            gpu = self.gpus[g]
            stalled_s = slowest - own_s[g]
            gpu.totals.update(wave_steps=1, empty_steps=int(g in self.empty), paced_s=seconds, stalled_s=stalled_s)
            gpu.awake, gpu.ends_s = True, now + seconds
            heapq.heappush(self.heap, (now + seconds, END, g))
        for g in worked:
            self._show(g)
        self._tell(asked, now) if asked in worked else None
