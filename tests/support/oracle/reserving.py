"""The second simulator where room is reserved before prompts are computed, with SGLang's scheduler, written from
docs/core.md in plain Python. GPUs are those of `tests.support.oracle.sglangs`, and may be lost, slow or drained.
"""

from __future__ import annotations

import heapq
import math
from types import SimpleNamespace
from typing import Any

from prebleexp.sim.links import FAIR, FIFO
from prebleexp.sim.pools import BOTH, CHUNKS, DECODE, END, LAYERS, PREFILL
from prebleexp.sim.types import Outcome, State, Workload
from tests.support.oracle.core import ARRIVED, REACHED, Job, Oracle
from tests.support.oracle.sglangs import SglangGpu
from tests.support.oracle.split_faults import SplitOracle

UNREAD = (State.QUEUED, State.RUNNING)
"""of a prompt that is not computed"""


class ReservingOracle(SplitOracle):
    def __init__(self, workload: Workload, of: Any) -> None:
        super().__init__(workload, of)
        self.reached: set[int] = set()
        self.flows: dict[int, Any] = {}

    def _gpu(self, g: int, engine: Any, hardware: Any) -> Any:
        return SglangGpu(g, self.roles[g], engine, hardware, self.rows, self)

    # ------------------------------------------------------------ two legs
    def _send(self, job: Job, now: float) -> None:
        if self.roles[job.gpu] == PREFILL:
            self._ask_again(self._request(job), now)
            return
        if self.roles[job.gpu] == DECODE:
            leg, losses = self._leg(job), self._leg(job).losses
            self._pass_frontend(leg, now)
            if leg.losses > losses:
                return
        self._pass_frontend(job, now)

    def _reach(self, job: Job, now: float) -> None:
        if job.state == State.CANCELLED:
            return
        self.reached.add(job.index)
        prompt = self.roles[job.gpu] == PREFILL
        if not self.gpus[job.gpu].up and (prompt or job.index < self.n):
            self._sever(job, now)
        elif not prompt or self._request(job).state == State.RESERVED:
            Oracle._reach(self, job, now)

    # ------------------------------------------------------------ loss
    def _unread(self, g: int) -> list[Job]:
        unread = [one for one in self.jobs[: self.n] if one.state == State.RESERVED]
        unread = [one for one in unread if self._leg(one).index in self.reached]
        return sorted([one for one in unread if g in (one.gpu, self._leg(one).gpu)], key=self._number)

    def _awaits(self, gpu: Any) -> bool:
        return bool(gpu.seen.queued)

    def _torn(self, g: int) -> list[Job]:
        found = []
        for job in self.jobs[: self.n]:
            leg = self._leg(job)
            waits = job.state in (State.QUEUED, State.RESERVED, State.LOST) and leg.state in UNREAD
            there = any(one.gpu == g and one.index in self.reached for one in (job, leg))
            found += [job] if there and (waits or job.state == State.RESERVED) else []
        return sorted(found, key=self._number)

    def _break_off(self, job: Job, g: int, now: float) -> None:
        lost, leg = job, self._leg(job)
        if leg.state in UNREAD:
            self._part(job, now)
            self.reached.add(leg.index)
            lost = leg
        else:
            self._withdraw(job)
            self._leave_kv(job, now)
        self._lose(lost)
        self.view.requests[lost.index].output_seen = Oracle.shown(self, lost)
        if lost.gpu != g:
            self.lost_with.setdefault(g, []).append(lost)

    def _part(self, job: Job, now: float) -> None:
        """A request whose prompt is not computed leaves both GPUs."""
        for one in (self._leg(job), job):
            if one.gpu >= 0 and one.index in self.reached:
                self._withdraw(one)
        self._come_no_more(job, now)

    def _withdraw(self, job: Job) -> None:
        self.gpus[job.gpu].withdraw(job)
        if self.gpus[job.gpu].up:
            self._show(job.gpu)

    def _come_no_more(self, job: Job, now: float) -> None:
        if job.state == State.RESERVED:
            self.drop(job.index, now)
        for one in (self._leg(job), job):
            self.heap = [event for event in self.heap if event[1:] != (REACHED, one.index)]
            heapq.heapify(self.heap)
            if one.gpu >= 0 and self.gpus[one.gpu].up:
                self._wake(self.gpus[one.gpu], now)
        job.state, job.unnoticed = State.UNROUTED, False
        self.reached.discard(job.index)

    def _sever(self, job: Job, now: float) -> None:
        """A part has reached a GPU that is down."""
        request, leg, gpu, lost = self._request(job), self._leg(job), self.gpus[job.gpu], job
        if job is leg or gpu.gone:
            if job is leg and request.index in self.reached:
                self._withdraw(request)
            self._come_no_more(request, now)
            self.reached.add(leg.index)
            lost = leg
        self._lose(lost)
        if gpu.gone:
            self._hears_of_loss(lost, now)
        self._tell(gpu.number, now)

    def _hears_of_loss(self, job: Job, now: float) -> None:
        leg = self._leg(job)
        if job.index < self.n and job.state == State.LOST and leg.state in UNREAD:
            self._part(job, now)
            self.reached.add(leg.index)
            leg.state, leg.unnoticed, job.unnoticed = State.LOST, True, False
            job = leg
        super()._hears_of_loss(job, now)

    def shown(self, job: Job) -> int:
        return super().shown(self._request(job))

    def _go_on(self, job: Job, now: float) -> None:
        if job.index >= self.n or job.state != State.UNROUTED:
            self.reached -= {job.index, self._leg(job).index}
        super()._go_on(job, now)

    def _given_back(self, gpu: Any, now: float) -> list[Job]:
        given, g = super()._given_back(gpu, now), gpu.number
        if self.roles[g] == BOTH:
            return given
        legs = [one for one in self.jobs[self.n :] if one.gpu == g and one.index in self.reached]
        waits = [one for one in legs if one.state == self._request(one).state == State.QUEUED]
        given = [self._leg(one) for one in {self._request(one) for one in [*given, *waits]}]
        for one in given:
            self._part(self._request(one), now)
        return given

    def _take_out(self, there: list[Job], now: float) -> None:
        for request in [one for one in there if one.state == State.RESERVED]:
            self.drop(request.index, now)
        for one in there:
            gpu = self.gpus[one.gpu]
            if one.state != State.LOST and one.index in self.reached:
                gpu.cancel(one)
            if gpu.up:
                self._wake(gpu, now)
                self._show(one.gpu)

    def _hand_over(self, job: Job, now: float) -> None:
        """It is on its way."""

    def reserve(self, request: Job, now: float) -> None:
        leg, request.state = self._leg(request), State.RESERVED
        ports = [("out", 0, leg.gpu), ("in", 0, request.gpu)]
        self.transferred[request.index] = 0
        self.flows[request.index] = SimpleNamespace(
            begins_s=now, ends_s=now, ports=ports, moves=False, over=False, rate=0.0
        )
        if leg.index in self.reached:
            heapq.heappush(self.heap, (now, REACHED, leg.index))

    # ------------------------------------------------------------ links
    def computes(self, leg: int, tokens: int, seconds: float, now: float) -> None:
        if self.pools.send == LAYERS:
            self._more(leg, tokens, self.pools.layers, seconds, now)

    def computed(self, leg: int, tokens: int, now: float) -> None:
        whole = tokens == self._all_tokens(leg)
        if self.pools.send == CHUNKS or (self.pools.send == END and whole):
            self._more(leg, tokens, 1, 0.0, now)

    def _all_tokens(self, leg: int) -> int:
        return len(self.jobs[leg].prompt) + self.shown(self.jobs[leg])

    def _more(self, leg: int, tokens: int, parts: int, seconds: float, now: float) -> None:
        index = leg - self.n
        size, flow = (tokens - self.transferred[index]) * self.pools.kv_bytes / parts, self.flows[index]
        self.transferred[index] = tokens
        flow.since_s, flow.seconds, flow.parts, flow.ready, flow.size = now, seconds, parts, 0, size
        flow.last = tokens == self._all_tokens(leg)
        if seconds > 0:
            self._await(index)
        else:
            flow.ready = parts
            self._take(index, size * parts, now)

    def _await(self, index: int) -> None:
        flow = self.flows[index]
        ready_s = flow.since_s + flow.seconds * ((flow.ready + 1) / flow.parts)
        heapq.heappush(self.heap, (ready_s, ARRIVED, self.n + index))

    def _take(self, index: int, size: float, now: float) -> None:
        flow = self.flows[index]
        if self.pools.sharing == FAIR:
            if flow.moves:
                self._advance(now)
                flow.left += size
                self._share(now)
            else:
                flow.left, flow.moves, flow.ends_s = size, True, math.inf
                self.coming[index] = flow
                self._begin(index, now)
            return
        begins_s = max(now, flow.ends_s)
        if self.pools.sharing == FIFO:
            begins_s = max([begins_s, *(self.free_s.get(port, 0.0) for port in flow.ports)])
        flow.begins_s = begins_s if begins_s > flow.ends_s else flow.begins_s
        flow.ends_s = begins_s + size / self.pools.rate
        self.free_s |= dict.fromkeys(flow.ports, flow.ends_s)
        if flow.last and flow.ready == flow.parts:
            heapq.heappush(self.heap, (flow.ends_s + self.pools.latency_s, ARRIVED, index))

    def drop(self, subject: int, now: float) -> None:
        flow = self.flows[subject]
        if flow.moves:
            super()._arrives(subject, now)
        elif self.pools.sharing != FAIR:
            last = [port for port in flow.ports if self.free_s.get(port) == flow.ends_s]
            self.free_s |= dict.fromkeys(last, flow.begins_s)
        flow.over = False
        self.heap = [one for one in self.heap if one[1:] not in ((ARRIVED, subject), (ARRIVED, self.n + subject))]
        heapq.heapify(self.heap)

    def _is_timer(self, subject: int) -> bool:
        return subject >= self.n or self.flows[subject].over

    def _arrives(self, subject: int, now: float) -> bool:
        if subject >= self.n:
            flow = self.flows[subject - self.n]
            flow.ready += 1
            if flow.ready < flow.parts:
                self._await(subject - self.n)
            self._take(subject - self.n, flow.size, now)
            return False
        flow = self.flows[subject]
        if self.pools.sharing != FAIR or flow.over:
            return True
        super()._arrives(subject, now)
        flow.moves = False
        flow.over = flow.last and flow.ready == flow.parts
        if flow.over and self.pools.latency_s > 0:
            heapq.heappush(self.heap, (now + self.pools.latency_s, ARRIVED, subject))
            return False
        return bool(flow.over)


def simulate(workload: Workload, **given: Any) -> Outcome:
    """As `prebleexp.sim.simulate.simulate` with RESERVE_FIRST and `engine=sglang`, of lengths Max."""
    return ReservingOracle(workload, SimpleNamespace(**{"reports_ms": 0.0, "faults": None, **given})).run()
