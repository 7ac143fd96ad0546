"""The second simulator with a gateway before pools of prompts and outputs, whose GPUs may be lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from prebleexp.sim.answers import HOLD
from prebleexp.sim.pools import ALWAYS, DECODE, PREFILL
from prebleexp.sim.types import Outcome, State, Workload
from tests.support.oracle.core import Job, Oracle
from tests.support.oracle.gateway import GatewayOracle, LinearGateway
from tests.support.oracle.reserving import ReservingOracle
from tests.support.oracle.split_faults import SplitOracle


class BeforeRoles(LinearGateway):
    """A request passes the gateway once: `queue` has requests, and what is asked about a second time is in lists of its
    own, which come first."""

    def __init__(self, workload: Workload, of: Any) -> None:
        self.second, self.second_held = list[Job](), list[Job]()
        super().__init__(workload, of)

    # ---------------------------------------------------------------- a second time
    def _ask_again(self, job: Job, now: float) -> None:
        self.held_s[job.index % self.n] = now
        self.second.append(job)

    def _release(self) -> None:
        self.second[:0], self.second_held = self.second_held, []
        super()._release()

    def _offers(self, now: float) -> bool:
        if not self.second:
            return super()._offers(now)
        job = self.second.pop(0)
        if len((self.second_view if job.index < self.n else self.view).candidates):
            self._ask(job, now)
        else:
            self.second_held.append(job)
        return True

    def _carry_out(self, job: Job, answer: int, now: float) -> None:
        if self._is_first(job) and job.state != State.HELD:
            super()._carry_out(job, answer, now)
        elif answer == HOLD:
            self.second_held.append(job)
        else:
            Oracle._carry_out(self, job, answer, now)

    def _failed(self, job: Job, state: State, now: float) -> None:
        if job in self.in_flight:  # refused, or gone, before it was sent for the second time
            self._over(job)
        self._wait_for_none(job)
        super()._failed(job, state, now)

    def _wait_for_none(self, job: Job) -> None:
        self.second = [one for one in self.second if one is not job]
        self.second_held = [one for one in self.second_held if one is not job]

    def _leave_both(self, request: Job, now: float) -> None:
        there = [one for one in (self._leg(request), request) if one.gpu >= 0]
        super()._leave_both(request, now)
        if request.state == State.CANCELLED:
            for one in (self._leg(request), request):
                self._wait_for_none(one)
            if all(self.roles[one.gpu] == PREFILL for one in there) and request in self.in_flight:
                self._over(request)

    # ---------------------------------------------------------------- losses
    def _break_off(self, job: Job, g: int, now: float) -> None:
        self._wait_for_none(job)
        super()._break_off(job, g, now)

    def _go_on(self, job: Job, now: float) -> None:
        request, lost = self._request(job), job.state == State.LOST
        if job.state == State.HELD or (job is request and job.state == State.UNROUTED):
            super(GatewayOracle, self)._go_on(job, now)
            return
        if request in self.in_flight:  # it waited for a router
            self._over(request)
        if lost and self.retries and self.gateway.retries and not self._fails(request, now):
            job.unnoticed = False
            self._failed(job, State.LOST, now)
            return
        super(GatewayOracle, self)._go_on(job, now)
        if self.retries or not lost:
            self.queue.remove(self._first_of(request))
            if not lost or not self.gateway.retries:
                self._join(request, now)

    # ---------------------------------------------------------------- who does what
    def _let_be(self, candidates: set[int]) -> None:
        self.up = set(candidates)
        self._look()

    def _look(self) -> None:
        most = self.gateway.max_in_flight or np.inf
        outputs = sorted(g for g in self.up if self.roles[g] == DECODE)
        prompts = sorted(g for g in self.up if self.roles[g] != DECODE)
        first = prompts if self.pools.decider == ALWAYS else outputs
        first[:] = [g for g in first if self.view.sent[g].outstanding < most]
        self.view = self.view._replace(candidates=np.array(prompts, np.int64))
        self.second_view = self.second_view._replace(candidates=np.array(outputs, np.int64))

    def _first_view(self) -> Any:
        return self.view if self.pools.decider == ALWAYS else self.second_view

    def _for_prompts(self) -> list[int]:
        return [g for g in self._up() if self.roles[g] != DECODE]

    def _is_handed_over(self, kind: str, g: int, job: Job) -> bool:
        given_back = kind == "lost" and job.state == State.HELD
        return given_back or (self.roles[g] == PREFILL and (kind == "finished" or self.both))

    def _computing(self, job: Job) -> Job:
        leg = self._leg(job)
        return leg if leg.gpu >= 0 else job

    def _answering(self, job: Job) -> Job:
        leg = self._leg(job)
        return job if leg.gpu < 0 or self.roles[leg.gpu] == PREFILL else leg


class GatedPools(BeforeRoles, SplitOracle):
    """With vLLM's scheduler."""


class GatedReserving(BeforeRoles, ReservingOracle):
    """With SGLang's."""


def simulate(workload: Workload, **given: Any) -> Outcome:
    """As `prebleexp.sim.simulate.simulate` with pools, a gateway and `engine=vllm`, of lengths Max."""
    return GatedPools(workload, SimpleNamespace(**{"reports_ms": 0.0, "faults": None, **given})).run()
