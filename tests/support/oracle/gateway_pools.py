"""The second simulator with a gateway before pools of prompts and outputs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from prebleexp.sim.answers import HOLD
from prebleexp.sim.pools import DECODE, PREFILL
from prebleexp.sim.types import Outcome, State, Workload
from tests.support.oracle.core import Job, Oracle
from tests.support.oracle.gateway import LinearGateway
from tests.support.oracle.pools import PoolsOracle


class GatedPools(LinearGateway, PoolsOracle):
    """Only prompts pass the gateway: `queue` has requests, and what is asked about a second time is in lists of its
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
        if len(self.second_view.candidates):
            self._ask(job, now)
        else:
            self.second_held.append(job)
        return True

    def _carry_out(self, job: Job, answer: int, now: float) -> None:
        if job.index >= self.n:
            super()._carry_out(job, answer, now)
        elif answer == HOLD:
            self.second_held.append(job)
        else:
            Oracle._carry_out(self, job, answer, now)

    def _failed(self, job: Job, state: State, now: float) -> None:
        if job in self.in_flight:  # refused, or gone, before it was sent for the second time
            self._over(job)
            self.second = [one for one in self.second if one is not job]
            self.second_held = [one for one in self.second_held if one is not job]
        super()._failed(job, state, now)

    # ---------------------------------------------------------------- who does what
    def _room(self, up: set[int]) -> np.ndarray[Any, Any]:
        return super()._room({g for g in up if self.roles[g] != DECODE})

    def _for_prompts(self) -> list[int]:
        return [g for g in self._up() if self.roles[g] != DECODE]

    def _is_handed_over(self, kind: str, g: int) -> bool:
        return kind == "finished" and self.roles[g] == PREFILL

    def _answering(self, job: Job) -> Job:
        leg = self._leg(job)
        return job if self.roles[leg.gpu] == PREFILL else leg


def simulate(workload: Workload, **given: Any) -> Outcome:
    """As `prebleexp.sim.simulate.simulate` with pools, a gateway and `engine=vllm`, of lengths Max."""
    return GatedPools(workload, SimpleNamespace(**{"reports_ms": 0.0, "faults": None, **given})).run()
