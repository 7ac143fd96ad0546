"""The second simulator with pipelines of stages, written from docs/core.md in plain Python."""

from __future__ import annotations

from collections import deque
from typing import Any

from prebleexp.sim.pools import BOTH
from prebleexp.sim.types import Workload
from tests.support.oracle.core import Job
from tests.support.oracle.faults import FaultyGpu, FaultyOracle


class PipelinedGpu(FaultyGpu):
    def __init__(self, number: int, role: int, engine: Any, hardware: Any, rows: Workload, world: Any) -> None:
        super().__init__(number, role, engine, hardware, rows, world)
        self.before_s, self.host_s = self.host_s, 0.0
        self.depth, self.handoff_s = hardware.stages, hardware.handoff_s
        self.free_s = [0.0] * self.depth
        self.done: deque[tuple[float, float]] = deque()

    def lose(self) -> list[Job]:
        self.done.clear()
        self.free_s = [0.0] * self.depth
        return super().lose()

    def begin(self, now: float) -> float | None:
        while True:
            more = True
            while more and len(self.flight) < self.depth and self.of.busy():
                step, seconds = self._schedule(now)
                more = bool(step["chosen"])
                if more:
                    self._enter(seconds, sum(new for _, new, _ in step["chosen"]), now)
            if not self.flight:
                return None
            self.step, seconds, counts = self.flight.popleft()
            self.totals.update(counts)
            if self.step["chosen"]:
                self.stepping = True
                done_s, seconds = self.done.popleft()
                left_s = done_s - now
                stalled_s = left_s - seconds / self.depth / self.speed
                self.totals.update(paced_s=left_s, stalled_s=stalled_s)  # type: ignore[call-overload]
                return left_s * self.speed

    def _enter(self, seconds: float, tokens: int, now: float) -> None:
        at = now + self.before_s
        for stage in range(self.depth):
            at = max(at, self.free_s[stage]) + seconds / self.depth / self.speed
            self.free_s[stage] = at
            if stage + 1 < self.depth:
                at += self.handoff_s[0] + self.handoff_s[1] * tokens
        self.done.append((at, seconds))


class PipelinedOracle(FaultyOracle):
    def _gpu(self, g: int, engine: Any, hardware: Any) -> Any:
        if hardware.stages == 1:
            return super()._gpu(g, engine, hardware)
        return PipelinedGpu(g, BOTH, engine, hardware, self.rows, self)
