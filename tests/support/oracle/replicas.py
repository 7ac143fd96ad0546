"""The second simulator with replicas of the router (docs/gateway.md): what each of them knows is added up anew whenever
one is asked or told."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from prebleexp.sim.answers import HOLD
from prebleexp.sim.records import SENT
from prebleexp.sim.replicated import BY_SESSION, IN_TURN, Replication
from prebleexp.sim.types import Outcome, State, Workload, records
from tests.support.oracle.core import DECIDED, Job, Oracle
from tests.support.oracle.gateway import GatewayOracle

OF_ALL = ("stored", "evicted", "copied", "dropped", "changed")


class ReplicasOracle(Oracle):
    """`view.sent` is the sum of all books; nobody sees it. `queue` is what comes to any router, `waiting` has those who
    came to one that was busy."""

    def __init__(self, workload: Workload, of: Any, *given: Any) -> None:
        self.replicas: Replication = of.replicas
        self.upcoming, self.requests = 0, len(workload)
        self.waiting: dict[int, list[Job]] = {r: [] for r in range(self.replicas.count)}
        self.missing: set[int] = set()  # routers that have decided since before something ended
        self.freed: int | None = None  # who waits for this router is next
        self.book: list[tuple[float, int, int, int, int, bool]] = []  # when, whose, GPU, 1 or -1, prompt, was it sent
        super().__init__(workload, of, *given)
        count, n = self.replicas.count, len(workload)
        rng = np.random.default_rng([of.seed, n, count])
        self.of: dict[int, int] = {}
        if self.replicas.spread != IN_TURN:
            self.of = dict(enumerate(rng.integers(count, size=n, dtype=np.int32).tolist()))
        if self.replicas.spread == BY_SESSION:
            of_sessions = rng.integers(count, size=1 + max(workload.session.tolist()), dtype=np.int32).tolist()
            self.of |= {i: of_sessions[one] for i, one in enumerate(workload.session.tolist()) if one >= 0}
        pools = getattr(of, "pools", None)
        self.mines = [
            [policy.start(self._setup(r)) for r in range(count)]
            for policy in (of.policy, *([] if pools is None else [pools.decode_policy]))
        ]

    def _setup(self, r: int) -> Any:
        if r == 0:
            return self.setup
        word = int(np.random.SeedSequence([self.setup.seed, r]).generate_state(1, np.uint64)[0])
        return replace(self.setup, seed=word >> 1, common_seed=self.setup.seed)

    def _replica(self, row: int) -> int:
        i = row % self.requests
        if i not in self.of:
            self.of[i], self.upcoming = self.upcoming, (self.upcoming + 1) % self.replicas.count
        return self.of[i]

    def _knows(self, r: int, base: tuple[Any, Any, Any], now: float) -> tuple[Any, Any, Any]:
        """What a replica remembers, and sees, in place of one router."""
        policy, mine, view = base
        sent = records(len(self.gpus), SENT)
        for at_s, whose, g, sign, tokens, is_sent in self.book:
            if whose == r or at_s + self.replicas.gossip_s <= now:
                sent[g].outstanding += sign
                sent[g].tokens += sign * tokens
                sent[g].requests += int(is_sent)
        return policy, self.mines[mine is not self.mine][r], view._replace(sent=sent)

    # ---------------------------------------------------------------- who is next
    def _route(self, now: float) -> None:
        while len(self._busy()) < self.replicas.count:
            job = self._take_first()
            if job is None:
                return
            if not self._is_there(job):
                self._call_next()
            elif not len(super()._asked(job)[2].candidates):
                self._put_aside(job)
                self._call_next()
            elif (r := self._replica(job.index)) in self._busy():
                self.waiting[r].append(job)
            else:
                self._ask(job, now)
                if r in self._busy():
                    self.freed = None
                    self.missing.discard(r)

    def _take_first(self) -> Job | None:
        return self.queue.pop(0) if self.queue else None

    def _put_first(self, job: Job) -> None:
        self.queue.insert(0, job)

    def _put_aside(self, job: Job) -> None:
        """No GPU may get it."""
        self.held.append(job)

    def _is_there(self, job: Job) -> bool:
        """Whether it waits to be asked about still."""
        return True

    def _busy(self) -> set[int]:
        return {self._replica(i) for i in self.deciding}

    def _call_next(self) -> None:
        if self.freed is not None and self.waiting[self.freed]:
            self._put_first(self.waiting[self.freed].pop(0))

    # ---------------------------------------------------------------- what happens
    def _happens(self, kind: int, subject: int, now: float) -> None:
        if kind != DECIDED:
            super()._happens(kind, subject, now)
            return
        self.freed = self._replica(subject)
        self.missed = self.freed in self.missing
        super()._happens(kind, subject, now)
        self._call_next()

    def _release(self) -> None:
        super()._release()
        self.missing = self._busy()

    def _expire(self, job: Job, now: float) -> None:
        super()._expire(job, now)
        self._wait_no_more(lambda one: one.state == State.CANCELLED)

    def _break_off(self, job: Job, g: int, now: float) -> None:
        super()._break_off(job, g, now)
        self._wait_no_more(lambda one: one is job)

    def _wait_no_more(self, who: Any) -> None:
        self.waiting = {r: [one for one in jobs if not who(one)] for r, jobs in self.waiting.items()}

    def _asked(self, job: Job) -> tuple[Any, Any, Any]:
        return self._knows(self._replica(job.index), super()._asked(job), self.now)

    def _hearers(self, kind: str, i: int, g: int, now: float) -> list[tuple[Any, Any, Any]]:
        whose = range(self.replicas.count) if kind in OF_ALL else [self._replica(i)]
        return [self._knows(r, router, now) for router in self._routers(kind, g) for r in whose]

    def _write(self, job: Job, g: int, sign: int, now: float) -> None:
        super()._write(job, g, sign, now)
        self.book.append((now, self._replica(job.index), g, sign, len(job.prompt), sign > 0))

    def _write_move(self, job: Job, g: int, sign: int, now: float) -> None:
        super()._write_move(job, g, sign, now)
        self.book.append((now, self._replica(job.index), g, sign, len(job.prompt), False))


class GatedReplicas(ReplicasOracle, GatewayOracle):
    """`queue` has who waits in the gateway, `second` what comes to any router, `offered` who is with one."""

    def __init__(self, workload: Workload, of: Any, *given: Any) -> None:
        self.second, self.second_held = list[Job](), list[Job]()
        self.offered: set[Job] = set()
        super().__init__(workload, of, *given)

    def _take_first(self) -> Job | None:
        if self.second:
            return self.second.pop(0)
        waiting = [job for job in self.queue if job not in self.passed and job not in self.offered]
        self._look()
        if not waiting or not len(self._first_view().candidates):
            return None
        job = self._next(waiting)
        self.passed.add(job)
        self.offered.add(job)
        return self._first_of(job)

    def _put_first(self, job: Job) -> None:
        self.second.insert(0, job)

    def _put_aside(self, job: Job) -> None:
        if self._is_first(job):
            self.offered.discard(self._request(job))
        else:
            self.second_held.append(job)

    def _is_there(self, job: Job) -> bool:
        if not self._is_first(job):
            return True
        self._look()
        request = self._request(job)
        if request in self.queue:
            self.passed.add(request)
            return True
        self.offered.discard(request)
        return False

    def _carry_out(self, job: Job, answer: int, now: float) -> None:
        if self._is_first(job):
            self.offered.discard(self._request(job))
            most = self.gateway.max_in_flight
            if answer >= 0 and most is not None and self.view.sent[answer].outstanding >= most:
                answer = HOLD
        super()._carry_out(job, answer, now)


def simulate(workload: Workload, **given: Any) -> Outcome:
    """As `prebleexp.sim.simulate.simulate` with replicas, and perhaps a gateway, of lengths Max."""
    usual = {"reports_ms": 0.0, "kinds": (), "faults": None, "gateway": None}
    of = SimpleNamespace(**usual | given)
    return (ReplicasOracle if of.gateway is None else GatedReplicas)(workload, of, False).run()
