"""A second simulator, written from docs/core.md in plain Python: what `simulate` must give, byte for byte.

Clear rather than fast. "Not said:" marks what docs/core.md leaves open, and is as the core has it.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from types import SimpleNamespace
from typing import Any

import numpy as np

from prebleexp.engines.continuous import Continuous
from prebleexp.faults.base import Faults
from prebleexp.hardware.preble import PrebleFit
from prebleexp.sim.answers import HOLD, REFUSE, WITHDRAWN
from prebleexp.sim.changes import DOWN, DRAIN, LIMIT, NOTICED, READY, SLOW, UP
from prebleexp.sim.history import Change, Decision, GpuState, History
from prebleexp.sim.records import REQUEST, SENT, Prompts, View
from prebleexp.sim.touching import uncounted
from prebleexp.sim.types import OPTIONAL, Outcome, Setup, State, Workload, records
from tests.support.ends import Ends

CHANGE, END, ARRIVED, REPORT, PAIR, SUBMIT, DECIDED, REACHED, EXPIRE, START = range(10)
EVENTS = 1_000_000
"""of a run: some have ten thousand"""
Tokens = tuple[tuple[int, int], ...]
"""(segment, index within it); (-1, 0) is every token of an answer without a segment"""


@dataclass(eq=False)
class Node:
    edge: Tokens
    parent: Any
    owner: int
    """the request that inserted it; not said: a split's upper part has the lower one's"""
    depth: int
    """tokens from the root to its end"""
    locks: int = 0
    touched: int = 0
    children: dict[tuple[int, int], Node] = field(default_factory=dict)

    @property
    def path(self) -> list[Node]:
        return [self, *self.parent.path] if self.parent else []


class Tree:
    def __init__(self) -> None:
        self.root, self.touches = Node((), None, -1, 0), itertools.count(1)

    def nodes(self) -> list[Node]:
        found = [self.root]
        for node in found:
            found.extend(node.children.values())
        return found[1:]

    def tokens(self, locked: bool) -> int:
        return sum(len(node.edge) for node in self.nodes() if locked == (node.locks > 0))

    def walk(self, tokens: Tokens) -> Iterator[tuple[Node, int]]:
        """The nodes that the tokens reach, and how many tokens they have in common with each."""
        node, shared = self.root, 0
        while shared == len(node.edge) and tokens and tokens[0] in node.children:
            node = node.children[tokens[0]]
            pairs = enumerate(zip(node.edge, tokens, strict=False))
            shared = next((i for i, (a, b) in pairs if a != b), min(len(node.edge), len(tokens)))
            yield node, shared
            tokens = tokens[shared:]

    def _split(self, lower: Node, at: int) -> Node:
        upper = Node(lower.edge[:at], lower.parent, lower.owner, lower.parent.depth + at, lower.locks)
        lower.edge, lower.parent = lower.edge[at:], upper
        upper.parent.children[upper.edge[0]], upper.children[lower.edge[0]] = upper, lower
        upper.touched = next(self.touches)
        return upper

    def reach(self, tokens: Tokens, owner: int | None = None) -> tuple[Node, int]:
        """*match*, or *insert* with an owner; returns the node in which the cached prefix ends, and its tokens."""
        last, known = self.root, 0
        for node, shared in list(self.walk(tokens)):
            known += shared
            last = node if shared == len(node.edge) else self._split(node, shared)
            if owner is None or known < len(tokens):
                last.touched = next(self.touches)
        if owner is not None and known < len(tokens):
            last.children[tokens[known]] = Node(tokens[known:], last, owner, len(tokens), 0, next(self.touches))
        return last, known

    def lock(self, node: Node, by: int = 1) -> None:
        for one in node.path:
            one.locks += by

    def drop(self) -> Node | None:
        """A leaf, if one can be evicted."""
        leaves = [node for node in self.nodes() if not node.children and not node.locks]
        least = min(leaves, key=lambda node: node.touched, default=None)
        if least is not None:
            del least.parent.children[least.edge[0]]
        return least


@dataclass
class Cost:
    """The equations of prebleexp/hardware/preble_step.py, in their order of operations."""

    of: PrebleFit

    def request_ms(self, new: int, length: int) -> float:
        start, constant, per_new, per_length, per_product = self.of.request
        return (new * length >= start) and constant + per_new * new + per_length * length + per_product * new * length

    def _batch_s(self, requests: int, tokens: int, context: int, unique: int) -> float:
        """Linear layers and attention."""
        _, constant, per_token, per_square = next(row for row in self.of.linear if tokens >= row[0])
        linear_s = (constant + per_token * tokens + per_square * (tokens * tokens)) / 1e3
        flat_tokens, flat, constant, per_token = self.of.attention
        if context <= flat_tokens:
            return linear_s + flat / 1e3
        ms = per_token * context + constant
        if unique / requests <= self.of.shared[0] and requests * unique <= self.of.shared[1]:
            ms /= 2
        return linear_s + ms / 1e3

    def step_s(self, prefills: int, new: int, length: int, running: int, context: int, unique: int, ms: float) -> float:
        if running + new == 0:
            return 0.0
        if self.of.prefill_batch:
            batch_s = self._batch_s(running + prefills, running + new, context + length, unique)
            return (batch_s + ms / 1e3) / self.of.efficiency
        return ms / 1e3 / self.of.efficiency + self.decode_s(running, context, context, min(running, 1))

    def decode_s(self, running: int, context: int, unique: int, steps: int) -> float:
        seconds = 0.0
        for more in range(0, steps * running, max(1, running)):
            seconds += self._batch_s(running, running, context + more, unique + more) / self.of.efficiency
        return seconds


STAGE = -1
"""among those that a request comes after: the stage before its own"""
ENDS = -2
"""likewise: so many ends, of whichever requests"""


class Job:
    def __init__(self, workload: Workload, i: int) -> None:
        rows = range(workload.segment_offsets[i], workload.segment_offsets[i + 1])
        segment, self.max_new = int(workload.answer_segment[i]), int(workload.max_new_tokens[i])
        self.index, self.number, self.due_s = i, -1, math.nan  # its number in order of arrival
        self.after = [int(j) for j in workload.after_ids[workload.after_offsets[i] : workload.after_offsets[i + 1]]]
        self.after += [STAGE] if workload.stage[i] > workload.stage[0] and not workload.overlaps[i] else []
        self.from_s = 0.0 if self.after else float(workload.arrival_s[i])
        self.after_ends = int(workload.after_ends[i])
        self.after += [ENDS] if self.after_ends else []
        self.behind = list[Job]()
        self.delay_s, self.goes_on = float(workload.delay_s[i]), bool(workload.goes_on[i])
        self.patience_s = float(workload.patience_s[i])
        self.limit = min(int(workload.output_tokens[i]), self.max_new)
        self.prompt = tuple((int(workload.segment_ids[j]), k) for j in rows for k in range(workload.segment_tokens[j]))
        self.answer = tuple((segment, k) if segment >= 0 else (-1, 0) for k in range(self.limit))
        self.state, self.gpu, self.output_seen = State.UNROUTED, -1, 0
        self.overhead_s = self.router_wait_s = self.ttft_s = self.latency_s = self.finish_s = math.nan
        self.losses, self.unnoticed = 0, False  # whether it is lost and routers do not know
        self.attempt_s = math.nan  # first token of this attempt − due
        self.node: Any = None
        self.cached = self.new = self.computed = self.output = self.hit_tokens = self.prefilled_tokens = 0
        self.chunk = 0  # of `new`, what the step in hand computes, …
        self.reached = 0  # … and the tokens of its context then
        self.waits = 0  # prompt tokens to compute, as far as the GPU knows


def largest(totals: Counter[str], running: int, context: int) -> None:
    for name, value in (("peak_running", running), ("peak_context", context)):
        totals[name] = max(totals[name], value)


class Gpu:
    def __init__(self, number: int, engine: Continuous, hardware: PrebleFit, news: list[Any]) -> None:
        self.number, self.engine, self.cost, self.news = number, engine, Cost(hardware), news
        self.kv_tokens = self.kv_free = hardware.kv_tokens
        self.frontend_s = hardware.frontend_s
        self.chunked, self.slack = engine.prefill == "chunked", engine.block_tokens - 1
        self.max_prefill = max(hardware.context_length, hardware.kv_tokens // 6)
        self.longest = hardware.context_length if self.chunked else min(hardware.context_length, self.max_prefill - 1)
        self.queue, self.part_way, self.running = list[Job](), list[Job](), list[Job]()
        self.window: list[tuple[float, int, int]] = []
        self.turns: Counter[int] = Counter()
        self.totals: Counter[str] = Counter()
        self.tree, self.least, self.ratio = Tree(), 0, 0.4
        self.steps, self.awake = 0, False  # of decode, in the step in hand; whether an event is to come
        self.stepping, self.leaving = False, list[Job]()
        self.up, self.gone, self.down_s, self.speed = True, False, 0.0, 1.0
        self.ends_s = self.down_since_s = math.nan
        self.lost_s = math.nan  # when it first went down
        self.publish()

    def lose(self) -> list[Job]:
        """All that it has; returns the requests. Not said: decode steps are counted on, but for those in hand."""
        self.totals["steps"] -= self.steps if self.stepping else 0
        lost = [*self.queue, *self.part_way, *self.running]
        self.queue, self.part_way, self.running, self.leaving, self.window = [], [], [], [], []
        self.turns, self.tree, self.least, self.ratio = Counter(), Tree(), 0, 0.4
        self.kv_free, self.awake, self.stepping = self.kv_tokens, False, False
        return lost

    def give_back(self) -> list[Job]:
        """Those of the queue without a token of this attempt."""
        given = [job for job in self.queue if math.isnan(job.attempt_s)]
        self.queue = [job for job in self.queue if job not in given]
        return given

    def publish(self) -> None:
        """What it told last stands while it is down. Not said: what is part-way is neither queued nor running; queued
        prompts count whole until looked at."""
        if not self.up:
            return
        waiting = sum(job.waits for job in self.queue) + sum(job.new - job.computed for job in self.part_way)
        self.seen = SimpleNamespace(queued=len(self.queue), running=len(self.running), waiting_tokens=waiting)
        self.seen.kv_tokens, self.seen.kv_free = self.kv_tokens, self.kv_free
        self.seen.evictable, self.seen.generated = self.tree.tokens(False), sum(job.output for job in self.running)
        self.seen.window_hit_tokens = sum(hit for _, hit, _ in self.window)
        self.seen.window_prompt_tokens, self.seen.ahead = sum(prompt for *_, prompt in self.window), 0.0

    def refuses(self, job: Job) -> bool:
        return len(job.prompt) > self.longest or len(job.prompt) + job.max_new + 2 * self.slack + 1 >= self.kv_tokens

    def submit(self, job: Job) -> None:
        needs = job.max_new + self.slack + 1
        self.least = min(self.least, needs) if self.queue else needs
        job.state, job.gpu, job.waits = State.QUEUED, self.number, len(job.prompt)
        self.queue.append(job)

    def _free(self, tokens: int) -> bool:
        """Whether so many are free, after an eviction of the shortfall."""
        while self.kv_free < tokens and (node := self.tree.drop()):
            self.kv_free += len(node.edge)
            self.totals["evicted"] += len(node.edge)
            self.news.append(("evicted", node.owner, self.number, node.parent.depth))
        return self.kv_free >= tokens

    def _take(self, tokens: int) -> None:
        self._free(tokens)
        self.kv_free -= tokens
        self.totals["peak_kv"] = max(self.totals["peak_kv"], self.kv_tokens - self.kv_free)

    def cancel(self, job: Job) -> None:
        """Not said: of those that leave at the end of a step the last comes first."""
        if job in self.queue:
            self.queue.remove(job)
        elif job in self.part_way and self.stepping:
            self.leaving.insert(0, job)
        elif job in self.part_way:  # else it is on its way
            self.part_way.remove(job)
            tokens = job.computed + job.chunk
            if tokens:
                context = job.prompt[: job.cached + tokens]
                self.kv_free += max(0, self.tree.reach(context, job.index)[1] - job.cached)
                self.news.append(("stored", job.index, self.number, len(context)))
            self.tree.lock(job.node, -1)

    def begin(self, now: float) -> float | None:
        """Seconds of the next step."""
        self.steps = 0
        self._admit(now)
        self.stepping = bool(self.part_way or self.running)
        if not self.stepping:
            return None
        seconds = (self._chunks if self.chunked else self._whole)() if self.part_way else self._decode()
        prefilled = sum(job.chunk for job in self.part_way)  # not said: totals count from START on
        self.totals.update(prefilled=prefilled, forwarded=prefilled + self.steps * len(self.running), steps=self.steps)
        return seconds + self.engine.step_cost_s

    def _look(self, job: Job) -> int:
        cached = sum(shared for _, shared in self.tree.walk(job.prompt))
        job.waits = len(job.prompt) - cached
        return cached

    def _ordered(self) -> list[tuple[Job, int]]:
        jobs = sorted(self.queue, key=lambda job: job.number)
        if self.engine.queue == "fcfs":
            return [(job, 0) for job in jobs]
        cached = {job: self._look(job) for job in jobs}
        if self.engine.queue == "lpm":
            return [(job, 0) for job in sorted(jobs, key=lambda job: -cached[job])]
        rounds, counts = [], Counter[int]()
        for job in jobs:
            group = self.engine.groups * cached[job] // len(job.prompt)
            rounds.append(((self.turns[group] + counts[group]) // max(1, group), -group, counts[group], job))
            counts[group] += 1
        return [(job, -minus) for _, minus, _, job in sorted(rounds, key=lambda row: row[:3])]

    def _admit(self, now: float) -> None:
        block, admitted = self.engine.block_tokens, []
        to_compute = sum(job.new - job.computed for job in self.part_way)
        budget = self.engine.chunk_tokens - len(self.running) - to_compute if self.chunked else self.max_prefill
        owed = to_compute + sum(job.max_new + self.slack for job in self.part_way)
        to_come = sum(job.max_new - job.output for job in self.running)
        available = self.kv_free + self.tree.tokens(False) - owed - to_come * self.ratio
        if not self.queue or budget <= 0 or available <= self.least:
            return
        promised = prefill = 0
        for job, group in self._ordered():
            if available - promised <= self.least:
                break
            new = len(job.prompt) - self._look(job) // block * block or block
            need = new + job.max_new + self.slack
            if need + promised >= available or prefill + (0 if self.chunked else new) >= budget:
                if self.engine.queue == "lpm":
                    continue
                break
            (node, _), before = self.tree.reach(job.prompt), self.tree.tokens(False)
            self.tree.lock(node)
            available -= before - self.tree.tokens(False)
            if need + promised >= available:
                self.tree.lock(node, -1)
                break
            promised, prefill = promised + need, prefill + new
            job.node, job.new, job.cached, job.computed, job.output = node, new, len(job.prompt) - new, 0, 0
            job.hit_tokens, job.prefilled_tokens = job.cached, job.new
            self.totals["hit"] += job.cached
            admitted.append(job)
            first = self.turns[group] // max(1, group)
            self.turns[group] += 1
            self.turns = Counter({i: max(0, had - first * max(1, i)) for i, had in self.turns.items()})
        self.queue = [job for job in self.queue if job not in admitted]
        self.part_way += admitted
        if admitted:
            self.window = [entry for entry in self.window if now - entry[0] <= 30]
            self.window.append((now, sum(job.cached for job in admitted), sum(len(job.prompt) for job in admitted)))

    def _whole(self) -> float:
        jobs, ms = self.part_way, 0.0
        for job in jobs:
            job.chunk = job.new
            ms += self.cost.request_ms(job.new, len(job.prompt))
        new, length = sum(job.new for job in jobs), sum(len(job.prompt) for job in jobs)
        self._take(new)
        nodes = {node for job in jobs for node in job.node.path}
        unique = sum(len(job.prompt) - job.node.depth for job in jobs) + sum(len(node.edge) for node in nodes)
        return self.cost.step_s(len(jobs), new, length, 0, 0, unique, ms)

    def _chunks(self) -> float:
        if self.running:
            self._make_room()
            self._take(len(self.running))
            self.steps = 1
        budget, ms = self.engine.chunk_tokens - len(self.running), 0.0
        for job in self.part_way:
            job.chunk = max(0, min(budget, job.new - job.computed))
            job.chunk = job.chunk if self._free(job.chunk) else max(0, self.kv_free)
            self._take(job.chunk)
            job.reached = job.cached + job.computed + job.chunk
            budget -= job.chunk
            ms += self.cost.request_ms(job.chunk, job.reached) if job.chunk else 0.0
        given = [job for job in self.part_way if job.chunk]
        tokens, length = sum(job.chunk for job in given), sum(job.reached for job in given)
        context, unique = self._contexts()
        unique += sum(max(0, job.reached - job.node.depth) for job in self.part_way)
        largest(self.totals, len(self.running), context)
        return self.cost.step_s(len(given), tokens, length, len(self.running), context, unique, ms)

    def _contexts(self) -> tuple[int, int]:
        """Of running requests, with the token that they decode: tokens, and distinct tokens."""
        context = sum(len(job.prompt) + job.output for job in self.running)
        return context, context - sum(job.node.depth for job in self.running) + self.tree.tokens(True)

    def _decode(self) -> float:
        self._make_room()
        running, every = len(self.running), self.engine.decode_steps
        most = min([every - self.totals["steps"] % every, *(job.limit - job.output for job in self.running)])
        context, unique = self._contexts()
        while self.steps < most and (not self.steps or self._free(running)):
            self.ratio = max(self.ratio - 0.0001, 0.2) if self.steps else self.ratio
            self._take(running)
            self.steps += 1
        largest(self.totals, running, context + (self.steps - 1) * running)
        return self.cost.decode_s(running, context, unique, self.steps)

    def _make_room(self) -> None:
        ran = len(self.running)
        if self._free(ran):
            self.ratio = max(self.ratio - 0.0001, 0.2)
            return
        self.ratio = min(self.ratio + 0.05, 1)
        self.running.sort(key=lambda job: job.number)
        while self.kv_free < ran and self.running:
            job = self.running.pop()
            self.kv_free += len(job.prompt) + job.output - 1 - job.cached + self.slack
            self.tree.lock(job.node, -1)
            self.totals.update(retracted=1, recomputed=len(job.prompt))
            self.submit(job)

    def end(self, now: float) -> None:
        self.stepping, leaving, self.leaving = False, self.leaving, []
        for job in leaving:
            self.cancel(job)
        for job in [*self.running, *self.part_way]:
            ran = job.state == State.RUNNING
            job.computed, job.chunk = job.computed + job.chunk, 0
            more = self.steps if ran else int(job.computed == job.new)
            if more:
                job.output, job.output_seen = job.output + more, job.output + more
                job.latency_s = now - job.due_s
                if math.isnan(job.ttft_s):
                    job.ttft_s = job.latency_s
                if math.isnan(job.attempt_s):
                    job.attempt_s = job.latency_s
                    self.news.append(("first_token", job.index, self.number, 0))
                if job.output >= job.limit or not ran:
                    self._keep(job, ran, now)
        self.running = [job for job in [*self.running, *self.part_way] if job.state == State.RUNNING]
        self.part_way = [job for job in self.part_way if job.computed < job.new]

    def _keep(self, job: Job, ran: bool, now: float) -> None:
        """Of a request that is finished, or begins to run."""
        context = job.prompt + job.answer[: job.output - 1]
        self.kv_free += max(0, self.tree.reach(context, job.index)[1] - job.cached)
        self.news.append(("stored", job.index, self.number, len(context)))
        if job.output >= job.limit:
            self.tree.lock(job.node, -1)
            self.kv_free += self.slack if ran else 0
            job.state, job.finish_s = State.FINISHED, now
            self.news.append(("finished", job.index, self.number, 0))
        else:
            before, (job.node, job.cached) = job.node, self.tree.reach(job.prompt)
            self.tree.lock(before, -1)
            self.tree.lock(job.node)
            job.state = State.RUNNING
            self._take(self.slack)


class Oracle:
    pulls = False
    """whether GPUs read KV from others, and hear of that later"""

    def __init__(self, workload: Workload, of: Any, tell_at_start: bool = False) -> None:
        self.policy, self.overhead, self.reports_s = of.policy, of.overhead, of.reports_ms / 1e3
        self.duration_s, self.tell_at_start = of.duration_s if of.horizon == "stop" else math.inf, tell_at_start
        self.prediction_s = of.overhead.prediction_s if of.overhead.mode == "serial" else 0.0
        kinds = of.kinds or [(of.gpus, of.hardware)]
        hardware = [kind for count, kind in kinds for _ in range(count)]
        self.now = 0.0
        self.news: list[Any] = []  # what the policy has to hear: (its function, request, GPU, tokens)
        self.gpus = [self._gpu(g, of.engine, kind) for g, kind in enumerate(hardware)]
        self.jobs = [Job(workload, i) for i in range(len(workload))]
        self.view = _view(workload, self.gpus)
        kv_tokens, context_length = hardware[0].kv_tokens, hardware[0].context_length
        self.setup = Setup(of.gpus, of.seed, len(workload), kv_tokens, context_length, workload)
        self.mine = of.policy.start(self.setup)
        self.queue, self.held = list[Job](), list[Job]()
        self.deciding, self.missed = dict[int, int](), False
        self.arrived, self.heap = itertools.count(), [(0.0, REPORT, 0)] if self.reports_s else []
        self.retries = of.faults is not None and of.faults.retries
        self.faults = of.faults or Faults()
        self.timeline = self.faults.timeline(of.gpus, of.duration_s, of.seed).tolist()
        self.heap += [(row[0], CHANGE, i) for i, row in enumerate(self.timeline)]
        self.timeline += [(math.nan, g, event, 1.0) for event in (READY, LIMIT) for g in range(of.gpus)]
        self.planned = dict[tuple[int, int], float]()  # of a GPU, when READY or LIMIT
        self.start_s = [self.faults.start_s(kind) for kind in hardware]
        self.on_since_s, self.drained_s = dict.fromkeys(range(of.gpus), 0.0), dict[int, float]()
        self.on_s = [0.0] * of.gpus
        self.states: list[dict[float, GpuState]] = [{0.0: GpuState.READY} for _ in range(of.gpus)]
        self.decisions = list[Decision]()
        heapq.heapify(self.heap)
        self.linked = not workload.is_open
        self.stages, self.over = (workload.stage * (1 - workload.overlaps)).tolist(), set[int]()
        self.stage = min(self.stages, default=0)
        last_start_s = of.duration_s if len(workload.after_ids) else math.inf
        for job in self.jobs:
            for one in job.after:
                self.jobs[one].behind += [job] if one >= 0 else []
            session, arrival_s = int(workload.session[job.index]), float(workload.arrival_s[job.index])
            mates = [one.index for one in self.jobs if session >= 0 and workload.session[one.index] == session]
            starts = [float(workload.arrival_s[i]) for i in mates if not self.jobs[i].after] or [arrival_s]
            if not job.after and min(starts) <= last_start_s:
                self._due(job, arrival_s)

    def _gpu(self, g: int, engine: Any, hardware: Any) -> Any:
        return Gpu(g, engine, hardware, self.news)

    def _due(self, job: Job, due_s: float) -> None:
        job.due_s = self.view.requests[job.index].arrival_s = due_s
        heapq.heappush(self.heap, (due_s + self.prediction_s, SUBMIT, job.index))

    def _ended(self, job: Job, now: float) -> None:
        for one in job.behind:
            self._waits_no_more(one, job.index, now + one.delay_s)
        self._is_over(job, now)

    def _waits_no_more(self, job: Job, of: int, from_s: float) -> None:
        job.after.remove(of)
        job.from_s = max(job.from_s, from_s)
        if not job.after:
            self._due(job, job.from_s)

    def _is_over(self, job: Job, now: float) -> None:
        """One more has ended; the next stage begins when all of this one is over."""
        self.over.add(job.index)
        for one in self.jobs:
            if one.after_ends == len(self.over):
                self._waits_no_more(one, ENDS, now)
        while self.stage < max(self.stages) and all(
            i in self.over for i, stage in enumerate(self.stages) if stage == self.stage
        ):
            self.stage += 1
            for i, stage in enumerate(self.stages):
                if stage == self.stage:
                    self._waits_no_more(self.jobs[i], STAGE, now + self.jobs[i].delay_s)

    def _failed(self, job: Job, state: State, now: float) -> None:
        job.state = state
        if job.goes_on:
            self._ended(job, now)
        else:
            self._cancel_behind(job, now)

    def _cancel_behind(self, job: Job, now: float) -> None:
        for one in job.behind:
            if one.state != State.CANCELLED:  # by another that it waited for
                one.state = State.CANCELLED
                self._cancel_behind(one, now)
        self._is_over(job, now)

    def _expire(self, job: Job, now: float) -> None:
        waits = job.unnoticed or job.state in (State.UNROUTED, State.QUEUED, State.RUNNING, State.RESERVED)
        if not waits or not math.isnan(job.ttft_s):
            return
        job.unnoticed = False
        if job.gpu < 0:
            self._failed(job, State.CANCELLED, now)
            self.queue = [one for one in self.queue if one is not job]
            self.held = [one for one in self.held if one is not job]
        else:
            self.gpus[job.gpu].cancel(job)
            self.news.append(("cancelled", job.index, job.gpu, 0))
            self._tell(job.gpu, now)

    def run(self) -> Outcome:
        end_s = 0.0
        ended = (State.FINISHED, State.REFUSED, State.CANCELLED, State.LOST, State.EXPIRED)
        events = Ends("oracle", EVENTS)
        while self.heap and any(job.unnoticed or job.state not in ended for job in self._last()):
            events()
            now, kind, subject = heapq.heappop(self.heap)
            if now > self.duration_s:
                return self._outcome(self.duration_s)
            self.now = now
            self._happens(kind, subject, now)
            end_s = now if self._is_part(kind, subject) else end_s
            self._route(now)
        return self._outcome(end_s)

    def _is_part(self, kind: int, subject: int) -> bool:
        """Not said: reports of what is over are no part of a run."""
        return kind not in (REPORT, PAIR)

    def _happens(self, kind: int, subject: int, now: float) -> None:
        if kind == CHANGE:
            self._change(*self.timeline[subject][1:], now)
            self._note(now)
        elif kind == END:
            gpu = self.gpus[subject]
            if not (gpu.stepping and gpu.ends_s == now) and not self.tell_at_start:
                return  # it was lost
            if not self.tell_at_start:
                self.gpus[subject].end(now)
                self._tell(subject, now)
            self._release()
            heapq.heappush(self.heap, (now, START, subject))
        elif kind == REPORT:
            self.view.gpus[:] = [gpu.seen for gpu in self.gpus]
            self.view.reports[0] += 1
            self._again(now + self.reports_s, REPORT)
        elif kind == SUBMIT:
            job = self.jobs[subject]
            job.number = next(self.arrived)
            if self._never(job):
                self._failed(job, State.REFUSED, now)
            else:
                self.queue.append(self._first_of(job))
                if not math.isnan(job.patience_s):
                    heapq.heappush(self.heap, (max(now, job.due_s + job.patience_s), EXPIRE, subject))
        elif kind == EXPIRE:
            self._expire(self.jobs[subject], now)
        elif kind == DECIDED:
            answer = self.deciding.pop(subject)
            if answer != WITHDRAWN and self.jobs[subject].state not in (State.CANCELLED, State.EXPIRED):
                self._carry_out(self.jobs[subject], answer, now)
            self._release() if self.missed else None
        elif kind == REACHED:
            self._reach(self.jobs[subject], now)
        elif self.gpus[subject].up and not self.gpus[subject].stepping:  # else it was lost since
            seconds = self.gpus[subject].begin(now)
            self.gpus[subject].awake = seconds is not None
            if seconds is not None:
                seconds /= self.gpus[subject].speed
                self.gpus[subject].ends_s = now + seconds
                heapq.heappush(self.heap, (now + seconds, END, subject))
                self._tell(subject, now)
                if self.tell_at_start:
                    self.gpus[subject].end(now + seconds)
                    self._tell(subject, now)
            else:
                self._finds_nothing(subject, now)

    def _finds_nothing(self, g: int, now: float) -> None:
        """Not said: a START that finds nothing to do publishes nothing, but where KV moves."""

    def _again(self, at_s: float, kind: int) -> None:
        """Not said: what comes again and again does so as long as anything else is to come."""
        if any(one[1] not in (REPORT, PAIR) for one in self.heap):
            heapq.heappush(self.heap, (at_s, kind, 0))

    def _last(self) -> list[Job]:
        """Those that say where requests are."""
        return self.jobs

    def _came_s(self, job: Job) -> float:
        """When it joined the router's queue."""
        return job.due_s + self.prediction_s

    def _never(self, job: Job) -> bool:
        return any(gpu.refuses(job) for gpu in self.gpus)

    def _first_of(self, job: Job) -> Job:
        """What is routed first of a request."""
        return job

    def _request(self, job: Job) -> Job:
        """What is routed is a part of it."""
        return job

    def _asked(self, job: Job) -> tuple[Any, Any, Any]:
        """Its policy, what that remembers, and what it sees."""
        return self.policy, self.mine, self.view

    def _told(self, g: int) -> tuple[Any, Any, Any]:
        """The same of who hears of a GPU."""
        return self.policy, self.mine, self.view

    def _hearers(self, kind: str, i: int, g: int, now: float) -> list[tuple[Any, Any, Any]]:
        """All who are told of something."""
        return self._routers(kind, g)

    def _routers(self, kind: str, g: int) -> list[tuple[Any, Any, Any]]:
        """Whose GPU, or tier, it happens at."""
        return [self._told(g)]

    def _is_silent(self, kind: str, i: int, policy: Any) -> bool:
        """Whether a policy believes that a request is over, and is told no more of it."""
        return False

    def _write(self, job: Job, g: int, sign: int, now: float) -> None:
        """Into the router's book: sent (1), or outstanding no more (-1)."""
        sent = self.view.sent[g]
        sent.outstanding, sent.tokens = sent.outstanding + sign, sent.tokens + sign * len(job.prompt)
        sent.requests += int(sign > 0)

    def _write_move(self, job: Job, g: int, sign: int, now: float) -> None:
        """It was moved there (1), or from there (-1), and nobody has sent it."""
        sent = self.view.sent[g]
        sent.outstanding, sent.tokens = sent.outstanding + sign, sent.tokens + sign * len(job.prompt)

    def _release(self) -> None:
        self.queue[:0], self.held, self.missed = self.held, [], bool(self.deciding)

    def _route(self, now: float) -> None:
        while self.queue and not self.deciding:
            job = self.queue.pop(0)
            if len(self._asked(job)[2].candidates):
                self._ask(job, now)
            else:
                self.held.append(job)

    def _ask(self, job: Job, now: float) -> None:
        policy, mine, view = self._asked(job)
        self.view.work[:] = 0
        answer = int(policy.route(mine, view, job.index, now))
        seconds = self.overhead.decision_s
        for count, unit_s in zip(self.view.work, self.overhead.unit_s, strict=True):
            seconds += int(count) * unit_s
        if self.overhead.mode != "none":  # not said: of a request that was held, as of the last time
            job.router_wait_s = now - self._came_s(job)
            job.overhead_s = self.overhead.prediction_s + seconds
        if self.overhead.mode == "serial":
            self.deciding[job.index], self.missed = answer, False
            heapq.heappush(self.heap, (now + seconds, DECIDED, job.index))
        else:
            self._carry_out(job, answer, now)

    def _carry_out(self, job: Job, answer: int, now: float) -> None:
        if answer == HOLD:
            self.held.append(job)
        elif answer == REFUSE:
            self._failed(job, State.REFUSED, now)
        else:
            self.view.requests[job.index].gpu, job.gpu = answer, answer
            self._write(job, answer, 1, now)
            self.gpus[answer].totals["requests"] = self.view.sent[answer].requests
            self._send(job, now)

    def _send(self, job: Job, now: float) -> None:
        gpu, job.state = self.gpus[job.gpu], State.QUEUED
        seconds = gpu.frontend_s[0] + gpu.frontend_s[1] * len(job.prompt)
        if seconds > 0 and job is self._first_of(job):
            heapq.heappush(self.heap, (now + seconds, REACHED, job.index))
        else:
            self._reach(job, now)

    def _reach(self, job: Job, now: float) -> None:
        if job.state == State.CANCELLED:
            return
        gpu = self.gpus[job.gpu]
        if not gpu.up:
            self._lose(job)
            if gpu.gone:
                self._hears_of_loss(job, now)
            self._tell(gpu.number, now)
            return
        gpu.submit(job)
        self._tell(gpu.number, now)
        self._wake(gpu, now)

    def _wake(self, gpu: Any, now: float) -> None:
        if gpu.up and not gpu.awake:
            gpu.awake = True
            heapq.heappush(self.heap, (now, START, gpu.number))

    def _lose(self, job: Job) -> None:
        job.state, job.unnoticed, job.losses = State.LOST, True, job.losses + 1

    def _change(self, g: int, event: int, factor: float, now: float) -> None:
        self._let_be(self._happens_to(g, event, factor, self._candidates(), now))
        self._tell(g, now)
        self._release()

    def _happens_to(self, g: int, event: int, factor: float, before: set[int], now: float) -> set[int]:
        """Who are candidates then, and were before. Nobody is told yet."""
        gpu, candidates = self.gpus[g], set(before)
        empty = not gpu.up or self._is_empty(g)
        if event == DOWN or (event == DRAIN and not gpu.up):
            self.planned.pop((g, READY), None)
            self.planned.pop((g, LIMIT), None)
            self._is_off(g, now)
            candidates -= {g} if event == DRAIN else set()
            if gpu.up:
                gpu.down_since_s = now
                gpu.lost_s = now if math.isnan(gpu.lost_s) else gpu.lost_s
                self._lose_all(gpu, now)
        elif event == NOTICED:
            self._notice(gpu, now)
            candidates -= set() if gpu.up else {g}
        elif event == UP and empty and self.start_s[g]:
            self.planned.pop((g, LIMIT), None)
            self._is_off(g, now)
            self.on_since_s[g] = now
            self._plan(g, READY, now + self.start_s[g])
        elif event == UP or (event == READY and self._is_planned(g, READY, now)):
            self.planned.pop((g, LIMIT), None)
            self._is_ready(gpu, empty, now)
            candidates |= {g}
        elif event == SLOW:
            gpu.speed = factor
        elif event == DRAIN:
            self.planned.pop((g, READY), None)
            self.drained_s[g] = now
            if self.faults.requeues:
                for job in sorted(self._given_back(gpu, now), key=self._number):
                    self._hears_of_loss(job, now)
            if self.faults.drain_s:
                self._plan(g, LIMIT, now + self.faults.drain_s)
            candidates -= {g}
        elif event == LIMIT and self._is_planned(g, LIMIT, now) and not empty:
            self._is_off(g, now)
            self._lose_all(gpu, now)
            self._notice(gpu, now)
        self.news += [("changed", -1, g, 0)] if candidates != before else []
        return candidates

    def _note(self, now: float) -> None:
        """What every GPU is from now on."""
        for g, gpu in enumerate(self.gpus):
            if (g, READY) in self.planned:
                is_now = GpuState.STARTING
            elif g in self.drained_s and gpu.up:
                is_now = GpuState.DRAINING
            elif gpu.up:
                is_now = GpuState.SLOW if gpu.speed != 1.0 else GpuState.READY
            else:
                is_now = GpuState.OFF if math.isnan(gpu.down_since_s) else GpuState.FAILED
            if is_now != self.states[g][max(self.states[g])]:  # it may be drained and, as is found out later, off
                self.states[g][now] = is_now

    def _history(self) -> History:
        """Only what differs from before; nothing where all were ready all the time."""
        rows = []
        for g, states in enumerate(self.states):
            before = None
            for at_s in sorted(states):
                rows += [Change(at_s, g, states[at_s])] if states[at_s] != before else []
                before = states[at_s]
        changed = any(row.state != GpuState.READY for row in rows)
        return History(tuple(sorted(rows)) if changed else (), tuple(self.decisions))

    def _plan(self, g: int, event: int, at_s: float) -> None:
        """What was planned of it before is void."""
        self.planned[g, event] = at_s
        row = next(i for i, one in enumerate(self.timeline) if math.isnan(one[0]) and one[1:3] == (g, event))
        heapq.heappush(self.heap, (at_s, CHANGE, row))

    def _is_planned(self, g: int, event: int, now: float) -> bool:
        return self.planned.get((g, event)) == now and self.planned.pop((g, event)) == now

    def _candidates(self) -> set[int]:
        return set(self.view.candidates.tolist())

    def _let_be(self, candidates: set[int]) -> None:
        self.view = self.view._replace(candidates=self._room(candidates))

    def _ask_again(self, job: Job, now: float) -> None:
        """A router is asked about another part of its request."""

    def _leave_both(self, request: Job, now: float) -> None:
        """It gives up, and leaves both of its GPUs."""

    def _unread(self, g: int) -> list[Job]:
        """Requests whose KV is to go from or to a GPU."""
        return []

    def shown(self, job: Job) -> int:
        """Tokens of its answer that a request comes with."""
        return job.output_seen if self.faults.resumes else 0

    def _torn(self, g: int) -> list[Job]:
        """Those that are lost with a GPU, wherever else they are."""
        return self._unread(g)

    def _given_back(self, gpu: Any, now: float) -> list[Job]:
        """What a GPU that is drained is rid of."""
        return list(gpu.give_back())

    def _awaits(self, gpu: Any) -> bool:
        """Whether KV comes from tiers, or has to go there before there is room."""
        return False

    def _break_off(self, job: Job, g: int, now: float) -> None:
        """It will not, for GPU g is down."""

    def _leaves(self, g: int, now: float) -> None:
        """A GPU is switched off: nothing that it had a part in goes on."""

    def _is_empty(self, g: int) -> bool:
        return bool(self.view.sent[g].outstanding == 0) and not self._unread(g)

    def _lose_all(self, gpu: Any, now: float) -> None:
        gpu.up = False
        for job in self._torn(gpu.number):
            self._break_off(job, gpu.number, now)
        for job in gpu.lose():
            if job.state != State.CANCELLED:
                self._lose(job)
                self.view.requests[job.index].output_seen = job.output_seen if self.faults.resumes else 0

    def _lost_with(self, g: int) -> list[Job]:
        return [job for job in self.jobs if job.unnoticed and job.gpu == g]

    def _number(self, job: Job) -> int:
        return job.number

    def _hears_of_loss(self, job: Job, now: float) -> None:
        self.news.append(("lost", job.index, job.gpu, 0))

    def _notice(self, gpu: Any, now: float) -> None:
        for job in sorted(self._lost_with(gpu.number), key=self._number):
            self._hears_of_loss(job, now)
        gpu.gone = not gpu.up

    def _is_ready(self, gpu: Any, empty: bool, now: float) -> None:
        if empty and gpu.number in self.drained_s:
            self._is_off(gpu.number, now)
        self.on_since_s.setdefault(gpu.number, now)
        self.drained_s.pop(gpu.number, None)
        if not gpu.up:
            gpu.down_s += 0.0 if math.isnan(gpu.down_since_s) else now - gpu.down_since_s
            gpu.speed = 1.0
        elif not gpu.awake and not self._unread(gpu.number) and not self._awaits(gpu):  # it was drained
            gpu.lose()
        gpu.up, gpu.gone, gpu.down_since_s = True, False, math.nan

    def _is_off(self, g: int, now: float) -> None:
        """It is not on from now on, or since it was drained and empty."""
        if g not in self.on_since_s:
            return
        drained_s, ends_s = self.drained_s.pop(g, None), self.gpus[g].ends_s
        if drained_s is not None and self._is_empty(g):
            now = min(now, drained_s if math.isnan(ends_s) else max(drained_s, ends_s))
            self.states[g][now] = GpuState.OFF
        self.on_s[g] += now - self.on_since_s.pop(g)

    def _room(self, up: set[int]) -> Any:
        """Candidates, of the GPUs that routers do not know to be down."""
        return np.array(sorted(up), np.int64)

    def _go_on(self, job: Job, now: float) -> None:
        """The router has heard that a request is lost."""
        job.unnoticed = False
        if self.retries or job.state != State.LOST:
            seen = self.view.requests[job.index]
            job.state, job.gpu, job.attempt_s = State.UNROUTED, -1, math.nan
            seen.gpu, seen.ttft_s = -1, math.nan
            self.queue.append(job)
        else:
            self._failed(job, State.LOST, now)

    def _show(self, g: int) -> None:
        """Routers see what a GPU has, unless they hear of that now and then."""
        self.gpus[g].publish()
        if not self.reports_s:
            self.view.gpus[g] = self.gpus[g].seen

    def _tell(self, g: int, now: float) -> None:
        """Not said: the numbers of GPUs and requests are those at the event's end already, the router's book is not."""
        self._show(g)
        for kind, i, *_ in self.news:
            if kind in ("first_token", "finished"):
                job, seen = self.jobs[i], self.view.requests[i]
                seen.output_seen, seen.ttft_s = job.output_seen, job.attempt_s
                seen.latency_s = job.latency_s if job.state == State.FINISHED else math.nan
        for kind, i, g, tokens in self.news:
            self._hears(kind, i, g)
            if kind in ("finished", "cancelled", "lost"):
                self._write(self.jobs[i], g, -1, now)
            if kind == "finished":
                self._finished(self.jobs[i], now)
            elif kind == "cancelled":
                self._failed(self.jobs[i], State.CANCELLED, now)
            heard = "finished" if kind in ("cancelled", "lost") else kind
            of_caches = dict.fromkeys(("stored", "evicted", "copied", "dropped"), (i, g, tokens))
            about = (of_caches | {"changed": (g,)}).get(kind, (i,))
            for policy, mine, view in self._hearers(kind, i, g, now):
                if hasattr(policy, heard) and not self._is_silent(kind, i, policy):
                    getattr(policy, heard)(mine, view, *about, now)
            if kind == "lost":
                self._go_on(self.jobs[i], now)
            elif kind == "finished":
                self._hand_over(self.jobs[i], now)
        self.news.clear()

    def _hears(self, kind: str, i: int, g: int) -> None:
        """Whoever hears before the router's book is written."""

    def _finished(self, job: Job, now: float) -> None:
        self._ended(job, now)

    def _hand_over(self, job: Job, now: float) -> None:
        """Its policy has heard that it is finished."""

    def _outcome(self, end_s: float) -> Outcome:
        for job in self.jobs:
            if not job.due_s <= end_s:
                job.due_s = math.nan
                job.state = State.NOT_DUE if job.state == State.UNROUTED and self.linked else job.state
        types = dict.fromkeys(("gpu", "output_seen", "hit_tokens", "prefilled_tokens", "losses"), "i4") | {
            "state": "i1"
        }
        types |= dict.fromkeys(("overhead_s", "router_wait_s", "due_s", "ttft_s", "latency_s", "finish_s"), "f8")
        columns = {name: np.array([getattr(job, name) for job in self.jobs], dtype) for name, dtype in types.items()}
        for name in (one.name for one in fields(Outcome) if one.name.startswith("gpu_")):
            total = name.removeprefix("gpu_").removesuffix("_tokens")
            kind = np.float64 if name.endswith("_s") else np.int64
            columns[name] = np.array([gpu.totals[total] for gpu in self.gpus], kind)
        for gpu in self.gpus:
            gpu.down_s += 0.0 if math.isnan(gpu.down_since_s) else end_s - gpu.down_since_s
            self._is_off(gpu.number, end_s)
        columns["gpu_lost_s"] = np.array([gpu.lost_s for gpu in self.gpus])
        columns["gpu_down_s"] = np.array([gpu.down_s for gpu in self.gpus])
        columns["gpu_on_s"] = np.array(self.on_s)
        columns["decode_gpu"], columns["prefill_end_s"] = columns["gpu"], columns["ttft_s"]
        columns["stopped_s"] = np.zeros(len(self.jobs))
        columns["gap_p99_s"] = columns["gap_top10_s"] = np.full(len(self.jobs), np.nan)
        for name in (
            "moves",
            "moves_aborted",
            "transferred_tokens",
            "host_tokens",
            "disk_tokens",
            "shared_tokens",
            "peer_tokens",
            "refused_by",
            "retries",
        ):
            columns[name] = np.zeros(len(self.jobs), np.int32)
        columns["told_output"] = np.array([job.max_new if job.gpu >= 0 else math.nan for job in self.jobs], np.float64)
        return Outcome(end_s=end_s, history=self._history(), **columns)


def _view(workload: Workload, gpus: list[Gpu]) -> View:
    requests, offsets = records(len(workload), REQUEST), workload.segment_offsets
    for name in ("prompt_tokens", "max_new_tokens", "prefix_group", *OPTIONAL):
        if name in REQUEST.names:
            requests[name] = getattr(workload, name)
    requests.arrival_s = math.nan
    requests.expected_output, requests.segments = workload.max_new_tokens, np.diff(offsets)
    requests.first_segment, requests.gpu, requests.ttft_s, requests.latency_s = offsets[:-1], -1, math.nan, math.nan
    ends = [workload.segment_tokens[offsets[i] : offsets[i + 1]].cumsum() for i in range(len(workload))]
    prompts, sent = Prompts(workload.segment_ids, np.concatenate(ends)), records(len(gpus), SENT)
    seen, costs = zip(*((gpu.seen, gpu.cost) for gpu in gpus), strict=True)
    work, reports = np.zeros(4, np.int64), np.zeros(1, np.int64)
    return View(
        requests, prompts, sent, list(seen), np.arange(len(gpus)), list(costs), work, reports, uncounted(len(gpus))
    )


def simulate(workload: Workload, *, tell_at_start: bool = False, **given: Any) -> Outcome:
    """As `prebleexp.sim.simulate.simulate`, with lengths Max. tell_at_start: a fault for tests to find."""
    return Oracle(
        workload, SimpleNamespace(**{"reports_ms": 0.0, "kinds": (), "faults": None, **given}), tell_at_start
    ).run()
