"""The second simulator with pools whose GPUs are lost, slow or drained."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from prebleexp.sim.answers import WITHDRAWN
from prebleexp.sim.pools import DECODE
from prebleexp.sim.types import Outcome, State, Workload
from tests.support.oracle.core import REACHED, Job
from tests.support.oracle.faults import FaultyGpu
from tests.support.oracle.pools import PoolsOracle


class SplitOracle(PoolsOracle):
    def __init__(self, workload: Workload, of: Any) -> None:
        super().__init__(workload, of)
        self.lost_with: dict[int, list[Job]] = {}

    def _gpu(self, g: int, engine: Any, hardware: Any) -> Any:
        return FaultyGpu(g, self.roles[g], engine, hardware, self.rows, self)

    # ------------------------------------------------------------ candidates of two policies
    def _candidates(self) -> set[int]:
        return {*self.view.candidates.tolist(), *self.second_view.candidates.tolist()}

    def _let_be(self, candidates: set[int]) -> None:
        outputs = {g for g in candidates if self.roles[g] == DECODE}
        self.second_view = self.second_view._replace(candidates=self._room(outputs))
        self.view = self.view._replace(candidates=self._room(candidates - outputs))

    def _length(self, request: Job) -> int:
        return super()._length(request) + (request.output_seen if self.faults.resumes else 0)

    # ------------------------------------------------------------ loss
    def _number(self, job: Job) -> int:
        return self._request(job).number

    def _unread(self, g: int) -> list[Job]:
        states = (State.HELD, State.RESERVED)
        waits = [job for job in self.jobs[: self.n] if job.state in states and self.is_held(job)]
        return sorted([job for job in waits if g in (job.gpu, self._leg(job).gpu)], key=self._number)

    def _break_off(self, job: Job, g: int, now: float) -> None:
        if job.gpu < 0:
            self.queue = [one for one in self.queue if one is not job]
            self.held = [one for one in self.held if one is not job]
            if job.index in self.deciding:
                self.deciding[job.index] = WITHDRAWN
        else:
            gpu = self.gpus[job.gpu]
            if job.index in gpu.requests:  # else its KV is held, and it comes now
                gpu.of.leave(gpu.requests[job.index])
            self.heap[:] = [one for one in self.heap if one[1:] != (REACHED, job.index)]  # it looked for room
            heapq.heapify(self.heap)
            if gpu.up:
                self._tell(gpu.number, now)
        self._leave_kv(job, now)
        self._lose(job)
        self.view.requests[job.index].output_seen = job.output_seen if self.faults.resumes else 0
        if job.gpu != g:
            self.lost_with.setdefault(g, []).append(job)

    def _reach(self, job: Job, now: float) -> None:
        if job.index < self.n and job.state != State.CANCELLED and not self.gpus[job.gpu].up and self.is_held(job):
            self.let_go(job, now)
        super()._reach(job, now)

    def _lost_with(self, g: int) -> list[Job]:
        elsewhere = [job for jobs in self.lost_with.values() for job in jobs]
        here = [job for job in super()._lost_with(g) if job not in elsewhere]
        return here + [job for job in self.lost_with.pop(g, []) if job.unnoticed]

    def _hears_of_loss(self, job: Job, now: float) -> None:
        request = self._request(job)
        if job.gpu < 0:
            self._go_on(job, now)
            return
        if job is not request and request.gpu >= 0:  # who was to make its output is rid of it
            self.news.append(("lost", request.index, request.gpu, 0))
        super()._hears_of_loss(job, now)

    def _go_on(self, job: Job, now: float) -> None:
        if job.index < self.n and job.state == State.UNROUTED:  # its prompt is lost
            job.gpu = self.view.requests[job.index].gpu = -1
            return
        if job.state == State.HELD:  # it was given back, and its prompt's KV is there still
            job.gpu = self.view.requests[job.index].gpu = -1
            self._ask_again(job, now)
            return
        job.unnoticed = False
        if not self.retries and job.state == State.LOST:
            self._failed(job, State.LOST, now)
            return
        request, leg = self._request(job), self._leg(job)
        if self.faults.resumes and job is leg and leg.output_seen > request.output_seen:  # it was served as a whole
            request.ttft_s = leg.ttft_s if math.isnan(request.ttft_s) else request.ttft_s
            request.latency_s, request.output_seen = leg.latency_s, leg.output_seen
            self.view.requests[request.index].output_seen = leg.output_seen
        for one in {id(job): job, id(leg): leg}.values():
            seen = self.view.requests[one.index]
            one.state, one.gpu, one.attempt_s = State.UNROUTED, -1, math.nan
            seen.gpu, seen.ttft_s = -1, math.nan
        if job is request:
            leg.ttft_s = leg.latency_s = leg.finish_s = math.nan
            leg.output_seen = request.output_seen if self.faults.resumes else 0
            for gpu in self.gpus:
                one = gpu.requests.get(leg.index)
                if one in gpu.of.told:  # it is heard of now, since the prompt begins anew
                    gpu.of.let_go(one)
                    self._show(gpu.number)
                    self._wake(gpu, now)
        self.queue.append(self._first_of(job))

    def _outcome(self, end_s: float) -> Outcome:
        for g in range(len(self.gpus)):  # while there are legs
            self._is_off(g, end_s)
        shown_s = [job.ttft_s for job in self.jobs[: self.n]]
        losses = [self.jobs[i].losses + self.jobs[self.n + i].losses for i in range(self.n)]
        made = super()._outcome(end_s)
        ttft_s = np.where(np.isnan(shown_s), made.ttft_s, shown_s)
        return replace(made, ttft_s=ttft_s, losses=np.array(losses, np.int32))


def simulate(workload: Workload, **given: Any) -> Outcome:
    """As `prebleexp.sim.simulate.simulate` with pools, faults and `engine=vllm`, of lengths Max."""
    return SplitOracle(workload, SimpleNamespace(**{"reports_ms": 0.0, **given})).run()
