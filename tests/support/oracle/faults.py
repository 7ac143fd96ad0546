"""The second simulator with vLLM or SGLang on GPUs that are lost, slow or drained, written from docs/core.md in plain
Python.

GPUs are the schedulers of `tests.support.reference`, as in `tests.support.oracle.pools` and `sglangs`.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from prebleexp.engines.sglang.engine import SGLang
from prebleexp.sim.pools import BOTH, PREFILL
from prebleexp.sim.types import Outcome, Workload
from tests.support.oracle import core as oracle
from tests.support.oracle.core import Job
from tests.support.oracle.pools import VllmGpu
from tests.support.oracle.sglangs import SglangGpu
from tests.support.reference.vllm import Request


class FaultyGpu(VllmGpu):
    """Beside what that does: it may lose all that it has, and what was shown may stand behind a prompt."""

    def lose(self) -> list[Job]:
        there = [one for one in [*self.of.skipped, *self.of.waiting, *self.of.running] if not one.done]
        self.of = self._scheduler(self.of.config)
        self.flight.clear()
        self.leaving.clear()
        self.requests.clear()
        self.awake = self.stepping = False
        self.idle_s = 0.0
        return [self.world.jobs[request.index] for request in there]

    def give_back(self) -> list[Job]:
        """Those of the queue of which nothing is under way, without a token of this attempt."""
        jobs, waiting = self.world.jobs, [request for request in self.of.waiting if not request.done]
        given = [one for one in waiting if not one.under_way and math.isnan(jobs[one.index].attempt_s)]
        for request in given:
            self.of.waiting.remove(request)
            self.of.pulls.discard(request)
        return [jobs[request.index] for request in given]

    def publish(self) -> None:
        if self.up:
            super().publish()

    def _known(self, job: Job) -> Request:
        request = super()._known(job)
        if self.world.faults.resumes:
            request.tokens += job.output_seen
        return request

    def submit(self, job: Job) -> None:
        super().submit(job)
        if self.world.faults.resumes and self.role == PREFILL:
            self.requests[job.index].target += job.output_seen

    def _outputs(self, job: Job) -> int:
        """What computes a prompt may have to compute what was shown behind it."""
        return self.world._request(job).limit if self.world.faults.resumes else super()._outputs(job)


class FaultyOracle(oracle.Oracle):
    def __init__(self, workload: Workload, of: Any) -> None:
        self.rows = workload
        super().__init__(workload, of, False)

    def _gpu(self, g: int, engine: Any, hardware: Any) -> Any:
        of = SglangGpu if isinstance(engine, SGLang) else FaultyGpu
        return of(g, BOTH, engine, hardware, self.rows, self)


def simulate(workload: Workload, **given: Any) -> Outcome:
    """As `prebleexp.sim.simulate.simulate` with faults and `engine=vllm` or `sglang`, of lengths Max."""
    return FaultyOracle(workload, SimpleNamespace(**{"reports_ms": 0.0, "kinds": (), **given})).run()
