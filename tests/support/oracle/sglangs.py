"""GPUs of the second simulator with SGLang's scheduler: `tests.support.reference.sglang`'s, which equals SGLang's
recordings, with what it has besides where prompts and outputs have GPUs of their own, and where they are lost."""

from __future__ import annotations

import math
from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

import numpy as np

from prebleexp.sim.pools import DECODE, PREFILL
from prebleexp.sim.types import State, Workload
from tests.support.oracle.core import Job, largest
from tests.support.reference.sglang import CLIP_MAX_NEW_TOKENS, SEGMENT, Batch, Cache, Request, Scheduler


class Counting(Cache):
    """What is evicted is counted."""

    evicted = 0

    def make_room(self, tokens: int) -> bool:
        free = self.free
        made = super().make_room(tokens)
        self.evicted += self.free - free
        return made


class Server(Scheduler):
    """Of one role: prompts alone, outputs alone, or as the reference."""

    def __init__(self, config: dict[str, Any], role: int, kept: int) -> None:
        super().__init__(config)
        self.cache: Counting = Counting(config["max_total_tokens"])
        self.role, self.kept = role, kept
        self.held: list[Request] = []
        self.told: list[Request] = []  # nobody ever is
        self.coming = 0
        self.ready: list[Request] = []
        self.back: list[Request] = []  # retracted
        self.reserved: list[Request] = []  # by the last scheduling, …
        self.joined: list[Request] = []  # … and of it
        self.room = config["max_total_tokens"]  # free when all who waited for it and fitted had got it

    def schedule(self) -> Batch | None:
        if self.role == PREFILL and self.last and self.last.prefill:
            self.full, self.last = False, None
        if self.role != DECODE:
            return super().schedule()
        self.retracted, self.reserved, self.joined = [], [], []
        self._keep([r for r in self.running if not r.done])
        self.last = batch = self._receive()
        return batch

    def _receive(self) -> Batch | None:
        self._resume()
        if not self.back:
            self._reserve()
        self.room = self.cache.free
        while self.ready and len(self.running) < self.config["max_running_requests"]:
            request = self.ready.pop(0)
            self.joined.append(request)
            request.generated = max(1, request.generated)
            request.done = request.generated >= request.target
            if request.done:
                self._release(request)
            else:
                self.running = [*self.running, request]
        batch = self._decode() if self.running else None
        return batch if batch is not None and batch.rows else None

    def leave(self, request: Request) -> None:
        """It gave up: what is computed of it goes to the tree."""
        if request not in self.waiting and self.role != DECODE:
            self._checkpoint(request, request.computed)
            self.running = [one for one in self.running if one is not request]
        self.withdraw(request)
        self.full = False

    def withdraw(self, request: Request) -> None:
        """It is taken back: what is its own is free."""
        request.done = True
        if request in self.waiting:
            self.waiting.remove(request)
            return
        super()._release(request)
        self.full = False
        if request in self.ready:
            self.ready.remove(request)
        elif self.role == DECODE:
            self.coming -= 1
        self.chunked = None if self.chunked is request else self.chunked

    def _active(self) -> int:
        return len(self.running) + self.coming + len(self.ready)

    def _hold(self, request: Request, tokens: int) -> None:
        self.cache.free -= tokens
        request.computed, request.retracted = tokens, False

    def _resume(self) -> None:
        left = self.cache.free - self.kept * self._active()
        while self.back and self.back[0].known + self.kept <= left:
            request = self.back.pop(0)
            left -= request.known + self.kept
            self._hold(request, request.known - 1)
            self.ready.append(request)

    def _reserve(self) -> None:
        def most(request: Request) -> int:
            return request.prompt + min(request.max_new, CLIP_MAX_NEW_TOKENS)

        retractable = sum(r.known for r in self.running)
        alone = max([most(r) for r in self.running], default=0)
        left = self.cache.free - max(self.kept * self._active(), alone - retractable)
        while self.waiting:
            request = self.waiting[0]
            if max(request.prompt + self.kept, most(request) - retractable) > left:
                break
            left -= request.prompt + self.kept
            self.waiting.pop(0)
            self._hold(request, request.prompt)
            self.coming += 1
            self.reserved.append(request)

    def arrive(self, request: Request) -> None:
        self.coming -= 1
        self.ready.append(request)

    def let_go(self, request: Request) -> None:
        self.held.remove(request)
        super()._release(request)

    def _checkpoint(self, request: Request, end: int) -> None:
        if self.role != DECODE:
            super()._checkpoint(request, end)

    def _release(self, request: Request) -> None:
        if self.role == PREFILL:
            self.held.append(request)
        else:
            super()._release(request)

    def _retract(self) -> None:
        if self.role != DECODE:
            super()._retract()
            return
        kept = sorted(self.running, key=lambda r: (r.generated, -r.prompt), reverse=True)
        while kept and (not self.retracted or not self.cache.make_room(len(kept))):
            request = kept.pop()
            self._release(request)
            request.retracted = True
            self.retracted.append(request)
            self.back.append(request)
        self._keep(kept)


class SglangGpu:
    def __init__(self, number: int, role: int, engine: Any, hardware: Any, rows: Workload, world: Any) -> None:
        self.number, self.role, self.cost, self.world = number, role, hardware, world
        self.kv_tokens, self.frontend_s, self.context_length = (
            hardware.kv_tokens,
            hardware.frontend_s,
            hardware.context_length,
        )
        overlap, self.kept = not engine.disable_overlap_schedule, engine.num_reserved_decode_tokens
        self.host_s, self.depth = 0.0 if overlap else engine.host_s, 2 if overlap else 1
        config = {"max_total_tokens": self.kv_tokens, "overlap": overlap, "schedule_policy": engine.schedule_policy}
        config |= {"chunked_prefill_size": engine.chunked_prefill_size}
        config |= {"max_running_requests": max(1, min(engine.max_running_requests, self.kv_tokens // 2))}
        config |= {"schedule_conservativeness": engine.schedule_conservativeness}
        self.config = config | {"skip_finishing_decode": engine.skip_finishing_decode}
        self.of = Server(self.config, role, self.kept)
        self.columns = {"segment_offsets": rows.segment_offsets, "segment_ids": rows.segment_ids}
        self.columns |= {"segment_tokens": rows.segment_tokens, "output_segment": rows.answer_segment}
        self.columns |= {"max_new_tokens": rows.max_new_tokens}
        self.columns["output_tokens"] = np.minimum(rows.output_tokens, rows.max_new_tokens)
        self.requests: dict[int, Request] = {}
        self.shown: dict[int, int] = {}  # of a request, tokens of its answer that it came with
        self.flight: deque[tuple[Batch, float]] = deque()
        self.batch: Any = None
        self.looked: list[tuple[int, int]] = []
        self.admitted: set[Request] = set()
        self.totals: Counter[str] = Counter()
        self.awake = self.stepping = False
        self.leaving: list[Job] = []
        self.lost_s, self.up, self.gone, self.speed, self.ends_s = math.nan, True, False, 1.0, math.nan
        self.down_s, self.down_since_s = 0.0, math.nan
        self.publish()

    def lose(self) -> list[Job]:
        """All that it has; returns the requests."""
        there, evicted = [one for one in self.requests.values() if not one.done], self.of.cache.evicted
        self.of = Server(self.config, self.role, self.kept)
        self.of.cache.evicted = evicted
        for some in (self.flight, self.leaving, self.looked, self.requests, self.admitted):
            some.clear()
        self.awake = self.stepping = False
        return [self.world.jobs[one.index] for one in there]

    def give_back(self) -> list[Job]:
        """Those of the queue without a token of this attempt."""
        jobs = self.world.jobs
        given = [one for one in self.of.waiting if math.isnan(jobs[one.index].attempt_s)]
        self.of.waiting = [one for one in self.of.waiting if one not in given]
        for request in given:
            del self.requests[request.index]
            self.admitted.discard(request)
        return [jobs[request.index] for request in given]

    def cancel(self, job: Job) -> None:
        request = self.requests.get(job.index)
        if request is None:  # it is on its way
            return
        if self.stepping and request not in self.of.waiting and self.role != DECODE:
            self.leaving.insert(0, job)
        else:
            self.of.leave(request)

    def withdraw(self, job: Job) -> None:
        request = self.requests.pop(job.index, None)
        if request is not None:  # else it has not joined its queue
            self.of.withdraw(request)
            self.admitted.discard(request)

    def publish(self) -> None:
        if not self.up:
            return
        of = self.of
        running = [r for r in of.running if not r.done]
        waits = 0 if self.role == DECODE else sum(r.known for r in of.waiting)
        waits += of.chunked.known - of.chunked.end if of.chunked else 0
        queued = len(of.waiting) + of.coming + len(of.ready) + len(of.back)
        self.seen = SimpleNamespace(queued=queued, running=len(running), waiting_tokens=waits)
        self.seen.kv_tokens, self.seen.ahead = self.kv_tokens, 0.0
        self.seen.kv_free, self.seen.evictable = of.cache.free, of.cache.evictable
        self.seen.generated = sum(r.generated for r in running)
        self.seen.window_hit_tokens = sum(found for found, _ in self.looked)
        self.seen.window_prompt_tokens = sum(whole for _, whole in self.looked)
        self.totals["evicted"] = of.cache.evicted

    def refuses(self, job: Job) -> bool:
        prompt, alone = len(job.prompt), self.role == PREFILL
        of = self.world._request(job)  # what computes a prompt may have to compute what was shown behind it
        output, most = (1, 1) if alone and not self.world.faults.resumes else (of.limit, of.max_new)
        wanted = prompt + min(most, output - 1 + CLIP_MAX_NEW_TOKENS) + 1
        never = self.role == DECODE and prompt + output + self.kept > self.kv_tokens
        return prompt + output > self.context_length or wanted >= self.kv_tokens or never

    def submit(self, job: Job) -> None:
        request = self.requests[job.index] = Request(job.index, self.columns, self.of.cache.root)
        self.shown[job.index] = shown = self.world.shown(job)
        request.prompt, request.target, request.max_new = (
            request.prompt + shown,
            request.target - shown,
            request.max_new - shown,
        )
        if self.role == PREFILL:
            request.target = request.max_new = 1
            answer = int(self.columns["output_segment"][job.index])
            made = (answer if answer >= 0 else -1 - job.index) * SEGMENT + np.arange(shown + 1)
            request.tokens = np.concatenate([request.tokens[: len(job.prompt)], made])
        job.state = State.QUEUED
        self.of.waiting.append(request)

    def begin(self, now: float) -> float | None:
        while len(self.flight) < self.depth:
            if not self._schedule(now) and (self.flight or self.of.cache.free <= self.of.room):
                break
        if not self.flight:
            self.of.ratio = self.of.first_ratio
            return None
        self.batch, seconds = self.flight.popleft()
        for request, begin, new in self.batch.rows:
            self.totals["forwarded"] += new
            if self.batch.prefill:
                self.totals["prefilled"] += max(0, min(self._prompt(request), begin + new) - begin)
            if self.role == PREFILL and not request.done:
                self.world.computes(request.index, begin + new, seconds / self.speed, now)
        self.totals["steps"] += 1
        self.stepping = True
        return seconds

    def _schedule(self, now: float) -> bool:
        of, jobs, waited = self.of, self.world.jobs, list(self.of.waiting)
        batch = of.schedule()
        for request in of.reserved:
            self.world.reserve(jobs[request.index], now)
        for request in of.joined:
            self._joins(request, jobs[request.index], now)
        of.reserved, of.joined = [], []
        for request in of.retracted:
            jobs[request.index].state = State.QUEUED
            self.totals["recomputed"] += 0 if self.role == DECODE else self._prompt(request)
        self.totals["retracted"] += len(of.retracted)
        if batch is None:
            return False
        for request, begin, _ in batch.rows if batch.prefill else []:
            if request in waited:
                self._admitted(request, min(begin, self._prompt(request)))
        self.totals["peak_kv"] = max(self.totals["peak_kv"], self.kv_tokens - of.cache.free)
        if not batch.prefill:
            largest(self.totals, len(batch.rows), batch.context)
        cost, tokens = self.cost, sum(new for *_, new in batch.rows)
        seconds = cost.step_s + cost.token_s * tokens + cost.context_token_s * batch.context
        self.flight.append((batch, max(0.0, seconds) + self.host_s))
        return True

    def _prompt(self, request: Request) -> int:
        return len(self.world.jobs[request.index].prompt)

    def _admitted(self, request: Request, found: int) -> None:
        job = self.world.jobs[request.index]
        self.totals["hit"] += found
        job.state = State.RUNNING if request.generated else job.state
        if request not in self.admitted:
            self.admitted.add(request)
            prompt = self._prompt(request)
            job.hit_tokens, job.prefilled_tokens = found, prompt - found
            self.looked.append((found, prompt))

    def _joins(self, request: Request, job: Job, now: float) -> None:
        job.state = State.RUNNING
        if request.generated > 1:
            return
        if math.isnan(job.attempt_s):
            self._gets(request, job, now)
        if request.done:
            self.world._release()

    def end(self, now: float) -> None:
        self.stepping, leaving, self.leaving = False, self.leaving, []
        for job in leaving:
            self.cancel(job)
        if self.role == PREFILL:
            for request, begin, new in [row for row in self.batch.rows if not row[0].done]:
                self.world.computed(request.index, begin + new, now)
        for request in self.of.take_up(self.batch):
            self._gets(request, self.world.jobs[request.index], now)

    def _gets(self, request: Request, job: Job, now: float) -> None:
        """A token."""
        job.output_seen, job.latency_s = self.shown[request.index] + request.generated, now - job.due_s
        if request.generated == 1:
            job.attempt_s = job.latency_s
            job.ttft_s = job.latency_s if math.isnan(job.ttft_s) else job.ttft_s
            job.state = State.RUNNING
            self.world.news.append(("first_token", request.index, self.number, 0))
        if request.done:
            job.state, job.finish_s = State.FINISHED, now
            self.world.news.append(("finished", request.index, self.number, 0))
