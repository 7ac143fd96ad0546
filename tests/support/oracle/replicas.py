"""The second simulator with replicas of the router (docs/gateway.md): what each of them knows is added up anew whenever
one is asked or told."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from prebleexp.sim.records import SENT
from prebleexp.sim.replicated import BY_SESSION, IN_TURN, Replication
from prebleexp.sim.types import Outcome, State, Workload, records
from tests.support.oracle.core import DECIDED, Job, Oracle

OF_ALL = ("stored", "evicted", "copied", "dropped", "changed")


class ReplicasOracle(Oracle):
    """`view.sent` is the sum of all books; nobody sees it. `queue` is what comes to any router, `waiting` has those who
    came to one that was busy."""

    def __init__(self, workload: Workload, of: Any, tell_at_start: bool) -> None:
        self.replicas: Replication = of.replicas
        self.now, self.turn = 0.0, 0
        self.waiting: dict[int, list[Job]] = {r: [] for r in range(self.replicas.count)}
        self.missing: set[int] = set()  # routers that have decided since before something ended
        self.freed: int | None = None  # who waits for this router is next
        self.book: list[tuple[float, int, int, int, int]] = []  # (when, whose, GPU, 1 or -1, prompt tokens)
        super().__init__(workload, of, tell_at_start)
        count, n = self.replicas.count, len(workload)
        rng = np.random.default_rng([of.seed, n, count])
        self.of: dict[int, int] = {}
        if self.replicas.spread != IN_TURN:
            self.of = dict(enumerate(rng.integers(count, size=n, dtype=np.int32).tolist()))
        if self.replicas.spread == BY_SESSION:
            of_sessions = rng.integers(count, size=1 + max(workload.session.tolist()), dtype=np.int32).tolist()
            self.of |= {i: of_sessions[one] for i, one in enumerate(workload.session.tolist()) if one >= 0}
        self.mines = [self.mine]
        for r in range(1, count):
            word = int(np.random.SeedSequence([of.seed, r]).generate_state(1, np.uint64)[0])
            self.mines.append(of.policy.start(replace(self.setup, seed=word >> 1, common_seed=of.seed)))

    def _replica(self, i: int) -> int:
        if i not in self.of:
            self.of[i], self.turn = self.turn, (self.turn + 1) % self.replicas.count
        return self.of[i]

    def _knows(self, r: int, now: float) -> tuple[Any, Any, Any]:
        """A replica's policy, what that remembers, and what it sees."""
        sent = records(len(self.gpus), SENT)
        for at_s, whose, g, sign, tokens in self.book:
            if whose == r or at_s + self.replicas.gossip_s <= now:
                sent[g].outstanding += sign
                sent[g].tokens += sign * tokens
                sent[g].requests += int(sign > 0)
        return self.policy, self.mines[r], self.view._replace(sent=sent)

    # ---------------------------------------------------------------- what happens
    def _route(self, now: float) -> None:
        self.now = now
        while self.queue and len(self._busy()) < self.replicas.count:
            job = self.queue.pop(0)
            if not len(self._view_of(job).candidates):
                self.held.append(job)
                self._call_next()
                continue
            r = self._replica(job.index)
            if r in self._busy():
                self.waiting[r].append(job)
                continue
            self._ask(job, now)
            if r in self._busy():
                self.freed = None
                self.missing.discard(r)

    def _view_of(self, job: Job) -> Any:
        """What is seen by whoever is asked about it, but for books."""
        return super()._asked(job)[2]

    def _busy(self) -> set[int]:
        return {self._replica(i) for i in self.deciding}

    def _call_next(self) -> None:
        if self.freed is not None and self.waiting[self.freed]:
            self.queue.insert(0, self.waiting[self.freed].pop(0))

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
        if job.state == State.CANCELLED:
            self.waiting = {r: [one for one in jobs if one is not job] for r, jobs in self.waiting.items()}

    def _asked(self, job: Job) -> tuple[Any, Any, Any]:
        return self._knows(self._replica(job.index), self.now)

    def _hearers(self, kind: str, i: int, g: int, now: float) -> list[tuple[Any, Any, Any]]:
        whose = range(self.replicas.count) if kind in OF_ALL else [self.of[i]]
        return [self._knows(r, now) for r in whose]

    def _write(self, job: Job, g: int, sign: int, now: float) -> None:
        super()._write(job, g, sign, now)
        self.book.append((now, self.of[job.index], g, sign, len(job.prompt)))


def simulate(workload: Workload, **given: Any) -> Outcome:
    """As `prebleexp.sim.simulate.simulate` with replicas, of lengths Max."""
    usual = {"reports_ms": 0.0, "kinds": (), "faults": None}
    return ReplicasOracle(workload, SimpleNamespace(**usual | given), False).run()
