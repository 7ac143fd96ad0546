"""The second simulator with pipelines of stages, written from docs/core.md in plain Python."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

from prebleexp.sim.pools import BOTH
from prebleexp.sim.types import Outcome, Workload
from tests.support.oracle.faults import FaultyGpu, FaultyOracle


class PipelinedGpu(FaultyGpu):
    def __init__(self, number: int, role: int, engine: Any, hardware: Any, rows: Workload, world: Any) -> None:
        super().__init__(number, role, engine, hardware, rows, world)
        self.before_s, self.host_s = self.host_s, 0.0
        self.depth, self.handoff_s = hardware.stages, hardware.handoff_s
        self.free_s = [0.0] * self.depth
        self.done: deque[tuple[float, float]] = deque()

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
                self.totals.update(paced_s=left_s, stalled_s=left_s - seconds / self.depth)  # type: ignore[call-overload]
                return left_s

    def _enter(self, seconds: float, tokens: int, now: float) -> None:
        at = now + self.before_s
        for stage in range(self.depth):
            at = max(at, self.free_s[stage]) + seconds / self.depth
            self.free_s[stage] = at
            if stage + 1 < self.depth:
                at += self.handoff_s[0] + self.handoff_s[1] * tokens
        self.done.append((at, seconds))


class PipelinedOracle(FaultyOracle):
    def _gpu(self, g: int, engine: Any, hardware: Any) -> Any:
        return PipelinedGpu(g, BOTH, engine, hardware, self.rows, self)


def simulate(workload: Workload, **given: Any) -> Outcome:
    """As `prebleexp.sim.simulate.simulate` with `engine=vllm`, of lengths Max."""
    return PipelinedOracle(workload, SimpleNamespace(**{"reports_ms": 0.0, "kinds": (), "faults": None, **given})).run()
