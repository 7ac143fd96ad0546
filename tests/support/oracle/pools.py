"""The second simulator with pools of prompts and outputs on vLLM, written from docs/core.md in plain Python.

GPUs are `tests.support.reference.vllm`'s scheduler, which equals vLLM's recordings, with what a KV connector adds to
it.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from prebleexp.sim.links import FAIR, FIFO
from prebleexp.sim.pools import ALWAYS, BOTH, DECODE, NEVER, PREFILL, PULL, UNCACHED, Disaggregation
from prebleexp.sim.types import Outcome, Setup, State, Workload
from tests.support.oracle import core as oracle
from tests.support.oracle.core import ARRIVED, REACHED, START, Job, largest
from tests.support.oracle.linear import alone_s
from tests.support.reference.vllm import Request, Scheduler


class Puller(Scheduler):
    """Beside what the reference does: prompts that are kept when they are computed, and prompts that are read."""

    def __init__(self, config: dict[str, Any], role: int, hears_later: bool = False) -> None:
        super().__init__(config)
        self.role, self.hears_later, self.drops = role, hears_later, role == PREFILL
        self.news: list[Request] = []  # whose transfers are over, and nobody has heard of that
        self.told: list[Request] = []  # were held, and are read
        self.held: list[Request] = []
        self.skipped: list[Request] = []  # reserved, in order; those in `arrived` have their KV
        self.arrived: set[Request] = set()
        self.pulls: set[Request] = set()  # wait, and their prompts are to be read
        self.asked: list[tuple[Request, int]] = []  # for so many tokens
        self.looked: list[tuple[int, int]] = []  # tokens found, of so many
        self.recomputed = 0

    def _release(self, request: Request) -> None:
        if self.role == PREFILL and request.done:
            self.held += [request] if any(request.blocks) else []
        else:
            super()._release(request)

    def busy(self) -> bool:
        return bool(self.arrived or self.news) or super().busy()

    def _queued(self) -> int:
        return len(self.waiting) + len(self.skipped)

    def _keeps_blocks(self, victim: Request) -> bool:
        return self.hears_later and self.role == DECODE and self.lookahead and victim.under_way > 0

    def schedule(self) -> dict[str, Any]:
        step = super().schedule()
        step["news"], self.news = self.news, []
        return step

    def hear(self, step: dict[str, Any]) -> None:
        """With the results of a step, of what was over when it was launched."""
        for request in step["news"]:
            if request in self.told:
                self.let_go(request)
            elif request in self.skipped:  # else it gave up
                self.arrived.add(request)
                request.computed = request.tokens - 1

    def _preempt(self, request: Request) -> None:
        self.recomputed += min(request.computed, request.prompt)
        super()._preempt(request)

    def leave(self, request: Request) -> None:
        """It gave up."""
        for places in (self.waiting, self.skipped, self.running):
            if request in places:
                self.flush = self.flush or places is self.running
                places.remove(request)
        self.arrived.discard(request)
        self.pulls.discard(request)
        super()._release(request)
        request.done, request.running = True, False

    def let_go(self, request: Request) -> None:
        for places in (self.held, self.told, self.news):
            if request in places:
                places.remove(request)
        request.done = False
        self._release(request)
        request.done = True

    def arrive(self, request: Request) -> None:
        self.arrived.add(request)
        request.computed = request.tokens - 1
        self._remember(request, request.computed)

    def _promised(self) -> int:
        """To those that compute their prompts again."""
        partial = [r for r in self.running if r.partial]
        return sum(max(0, -(-r.tokens // self.block) - len(r.blocks[0])) for r in partial)

    def _admit(self, chosen: dict[Request, int], budget: int, cap: int) -> dict[Request, int]:
        admitted: dict[Request, int] = {}
        for request in [r for r in self.skipped if r in self.arrived]:
            if not budget or len(self.running) == self.config["max_num_seqs"]:
                return admitted
            lacks, kept = self._lacks(request), self.kept_free if self.running else 0
            if lacks + kept > len(self.pool.free):
                return admitted
            self.skipped.remove(request)
            self.arrived.remove(request)
            self.running.append(request)
            request.running = True
            request.blocks[0] += self.pool.take(lacks)
            admitted[request], chosen[request] = -1, 1
            self._remember(request, request.tokens)
            budget -= 1
        while True:
            first = next((i for i, r in enumerate(self.waiting) if r in self.pulls), len(self.waiting))
            behind = [self.waiting.pop() for _ in range(len(self.waiting) - first)]
            more = super()._admit(chosen, budget, cap)
            budget -= sum(chosen[r] for r in more)
            admitted |= more
            stuck = any(not r.stale or self.drops for r in self.waiting)  # one of these did not fit
            self.waiting.extend(reversed(behind))
            full = not budget or len(self.running) == self.config["max_num_seqs"]
            if not behind or stuck or full or not self._reserve(behind[-1]):
                return admitted

    def _lacks(self, request: Request) -> int:
        """Blocks for its next token: none, for those of all that has come are there."""
        self._remember(request, request.tokens)
        return 0

    def _reserve(self, request: Request) -> bool:
        (hits,) = self._hits(request)
        need = -(-request.tokens // self.block) - len(hits)
        spent = sum(self.pool.holders[b] == 0 for b in hits) + (self.kept_free if self.running else 0)
        if need + spent + self._promised() > len(self.pool.free):
            return False
        self.waiting.remove(request)
        self.pulls.remove(request)
        self.pool.share(hits)
        request.blocks, request.keyed = [hits + self.pool.take(need)], len(hits)
        self.skipped.append(request)
        self.asked.append((request, need * self.block))
        self.looked.append((len(hits) * self.block, request.tokens))
        return True

    def whole(self, request: Request) -> bool:
        """Whether there are blocks for all that it will ever have; it has them then, and its prompt may come."""
        need = -(-(request.prompt + request.target - 1) // self.block)
        if need + self._promised() > len(self.pool.free):
            return False
        request.blocks = [self.pool.take(need)]
        self.skipped.append(request)
        return True


class VllmGpu:
    def __init__(self, number: int, role: int, engine: Any, hardware: Any, rows: Workload, world: Any) -> None:
        tokens, seqs = engine.max_num_batched_tokens, engine.max_num_seqs
        self.number, self.role, self.cost, self.world = number, role, hardware, world
        self.kv_tokens, self.frontend_s, self.block = hardware.kv_tokens, hardware.frontend_s, engine.block_size
        self.blocks, self.context_length = hardware.kv_tokens // self.block, hardware.context_length
        self.host_s = engine.host_step_s
        config = {"block_size": self.block, "num_blocks": self.blocks, "max_num_batched_tokens": tokens}
        config |= {"enable_prefix_caching": engine.enable_prefix_caching, "policy": engine.scheduling_policy}
        config |= {"async_scheduling": engine.async_scheduling, "watermark": engine.watermark, "max_num_seqs": seqs}
        config |= {"long_prefill_token_threshold": engine.long_prefill_token_threshold, "max_loras": engine.max_loras}
        self.of = self._scheduler(config | {"reserve_full_isl": engine.scheduler_reserve_full_isl})
        self.depth = 2 if engine.async_scheduling else 1
        self.columns = {"segment_offsets": rows.segment_offsets, "segment_ids": rows.segment_ids}
        self.columns |= {"segment_tokens": rows.segment_tokens, "output_segment": rows.answer_segment}
        self.columns |= {"lora": rows.adapter, "priority": rows.priority, "arrival_ns": np.zeros(len(rows), np.int64)}
        self.columns["output_tokens"] = np.minimum(rows.output_tokens, rows.max_new_tokens)
        self.requests: dict[int, Request] = {}
        self.flight: deque[tuple[Any, float, Counter[str]]] = deque()
        self.step: Any = None
        self.totals: Counter[str] = Counter()
        self.filling: set[Request] = set()
        """part-way through what they knew when they were admitted"""
        self.awake = self.stepping = False
        self.lost_s = math.nan
        self.leaving: list[Job] = []
        self.up, self.gone, self.down_s, self.speed = True, False, 0.0, 1.0
        self.ends_s = self.down_since_s = math.nan
        self.idle_s, self.poll_s = 0.0, engine.idle_poll_s
        self.publish()

    def _scheduler(self, config: dict[str, Any]) -> Puller:
        return Puller(config, self.role, self.world.pulls)

    def with_blocks(self) -> set[Request]:
        """Those that wait and have all that they need: nobody counts their tokens."""
        return set()

    def publish(self) -> None:
        of, pool = self.of, self.of.pool
        unkeyed = pool.without_key()
        waits = sum(r.tokens for r in of.waiting if r not in of.pulls)
        waits += sum(r.tokens - r.computed for r in of.running if r.partial)
        self.seen = SimpleNamespace(queued=len(of.waiting) + len(of.skipped), running=len(of.running))
        self.seen.waiting_tokens, self.seen.kv_tokens, self.seen.ahead = waits, self.kv_tokens, 0.0
        self.seen.kv_free = self.kv_tokens - (self.blocks - 1 - unkeyed) * self.block
        self.seen.evictable = (len(pool.free) - unkeyed) * self.block
        self.seen.generated = sum(r.tokens - r.prompt for r in of.running)
        self.seen.window_hit_tokens = sum(found for found, _ in of.looked)
        self.seen.window_prompt_tokens = sum(whole for _, whole in of.looked)

    def _known(self, job: Job) -> Request:
        """A request as it comes."""
        return Request(job.index, self.columns, 1)

    def _outputs(self, job: Job) -> int:
        """Tokens that it may have to hold beside a prompt."""
        return 1 if self.role == PREFILL else job.limit

    def refuses(self, job: Job) -> bool:
        tokens = min(len(job.prompt) + self._outputs(job), self.context_length)
        return len(job.prompt) >= self.context_length or tokens > (self.blocks - 1) * self.block

    def found(self, job: Job) -> int:
        return len(self.of._hits(self._known(job))[0]) * self.block

    def submit(self, job: Job) -> None:
        request = self.requests[job.index] = self._known(job)
        tokens = min(request.target, self.context_length - request.prompt)
        request.target = 1 if self.role == PREFILL else tokens
        job.state = State.QUEUED
        if self.role == DECODE and self.world.is_held(job):
            job.state = State.HELD
            self.of.pulls.add(request)
        self.of.waiting.append(request)

    def receive(self, job: Job, now: float) -> None:
        """Its prompt is computed elsewhere, and is to be sent here."""
        if math.isnan(job.attempt_s):
            request = self.requests[job.index] = self._known(job)
            request.target = min(request.target, self.context_length - request.prompt)
            request.tokens += 1
            job.output_seen, job.latency_s = request.tokens - request.prompt, now - job.due_s
            job.attempt_s = job.latency_s
            job.ttft_s = job.latency_s if math.isnan(job.ttft_s) else job.ttft_s
            self.world.news.append(("first_token", job.index, self.number, 0))
            if request.target == job.output_seen:
                job.state, job.finish_s = State.FINISHED, now
                self.world.news.append(("finished", job.index, self.number, 0))
                self.world.let_go(job, now)
                return
        request, evicted = self.requests[job.index], self.of.pool.evicted
        if self.of.whole(request):
            self.totals["evicted"] += (self.of.pool.evicted - evicted) * self.block
            self.world.ask(job, -(-(request.tokens - 1) // self.block) * self.block, now)
        else:
            heapq.heappush(self.world.heap, (now + 1.0, REACHED, job.index))

    def cancel(self, job: Job) -> None:
        if job.index not in self.requests:
            return  # it is on its way
        request = self.requests[job.index]
        if request in self.of.running and self.stepping:
            self.leaving.insert(0, job)
        else:
            self.of.leave(request)

    def begin(self, now: float) -> float | None:
        waits = False
        while True:
            while not waits and len(self.flight) < self.depth and self.of.busy():
                step, seconds = self._schedule(now)
                waits = not (step["chosen"] or step["preempted"] or self.of.running)
                waits = waits and self._may_wait()
            if not self.flight:
                self.idle_s = now
                return None
            self.step, seconds, counts = self.flight.popleft()
            self.totals.update(counts)
            if self.step["chosen"]:
                self.stepping = True
                return seconds
            waits = waits and not self.step["news"]
            self.of.hear(self.step)

    def _may_wait(self) -> bool:
        return bool(self.of.held or self.of.told or self.of.skipped)

    def _schedule(self, now: float) -> tuple[Any, float]:
        self.of.recomputed = 0
        resumed = {r for r in self.of.waiting if r.preemptions}
        arrived = set(self.of.arrived)
        step, jobs = self.of.schedule(), self.world.jobs
        chosen = step["chosen"]
        tokens, context = sum(new for _, new, _ in chosen), sum(r.computed for r, *_ in chosen)
        seconds = 0.0
        if chosen:
            cost = self.cost
            seconds = max(0.0, cost.step_s + cost.token_s * tokens + cost.context_token_s * context) + self.host_s
        counts = Counter(forwarded=tokens, retracted=len(step["preempted"]), recomputed=self.of.recomputed)
        counts["steps"], counts["evicted"] = int(bool(chosen)), step["row"][1] * self.block
        for request, new, _ in chosen:
            computed = max(0, min(request.prompt, request.computed) - (request.computed - new))
            counts["prefilled"] += 0 if request in arrived else computed
        for request, cached in step["admitted"]:
            if request not in arrived:
                self._admitted(request, cached, request in resumed, counts)
            elif request.tokens > request.prompt:
                jobs[request.index].state = State.RUNNING
        for request in step["preempted"]:
            jobs[request.index].state = State.QUEUED
        for request, asked in self.of.asked:
            self.world.ask(jobs[request.index], asked, now)
        self.of.asked.clear()
        if chosen:
            unkeyed = self.of.pool.without_key()
            self.totals["peak_kv"] = max(self.totals["peak_kv"], (self.blocks - 1 - unkeyed) * self.block)
            self.filling |= {request for request, _ in step["admitted"] if request not in arrived}
            decoded = [request for request, *_ in chosen if request not in self.filling]
            self.filling -= {request for request, *_ in chosen if request.computed >= request.tokens}
            largest(self.totals, len(decoded), sum(request.computed for request in decoded))
        self.flight.append((step, seconds, counts))
        return step, seconds

    def _admitted(self, request: Request, cached: int, resumed: bool, counts: Counter[str]) -> None:
        job, found = self.world.jobs[request.index], min(cached, request.prompt)
        counts["hit"] += found
        job.state = State.RUNNING if request.tokens > request.prompt else job.state
        if not resumed:
            job.hit_tokens, job.prefilled_tokens = found, request.prompt - found
            self.of.looked.append((found, request.prompt))

    def end(self, now: float) -> None:
        self.stepping, leaving, self.leaving = False, self.leaving, []
        for job in leaving:
            self.cancel(job)
        served, finished = self.of.take_up(self.step)
        self.of.hear(self.step)
        for request in served:
            job = self.world.jobs[request.index]
            job.output_seen, job.latency_s = request.tokens - request.prompt, now - job.due_s
            if math.isnan(job.ttft_s):
                job.ttft_s = job.latency_s
            if math.isnan(job.attempt_s):
                job.attempt_s = job.latency_s
                job.state = State.RUNNING if request.running else job.state
                self.world.news.append(("first_token", request.index, self.number, 0))
            if request in finished:
                job.state, job.finish_s = State.FINISHED, now
                self.world.news.append(("finished", request.index, self.number, 0))


class Linked(oracle.Oracle):
    """With links between GPUs."""

    def link(self, of: Any) -> None:
        """`of`: its sharing, rate and latency. Another time: of links beside those."""
        self.links = [*getattr(self, "links", []), of]
        self.free_s: dict[tuple[str, int, int], float] = {}
        self.asked: dict[int, Any] = {}  # (begins, ends, ports) of each transfer, but with FAIR
        self.coming: dict[int, Any] = {}  # transfers whose bytes do not move yet
        self.moving: dict[int, Any] = {}  # … and those that do, in the order in which they began
        self.changed_s = 0.0

    def send(self, subject: int, source: int, target: int, size: float, now: float, link: int = 0) -> None:
        of, ports = self.links[link], [("out", link, source), ("in", link, target)]
        begins_s = now + of.latency_s
        if of.sharing == FAIR:
            self.coming[subject] = SimpleNamespace(left=size, rate=0.0, ends_s=math.inf, ports=ports)
            if begins_s == now:
                self._begin(subject, now)
            else:
                heapq.heappush(self.heap, (begins_s, ARRIVED, subject))
            return
        if of.sharing == FIFO:
            begins_s = max([begins_s, *(self.free_s.get(port, 0.0) for port in ports)])
        ends_s = begins_s + size / of.rate
        self.free_s |= dict.fromkeys(ports, ends_s)
        self.asked[subject] = (begins_s, ends_s, ports)
        heapq.heappush(self.heap, (ends_s, ARRIVED, subject))

    def _takes_s(self, source: int, target: int, size: float, now: float) -> float:
        of, ports = self.links[0], (("out", 0, source), ("in", 0, target))
        begins_s = now + of.latency_s
        if of.sharing == FIFO:
            begins_s = max([begins_s, *(self.free_s.get(port, 0.0) for port in ports)])
        return float(begins_s - now + size / of.rate)

    def drop(self, subject: int, now: float) -> None:
        """It ends here. Not said: what was asked for last at a port gives that back."""
        if subject in self.moving:
            self._end(subject, now)
        elif subject not in self.coming:
            begins_s, ends_s, ports = self.asked[subject]
            self.free_s |= {port: begins_s for port in ports if self.free_s[port] == ends_s}
        self.coming.pop(subject, None)
        self.heap = [one for one in self.heap if one[1:] != (ARRIVED, subject)]
        heapq.heapify(self.heap)

    def _begin(self, index: int, now: float) -> None:
        self._advance(now)
        self.moving[index] = self.coming.pop(index)
        self._share(now)

    def _advance(self, now: float) -> None:
        for flow in self.moving.values():
            flow.left = 0.0 if flow.ends_s <= now else max(0.0, flow.left - flow.rate * (now - self.changed_s))
        self.changed_s = now

    def _share(self, now: float) -> None:
        """Max-min."""
        without = list(self.moving.values())
        numbers, gpus = range(len(self.links)), range(len(self.gpus))
        ports = [(way, number, g) for way in ("out", "in") for number in numbers for g in gpus]
        room = {port: self.links[port[1]].rate for port in ports}
        while without:
            users = {port: [flow for flow in without if port in flow.ports] for port in ports}
            narrow = min((port for port in ports if users[port]), key=lambda port: room[port] / len(users[port]))
            share = room[narrow] / len(users[narrow])
            for flow in users[narrow]:
                flow.rate, flow.ends_s = share, now + flow.left / share
                for port in flow.ports:
                    room[port] -= share
                without.remove(flow)
        self.heap = [one for one in self.heap if one[1] != ARRIVED or self._is_timer(one[2])]
        self.heap += [(flow.ends_s, ARRIVED, index) for index, flow in self.moving.items()]
        heapq.heapify(self.heap)

    def _is_timer(self, subject: int) -> bool:
        """Whether an event of a transfer is not that its bytes, which others slow down, have moved."""
        return subject not in self.moving

    def _arrives(self, index: int, now: float) -> bool:
        """Whether all of it is there: else it begins to move."""
        if index in self.coming:
            self._begin(index, now)
            return False
        if index in self.moving:
            self._end(index, now)
        return True

    def _end(self, index: int, now: float) -> None:
        self._advance(now)
        del self.moving[index]
        self._share(now)


class PoolsOracle(Linked):
    def __init__(self, workload: Workload, of: Any, tell_at_start: bool = False) -> None:
        pools: Disaggregation = of.pools
        self.pools, self.n = pools, len(workload)
        self.pulls = pools.protocol == PULL  # and GPUs hear later of what has come
        self.both = pools.protocol != PULL or pools.decider != ALWAYS  # GPUs are chosen at arrival
        self.roles = [role for role, (count, _) in zip(pools.roles, of.kinds, strict=True) for _ in range(count)]
        self.rows = _doubled(workload, BOTH in pools.roles)
        super().__init__(workload, of, tell_at_start)
        requests = self.jobs
        legs = [Job(self.rows, self.n + i) for i in range(self.n)]
        self.jobs = requests + legs
        seen = self.view.requests
        self.view = oracle._view(self.rows, self.gpus)
        self.view.requests.arrival_s[: self.n] = seen.arrival_s
        outputs = np.flatnonzero(np.array(self.roles) == DECODE)
        self.second_view = self.view._replace(candidates=outputs)
        self.view = self.view._replace(candidates=np.flatnonzero(np.array(self.roles) != DECODE))
        self.setup = Setup(of.gpus, of.seed, 2 * self.n, self.gpus[0].kv_tokens, 1, self.rows, legs=True)
        self.mine = of.policy.start(self.setup)
        self.second_mine = pools.decode_policy.start(self.setup)
        self.transferred, self.held_s = [0] * self.n, [math.nan] * self.n
        self.link(pools)

    def _gpu(self, g: int, engine: Any, hardware: Any) -> Any:
        return VllmGpu(g, self.roles[g], engine, hardware, self.rows, self)

    # ------------------------------------------------------------ two legs
    def _leg(self, job: Job) -> Job:
        return self.jobs[job.index % self.n + self.n]

    def _request(self, job: Job) -> Job:
        return self.jobs[job.index % self.n]

    def _first_of(self, job: Job) -> Job:
        leg = self._leg(job)
        leg.due_s = self.view.requests[leg.index].arrival_s = self._request(job).due_s
        return leg if self.pools.decider == ALWAYS else self._request(job)

    def _last(self) -> list[Job]:
        return [self._leg(job) if job.state == State.UNROUTED else job for job in self.jobs[: self.n]]

    def _came_s(self, job: Job) -> float:
        again = job.state == State.HELD or (job.index < self.n) == (self.pools.decider == ALWAYS)
        return self.held_s[job.index % self.n] if again else super()._came_s(job)

    def _asked(self, job: Job) -> tuple[Any, Any, Any]:
        if job.index < self.n:
            return self.pools.decode_policy, self.second_mine, self.second_view
        return self.policy, self.mine, self.view

    def _told(self, g: int) -> tuple[Any, Any, Any]:
        if self.roles[g] == DECODE:
            return self.pools.decode_policy, self.second_mine, self.second_view
        return self.policy, self.mine, self.view

    def _finished(self, job: Job, now: float) -> None:
        if self.roles[job.gpu] != PREFILL:
            self._ended(self._request(job), now)

    def _hand_over(self, job: Job, now: float) -> None:
        if self.roles[job.gpu] == PREFILL:
            request = self._request(job)
            request.state = State.HELD
            if self.pools.protocol == PULL and self.pools.decider == ALWAYS:
                self._ask_again(request, now)
            else:
                heapq.heappush(self.heap, (now, REACHED, request.index))

    def _ask_again(self, job: Job, now: float) -> None:
        self.held_s[job.index % self.n] = now
        self.queue.append(job)

    def _pass_frontend(self, job: Job, now: float) -> None:
        gpu, job.state = self.gpus[job.gpu], State.QUEUED
        seconds = gpu.frontend_s[0] + gpu.frontend_s[1] * len(job.prompt)
        if seconds > 0:
            heapq.heappush(self.heap, (now + seconds, REACHED, job.index))
        else:
            self._reach(job, now)

    def _goes(self, request: Job, now: float) -> bool:
        """Whether its prompt is to be computed elsewhere."""
        of, here, prompt = self.pools, self.gpus[request.gpu], self._length(request)
        new = prompt - here.found(request)
        if of.decider == NEVER:
            return False
        if of.decider == UNCACHED:
            return bool(new >= of.least_tokens)

        def prefill_s(gpu: Any, tokens: int) -> float:
            return alone_s(gpu.cost, tokens, prompt)

        def waits_s(gpu: Any) -> float:
            return prefill_s(gpu, prompt) / prompt * int(self.view.gpus[gpu.number].waiting_tokens)

        def moves_s(gpu: Any) -> float:
            return self._takes_s(gpu.number, here.number, new * of.kv_bytes, now)

        others = [self.gpus[g] for g in self.view.candidates if self.roles[g] == PREFILL]
        soonest = min([waits_s(gpu) + prefill_s(gpu, prompt) + moves_s(gpu) for gpu in others], default=math.inf)
        return soonest < waits_s(here) + prefill_s(here, new)

    def _length(self, request: Job) -> int:
        """Tokens that are to be computed before another one comes."""
        return len(request.prompt)

    def _send(self, job: Job, now: float) -> None:
        if self.pools.decider != ALWAYS:
            if job.state == State.HELD:  # its prompt is computed
                self._reach(job, now)
            elif job.index < self.n and self._goes(job, now):
                job.state = State.UNROUTED
                self._ask_again(self._leg(job), now)
            else:
                self._pass_frontend(job, now)
        elif self.pools.protocol == PULL or self.roles[job.gpu] == BOTH:
            super()._send(job, now)
        elif job.index < self.n:
            super()._send(self._leg(job), now)
        else:
            self._ask_again(self._request(job), now)

    def _reach(self, job: Job, now: float) -> None:
        gpu = self.gpus[job.gpu]
        if self.pools.protocol == PULL or job.index >= self.n or not gpu.up or not self.is_held(job):
            super()._reach(job, now)
            return
        gpu.receive(job, now)
        self._tell(gpu.number, now)
        self._wake(gpu, now)

    def _failed(self, job: Job, state: State, now: float) -> None:
        leg, request, closes = self._leg(job), self._request(job), None
        both = self.both
        if job.state == State.HELD and self.is_held(job):
            self.let_go(job, now)
        elif both and job is leg and state == State.CANCELLED and self.roles[leg.gpu] == PREFILL:  # its request ends
            return
        elif both and job is leg:  # refused, and its request is rid of its GPU
            job.state, closes = state, request
        elif state == State.REFUSED and leg.gpu >= 0 and self.pools.protocol != PULL:
            closes = leg
        if closes is not request:
            job.state = job.state if both and state == State.CANCELLED else state
            if request.goes_on:
                self._ended(request, now)
            else:
                self._cancel_behind(request, now)
        if closes is not None and closes.gpu >= 0:
            self.news.append(("cancelled", closes.index, closes.gpu, 0))
            self._tell(closes.gpu, now)
        elif closes is request:
            self._failed(request, State.CANCELLED, now)

    def _expire(self, request: Job, now: float) -> None:
        unread = self._leg(request).state in (State.QUEUED, State.RUNNING)
        if self.both and (unread or request.state == State.UNROUTED):
            self._leave_both(request, now)
            return
        job = self._leg(request) if request.state == State.UNROUTED else request
        unread, unnoticed = job.state in (State.HELD, State.RESERVED), job.unnoticed
        waits = unread or unnoticed or job.state in (State.UNROUTED, State.QUEUED, State.RUNNING)
        if not waits or not (math.isnan(request.ttft_s) and math.isnan(job.ttft_s)):
            return
        job.unnoticed = False
        if job.gpu < 0:
            self._failed(job, State.CANCELLED, now)
            job.state = State.CANCELLED  # also of one that was given back when its prompt was computed
            self.queue = [one for one in self.queue if one is not job]
            self.held = [one for one in self.held if one is not job]
            return
        if not unnoticed:
            self.gpus[job.gpu].cancel(job)
        if unread:
            self._leave_kv(job, now)
        job.state = State.CANCELLED if self.both else job.state
        self.news.append(("cancelled", job.index, job.gpu, 0))
        self._tell(job.gpu, now)

    def _leave_both(self, request: Job, now: float) -> None:
        """Of whose prompt nothing was handed over."""
        leg = self._leg(request)
        waits = leg.unnoticed or leg.state in (State.UNROUTED, State.QUEUED, State.RUNNING, State.RESERVED)
        if not waits or not (math.isnan(request.ttft_s) and math.isnan(leg.ttft_s)):
            return
        self.queue = [one for one in self.queue if one not in (leg, request)]
        self.held = [one for one in self.held if one not in (leg, request)]
        there = [one for one in (leg, request) if one.gpu >= 0]
        self._take_out(there, now)
        leg.state = request.state = State.CANCELLED
        leg.unnoticed = request.unnoticed = False
        self.news += [("cancelled", one.index, one.gpu, 0) for one in there]
        if all(self.roles[one.gpu] == PREFILL for one in there):  # nobody else hears of its end
            if request.goes_on:
                self._ended(request, now)
            else:
                self._cancel_behind(request, now)
        if there:
            self._tell(there[0].gpu, now)

    def _take_out(self, there: list[Job], now: float) -> None:
        """Of the GPUs to which parts of a request were sent."""
        leg = self._leg(there[0]) if there else None
        if leg in there and not leg.unnoticed:
            self.gpus[leg.gpu].cancel(leg)

    def _leave_kv(self, request: Job, now: float) -> None:
        if request.state == State.RESERVED:
            self.drop(request.index, now)
        if request.gpu >= 0:
            self._wake(self.gpus[request.gpu], now)
        if self.is_held(request):
            self.let_go(request, now)

    def is_held(self, request: Job) -> bool:
        leg = self._leg(request)
        gpu = self.gpus[leg.gpu]
        return leg.gpu >= 0 and gpu.requests[leg.index] in gpu.of.held

    def let_go(self, request: Job, now: float) -> None:
        leg = self._leg(request)
        gpu = self.gpus[leg.gpu]
        one = gpu.requests[leg.index]
        if self.pulls:
            gpu.of.held.remove(one)
            gpu.of.told.append(one)
            self._has_moved(gpu, one, now)
            return
        gpu.of.let_go(one)
        self._tell(gpu.number, now)
        self._wake(gpu, now)

    def _has_moved(self, gpu: Any, one: Request, now: float) -> None:
        """A transfer, of which the GPU hears with a step; one that has nothing to do looks again and again."""
        gpu.of.news.append(one)
        if gpu.up and not gpu.awake and gpu.poll_s > 0:
            looks_s = gpu.idle_s + math.ceil((now - gpu.idle_s) / gpu.poll_s) * gpu.poll_s
            if looks_s > now:
                heapq.heappush(self.heap, (looks_s, START, gpu.number))
                return
        if gpu.up:
            self._wake(gpu, now)

    def ask(self, request: Job, tokens: int, now: float) -> None:
        request.state, self.transferred[request.index] = State.RESERVED, tokens
        self.send(request.index, self._leg(request).gpu, request.gpu, tokens * self.pools.kv_bytes, now)

    def _finds_nothing(self, g: int, now: float) -> None:
        self._tell(g, now)

    def _happens(self, kind: int, subject: int, now: float) -> None:
        if kind != ARRIVED:
            super()._happens(kind, subject, now)
        elif self._arrives(subject, now):
            job = self.jobs[subject]
            gpu = self.gpus[job.gpu]
            job.state = State.QUEUED
            if self.pulls:
                self._has_moved(gpu, gpu.requests[job.index], now)
                self.let_go(job, now)
                return
            gpu.of.arrive(gpu.requests[job.index])
            self._tell(gpu.number, now)
            self._wake(gpu, now)
            self.let_go(job, now)

    def _outcome(self, end_s: float) -> Outcome:
        for i in range(self.n):
            request, leg = self.jobs[i], self.jobs[self.n + i]
            by_leg = request.state == State.UNROUTED
            kept = leg if by_leg else request
            first, second = leg.gpu, request.gpu
            second = first if by_leg and first >= 0 and self.roles[first] == BOTH else second
            made = SimpleNamespace(**vars(kept))
            served = (State.QUEUED, State.RUNNING, State.FINISHED, State.LOST)
            by = request if first < 0 <= second and request.state in served else leg
            made.due_s, made.gpu, made.decode_gpu = request.due_s, by.gpu, second
            made.hit_tokens, made.prefilled_tokens = by.hit_tokens, by.prefilled_tokens
            made.prefill_end_s, made.transferred_tokens = by.ttft_s, self.transferred[i]
            for name in ("overhead_s", "router_wait_s"):
                parts = [one for one in (getattr(leg, name), getattr(request, name)) if not math.isnan(one)]
                setattr(made, name, sum(parts) if parts else math.nan)
            made.max_new = 1 if by_leg and BOTH not in self.pools.roles else request.max_new
            made.routed = first if by_leg else second
            self.jobs[i] = made  # type: ignore[call-overload]
        self.jobs = self.jobs[: self.n]
        made_of = super()._outcome(end_s)
        told = [job.max_new if job.routed >= 0 else math.nan for job in self.jobs]  # type: ignore[attr-defined]
        columns = {name: [getattr(job, name) for job in self.jobs] for name in ("decode_gpu", "transferred_tokens")}
        return replace(
            made_of,
            told_output=np.array(told, np.float64),
            prefill_end_s=np.array([job.prefill_end_s for job in self.jobs]),  # type: ignore[attr-defined]
            **{name: np.array(column, np.int32) for name, column in columns.items()},
        )


def _doubled(workload: Workload, whole: bool) -> Workload:
    """Requests, then what computes their prompts."""
    n, rows = len(workload), len(workload.segment_ids)
    twice = {
        name: np.tile(getattr(workload, name), 2)
        for name in ("prompt_tokens", "prefix_group", "segment_ids", "segment_tokens", "session", "turn", "priority")
    }
    for name, one in (("output_tokens", 1), ("max_new_tokens", 1), ("answer_segment", -1)):
        column = getattr(workload, name)
        twice[name] = np.concatenate([column, column if whole else np.full(n, one)])
    offsets = np.concatenate([workload.segment_offsets, workload.segment_offsets[1:] + rows])
    return Workload(arrival_s=np.zeros(2 * n), segment_offsets=offsets, **twice)


def simulate(workload: Workload, **given: Any) -> Outcome:
    """As `prebleexp.sim.simulate.simulate` with pools and `engine=vllm`, of lengths Max."""
    return PoolsOracle(workload, SimpleNamespace(**{"reports_ms": 0.0, "faults": None, **given})).run()
