"""The second simulator with a gateway (docs/gateway.md): who is let in, who waits, who is next."""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from prebleexp.gateway.base import Gateway
from prebleexp.sim.answers import HOLD, REFUSE
from prebleexp.sim.types import Outcome, State, Workload
from tests.support.oracle.core import EXPIRE, SUBMIT, Job, Oracle
from tests.support.oracle.linear import alone_s


class GatewayOracle(Oracle):
    """`queue` has who waits; nobody is ever in `held`."""

    def __init__(self, workload: Workload, of: Any, *given: Any) -> None:
        self.gateway: Gateway = of.gateway
        self.workload = workload
        self.passed, self.in_flight = set[Job](), list[Job]()
        self.joins, self.joined = itertools.count(), dict[Job, int]()
        self.until_s, self.rings_s = dict[Job, float](), dict[Job, float]()
        self.refused_by = np.zeros(len(workload), np.int32)
        self.client = getattr(workload, self.gateway.client).tolist()
        self.priority, self.slo_s = workload.priority.tolist(), workload.slo_ttft_s.tolist()
        self.clients = sorted(set(self.client))
        self.given = dict.fromkeys(self.clients, 0.0)  # what each client was given
        self.charged, self.rebated = dict[Job, int](), set[Job]()
        self.turn, self.emptied = len(self.clients) - 1, None
        self.credit = dict.fromkeys(self.clients, 0.0)
        self.sent_before = set[tuple[int, ...]]()  # what begins a prompt, in segments
        self.level, self.filled_s = float(self.gateway.bucket_tokens or 0), 0.0
        self.tries, self.away = np.zeros(len(workload), np.int32), dict[Job, float]()
        self.retrying, self.came, self.retried = set[Job](), list[float](), list[float]()
        self.tokens = float(self.gateway.budget_tokens)
        sizes = (len(workload), self.gateway.retries)
        self.draws = np.random.default_rng([of.seed, len(workload)]).random(sizes)
        super().__init__(workload, of, *given)
        self.up = set(range(len(self.gpus)))

    # ---------------------------------------------------------------- coming
    def _happens(self, kind: int, subject: int, now: float) -> None:
        if kind == SUBMIT:
            self._comes(self.jobs[subject], now)
        else:
            super()._happens(kind, subject, now)

    def _comes(self, job: Job, now: float) -> None:
        job.number = next(self.arrived)
        if self._never(job):
            self._failed(job, State.REFUSED, now)
            return
        self.came.append(now)
        if not self._attempt(job, now):
            self._failed(job, State.REFUSED, now)
        elif not math.isnan(job.patience_s):
            heapq.heappush(self.heap, (max(now, job.due_s + job.patience_s), EXPIRE, job.index))

    def _attempt(self, job: Job, now: float) -> bool:
        """Whether it waits now, or comes again."""
        why = self._refused(job, now)
        if not why:
            self._join(job, now)
            return True
        again = self._fails(job, now)
        self.refused_by[job.index] = 0 if again else why
        return again

    def _fails(self, job: Job, now: float) -> bool:
        """An attempt has failed: whether there will be another."""
        of, k = self.gateway, int(self.tries[job.index])
        self.retrying.discard(job)
        if of.retry_budget == "tokens":
            self.tokens = max(0.0, self.tokens - 1)
        if k >= of.retries or not self._may(job, now):
            return False
        longest = min(of.retry_max_s, of.retry_initial_s * of.retry_multiplier**k)
        self.away[job] = now + float(self.draws[job.index, k]) * longest
        self.tries[job.index] += 1
        self.retrying.add(job)
        self.retried.append(now)
        heapq.heappush(self.heap, (self.away[job], EXPIRE, job.index))
        return True

    def _may(self, job: Job, now: float) -> bool:
        of = self.gateway
        if of.retry_budget == "ratio":
            return len(self.retrying) < max(of.budget_least, of.budget_ratio * self._present(job))
        if of.retry_budget == "tokens":
            return self.tokens > of.budget_tokens / 2
        if of.retry_budget == "window":
            came, tried = (sum(at > now - of.budget_window_s for at in times) for times in (self.came, self.retried))
            return tried + 1 <= of.budget_least * of.budget_window_s + of.budget_ratio * came
        return True

    def _refused(self, job: Job, now: float) -> int:
        of = self.gateway
        if of.limit is not None and self._present() > of.limit:
            return 1
        if of.shed and self.priority[job.index] > 0 and self._saturation() >= 1:
            return 4
        if of.slo_ttft_s is not None and self._predicted_s(job) > of.slo_ttft_s:
            return 5
        if of.queue_limit is not None and len(self.queue) >= of.queue_limit:
            return 2
        if of.bucket_tokens is not None:
            earned = of.refill_tokens_s * (now - self.filled_s)
            self.level, self.filled_s = min(of.bucket_tokens, self.level + earned), now
            if self.level < len(job.prompt):
                return 3
            self.level -= len(job.prompt)
        return 0

    def _up(self) -> list[int]:
        return [gpu.number for gpu in self.gpus if not gpu.gone]

    def _for_prompts(self) -> list[int]:
        return self._up()

    def _saturation(self) -> float:
        total = 0.0
        for seen in (self.view.gpus[g] for g in self._up()):
            used = 1.0 - (seen.kv_free + seen.evictable) / seen.kv_tokens
            total += max(seen.queued / self.gateway.saturated_queue, used / self.gateway.saturated_kv)
        return total / max(1, len(self._up()))

    def _predicted_s(self, job: Job) -> float:
        found, tokens, prompts = [math.inf], len(job.prompt), self._for_prompts()
        here = sum(len(one.prompt) for one in self.queue)
        for g in prompts:
            alone_s = self._alone_s(g, tokens)
            ahead = self.view.gpus[g].waiting_tokens + here / len(prompts)
            found.append(alone_s + alone_s / tokens * ahead)
        return min(found)

    def _alone_s(self, g: int, tokens: int) -> float:
        cost: Any = self.view.costs[g]
        return float(cost.step_s(1, tokens, tokens, 0, 0, tokens, cost.request_ms(tokens, tokens)))

    def _present(self, but: Job | None = None) -> int:
        """Requests that have come and not ended, the one that comes with them, and are not away."""
        over = (State.FINISHED, State.REFUSED, State.CANCELLED, State.EXPIRED)
        where = [(job, at) for job, at in zip(self.jobs, self._last(), strict=False) if job.number >= 0]
        there = [job for job, at in where if at.state not in over and not self._is_lost(at)]
        return sum(job not in self.away and job is not but for job in there)

    def _is_lost(self, job: Job) -> bool:
        return job.state == State.LOST and not job.unnoticed

    def _join(self, job: Job, now: float) -> None:
        if self.gateway.order == "vtc" and not self._waiting(self.client[job.index]):
            self._enter(self.client[job.index])
        self.joined[job] = next(self.joins)
        self.queue.append(job)
        if self.gateway.ttl_queue_s is not None:
            self.until_s[job] = now + self.gateway.ttl_queue_s
            if job not in self.rings_s:
                self._ring(job)

    def _ring(self, job: Job) -> None:
        self.rings_s[job] = self.until_s[job]
        heapq.heappush(self.heap, (self.until_s[job], EXPIRE, job.index))

    def _waiting(self, client: int) -> bool:
        return any(self.client[job.index] == client for job in self.queue)

    def _enter(self, client: int) -> None:
        self._count_tokens()
        least = min((self.given[one] for one in self.clients if self._waiting(one)), default=0.0)
        if not self.queue and self.emptied is not None:
            least = self.given[self.emptied]
        self.given[client] = max(self.given[client], least)

    # ---------------------------------------------------------------- leaving
    def _leave(self, job: Job) -> None:
        self.queue.remove(job)
        self.passed.discard(job)
        if not self._waiting(self.client[job.index]):
            self.emptied = self.client[job.index]
            self.credit[self.emptied] = 0.0

    def _carry_out(self, job: Job, answer: int, now: float) -> None:
        request = self._request(job)
        if answer == HOLD or request not in self.queue:
            return
        self._leave(request)
        if answer == REFUSE and self._fails(request, now):
            return
        if answer != REFUSE:
            client = self.client[request.index]
            self.credit[client] -= self._cost(request) if self._waiting(client) else 0.0
            self.given[client] += self.gateway.input_weight * len(request.prompt)
            self.charged[request] = 0
            self.rebated.discard(request)
            context = (*self._segments(request), int(self.workload.answer_segment[request.index]))
            self.sent_before |= {context[: k + 1] for k in range(len(context))}
            self.in_flight.append(request)
        super()._carry_out(job, answer, now)

    def _expire(self, job: Job, now: float) -> None:
        if self.away.get(job) == now:
            del self.away[job]
            if not self._attempt(job, now):
                self._failed(job, State.REFUSED, now)
        elif self.rings_s.get(job) == now:
            del self.rings_s[job]
            if job in self.queue and self.until_s[job] > now:
                self._ring(job)
            elif job in self.queue:
                self._leave(job)
                if not self._fails(job, now):
                    self._failed(job, State.EXPIRED, now)
        elif job.due_s + job.patience_s <= now:
            if math.isnan(job.ttft_s):
                self._leave(job) if job in self.queue else None
                if self.away.pop(job, None) is not None or job.gpu < 0:
                    self.retrying.discard(job)
            super()._expire(job, now)

    def _hears(self, kind: str, i: int, g: int) -> None:
        """Of those that are lost together the second's attempt goes on until it has heard of the first."""
        if kind in ("finished", "cancelled", "lost") and not self._is_handed_over(kind, g, self.jobs[i]):
            self._over(self._request(self.jobs[i]))
            if kind == "finished":
                self.tokens = min(self.gateway.budget_tokens, self.tokens + self.gateway.budget_ratio)

    def _is_handed_over(self, kind: str, g: int, job: Job) -> bool:
        """Whether what has ended on a GPU goes on elsewhere."""
        return False

    def _over(self, job: Job) -> None:
        self._charge(job)
        self.in_flight.remove(job)
        self.retrying.discard(job)

    def _go_on(self, job: Job, now: float) -> None:
        lost = job.state == State.LOST
        if lost and self.retries and self.gateway.retries and not self._fails(job, now):
            job.unnoticed = False
            self._failed(job, State.LOST, now)
            return
        super()._go_on(job, now)
        if self.retries or not lost:
            self.queue.remove(job)
            self._join(job, now) if not lost or not self.gateway.retries else None

    # ---------------------------------------------------------------- tokens
    def _count_tokens(self) -> None:
        for job in self.in_flight:
            self._charge(job)

    def _charge(self, job: Job) -> None:
        of, at, prompt = self.gateway, self._answering(job), self._computing(job)
        if not math.isnan(at.attempt_s) and job not in self.rebated:
            self.rebated.add(job)
            usual = 0.0 if of.order == "dlpm" else of.input_weight
            less = of.input_weight - (usual if of.cached_weight is None else of.cached_weight)
            self.given[self.client[job.index]] -= less * max(0, len(job.prompt) - prompt.prefilled_tokens)
        if not math.isnan(at.attempt_s) and at.output_seen > self.charged[job]:
            more = at.output_seen - self.charged[job]
            self.given[self.client[job.index]] += self.gateway.output_weight * more
            self.charged[job] = at.output_seen

    def _computing(self, job: Job) -> Job:
        """What of it computes its prompt."""
        return job

    def _answering(self, job: Job) -> Job:
        """What of it makes its answer."""
        return job

    # ---------------------------------------------------------------- who is next
    def _release(self) -> None:
        self.passed.clear()
        self.missed = bool(self.deciding)

    def _candidates(self) -> set[int]:
        return set(self.up)

    def _room(self, up: set[int]) -> np.ndarray[Any, Any]:
        self.up, most = up, self.gateway.max_in_flight or math.inf
        return np.array([g for g in sorted(up) if self.view.sent[g].outstanding < most], np.int64)

    def _route(self, now: float) -> None:
        while not self.deciding and self._offers(now):
            pass

    def _offers(self, now: float) -> bool:
        """Whether the router was asked about somebody."""
        waiting = [job for job in self.queue if job not in self.passed]
        if waiting:
            self._look()
        if not waiting or not len(self._first_view().candidates):
            return False
        job = self._next(waiting)
        self.passed.add(job)
        self._ask(self._first_of(job), now)
        return True

    def _look(self) -> None:
        """Whether GPUs are full, as of now."""
        self.view = self.view._replace(candidates=self._room(self.up))

    def _first_view(self) -> Any:
        """Of whose GPUs one is chosen first."""
        return self.view

    def _is_first(self, job: Job) -> bool:
        """Whether it has never been sent, so that it is in the queue."""
        return job is self._first_of(self._request(job))

    def _next(self, waiting: list[Job]) -> Job:
        order = self.gateway.order
        if order in ("vtc", "dlpm"):
            self._count_tokens()
        if order == "dlpm":
            return self._longest(waiting)
        if order == "round_robin":
            count = len(self.clients)
            have = {self.clients.index(self.client[job.index]) for job in waiting}
            self.turn = min(have, key=lambda at: (at - self.turn - 1) % count)
            waiting = [job for job in waiting if self.client[job.index] == self.clients[self.turn]]
        if order == "drr":
            client = self._in_credit(waiting)
            waiting = [job for job in waiting if self.client[job.index] == client]
        return min(waiting, key=lambda job: (self._rank(job), self.joined[job]))

    def _longest(self, waiting: list[Job]) -> Job:
        """`given` is beyond the client's quanta."""
        clients = {self.client[job.index] for job in waiting}
        while all(self.given[client] >= 0 for client in clients):
            for client in clients:
                self.given[client] -= self.gateway.quantum
        allowed = [job for job in waiting if self.given[self.client[job.index]] < 0]
        return min(allowed, key=lambda job: (-self._sent_before(job), self.joined[job]))

    def _sent_before(self, job: Job) -> int:
        ids, tokens = self._segments(job), 0
        for k in range(len(ids)):
            if ids[: k + 1] in self.sent_before:
                tokens = int(self.workload.segment_tokens[self.workload.segment_offsets[job.index] :][: k + 1].sum())
        return tokens

    def _segments(self, job: Job) -> tuple[int, ...]:
        offsets = self.workload.segment_offsets
        return tuple(self.workload.segment_ids[offsets[job.index] : offsets[job.index + 1]].tolist())

    def _cost(self, job: Job) -> float:
        expected = float(self.view.requests.expected_output[job.index])
        return self.gateway.input_weight * len(job.prompt) + self.gateway.output_weight * expected

    def _in_credit(self, waiting: list[Job]) -> int:
        first: dict[int, Job] = {}
        for job in sorted(waiting, key=lambda job: self.joined[job]):
            first.setdefault(self.client[job.index], job)
        while True:
            client = self.clients[self.turn]
            if client in first and self._cost(first[client]) <= self.credit[client]:
                return client
            self.turn = (self.turn + 1) % len(self.clients)
            if self.clients[self.turn] in first:
                self.credit[self.clients[self.turn]] += self.gateway.quantum

    def _rank(self, job: Job) -> Any:
        i, client = job.index, self.client[job.index]
        deadline_s = math.inf if math.isnan(self.slo_s[i]) else job.due_s + self.slo_s[i]
        ranks = {"edf": deadline_s, "priority": self.priority[i], "vtc": (self.given[client], client)}
        return ranks.get(self.gateway.order, 0)

    def _outcome(self, end_s: float) -> Outcome:
        return replace(super()._outcome(end_s), refused_by=self.refused_by, retries=self.tries)


class LinearGateway(GatewayOracle):
    """Before GPUs of a linear cost."""

    def _alone_s(self, g: int, tokens: int) -> float:
        return alone_s(self.gpus[g].cost, tokens, tokens)


def simulate(workload: Workload, **given: Any) -> Outcome:
    """As `prebleexp.sim.simulate.simulate` with a gateway, of lengths Max."""
    usual = {"reports_ms": 0.0, "kinds": (), "faults": None}
    return GatewayOracle(workload, SimpleNamespace(**usual | given)).run()
