"""The loop of one of vLLM's engines (vllm/v1/engine/core.py), on a clock of whole nanoseconds, written down."""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from vllm.v1.engine import FinishReason
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput

from tests.support.recordings.columns import Columns
from tests.support.vllm_itself.scheduler import Requests, Script, groups_of, scheduler_of

ROW = ("step_schedule_ns", "step_start_ns", "step_ns", "step_requests", "step_admitted", "step_preempted")
ROW += ("step_free_blocks", "step_evicted_blocks", "step_waiting", "step_running")
LISTS = ("scheduled_request", "scheduled_tokens", "admitted_request", "admitted_hit_tokens", "preempted_request")
LISTS += ("finished_request",)
OF_DRAFTS = ("scheduled_drafts", "sampled_request", "sampled_tokens")
IDLE = 6
"""times that an engine with nothing to compute looks for what is over, in vain, before it is left alone"""
ENDLESS = 60_000
"""steps"""


class InOrder(dict[str, None]):
    """Requests that have finished, in that order: a set is gone through in another one in every process."""

    def add(self, name: str) -> None:
        self[name] = None


class Endless(Exception):
    """Requests preempt each other for ever."""


@dataclass
class Copy:
    """KV on its way."""

    end_ns: int
    request: int
    name: Any = None
    failed: Any = None


@dataclass
class Step:
    output: Any
    chosen: list[Any]
    samples: list[bool]
    drafts: list[int]
    admitted: list[tuple[int, int]]
    preempted: list[int]
    loads: list[tuple[int, int, int, int]]
    """requests that are loaded: tokens here, tokens that come, blocks that are not free any more"""
    ends_ns: int
    news: list[Copy] | None = None
    row: int = -1
    held: list[int] = field(default_factory=list)


class Engine:
    first = "admitted_hit_tokens"
    columns_of_steps = ROW

    def __init__(self, config: dict[str, Any], stream: Columns, transfer: dict[str, Any] | None = None) -> None:
        self.config, self.stream = config, stream
        self.scheduler = scheduler_of(config, transfer)
        self.scheduler.finished_req_ids = InOrder()
        self.requests = Requests(stream, config["block_size"], self.scheduler.num_hash_lookahead_tokens)
        self.script = Script(config, stream)
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.flight: deque[Step] = deque()
        self.head: Step | None = None
        self.gpu_ns = 0
        self.wakes_ns: int | None = None
        self.coming: list[Copy] = []
        """nobody here has heard of"""
        self.rows: list[list[int]] = []
        self.after: list[list[int]] = []
        self.lists: dict[str, list[int]] = {name: [] for name in LISTS}
        self.per_request: dict[str, Any] = {}
        self._watch()

    def _watch(self) -> None:
        """What is decided on the way is noted, and changed in nothing."""
        evict, preempt = self.pool._maybe_evict_cached_block, self.scheduler._preempt_request
        allocate = self.scheduler.kv_cache_manager.allocate_slots
        self.evicted, self.preempted, self.loads = 0, list[int](), list[tuple[int, int, int, int]]()

        def evicting(*given: Any, **more: Any) -> Any:
            gone = evict(*given, **more)
            self.evicted += bool(gone)
            return gone

        def preempting(request: Any, *given: Any, **more: Any) -> Any:
            self.preempted.append(int(request.request_id))
            return preempt(request, *given, **more)

        def allocating(request: Any, *given: Any, **more: Any) -> Any:
            free = self.pool.get_num_free_blocks()
            blocks = allocate(request, *given, **more)
            if blocks is not None and more.get("delay_cache_blocks"):
                tokens = more["num_new_computed_tokens"], more["num_external_computed_tokens"]
                self.loads.append((int(request.request_id), *tokens, free - self.pool.get_num_free_blocks()))
            return blocks

        self.pool._maybe_evict_cached_block = evicting
        self.scheduler._preempt_request = preempting
        self.scheduler.kv_cache_manager.allocate_slots = allocating

    # ------------------------------------------------------------ the loop
    def add(self, index: int, target: int, transfer: dict[str, Any] | None = None) -> None:
        self.scheduler.add_request(self.requests.made(index, target, transfer))

    def looks_ns(self) -> int | None:
        """When it goes on by itself; idle, as soon as something is over."""
        return self.wakes_ns if self.wakes_ns is not None else min((one.end_ns for one in self.coming), default=None)

    def advance(self, now: int) -> None:
        """As far as it goes at this instant."""
        quiet, depth = 0, 2 if self.config["async_scheduling"] else 1
        while True:
            if self.head is not None:
                if self.head.ends_ns > now:
                    self.wakes_ns = self.head.ends_ns
                    return
                head, self.head = self.head, None
                self._take_up(head, now)
                quiet = 0 if head.chosen or head.news else quiet
            if self.scheduler.has_requests():
                step = self._schedule(now)
                busy = step.row >= 0 or step.news or self._is_sending() or any(one.end_ns <= now for one in self.coming)
                quiet = 0 if busy else quiet + 1
                self.flight.append(step)
                if quiet > IDLE and not any(one.chosen or one.news for one in self.flight):
                    self.flight.clear()
                    self.wakes_ns = None
                    return
                if len(self.flight) < depth and (step.chosen or self.scheduler.has_requests()):
                    continue
            elif not self.flight:
                self.wakes_ns = None
                return
            self.head = self.flight.popleft()

    def _schedule(self, now: int) -> Step:
        scheduler, runs = self.scheduler, {one.request_id for one in self.scheduler.running}
        self.evicted, self.preempted, self.loads = 0, [], []
        output = scheduler.schedule()
        scheduler.finished_req_ids = InOrder()
        new, spec = output.num_scheduled_tokens, output.scheduled_spec_decode_tokens
        chosen = [scheduler.requests[name] for name in new]
        before = {name: scheduler.requests[name].num_computed_tokens - tokens for name, tokens in new.items()}
        step = Step(
            output,
            chosen,
            [not one.is_prefill_chunk for one in chosen],
            [len(spec.get(name, ())) for name in new],
            [(int(name), before[name]) for name in new if name not in runs],
            self.preempted,
            self.loads,
            now,
        )
        launch = now + self._launch(step, now)
        start, cost = now, 0
        self.gpu_ns, step.ends_ns = max(self.gpu_ns, launch), launch
        if chosen:
            context = sum(one.num_computed_tokens for one in chosen)
            cost = self.config["step_ns"] + self.config["token_ns"] * sum(new.values())
            cost += self.config["context_token_ns"] * context
            start = max(now, self.gpu_ns)
            self.gpu_ns = step.ends_ns = start + cost
        self._launched(step)
        if chosen or step.preempted or step.loads:
            self._write(step, now, start, cost)
        if self.config.get("poll", "launch") == "launch":
            step.news = self._news(launch)
        return step

    def _take_up(self, step: Step, now: int) -> None:
        scheduler = self.scheduler
        step.news = self._news(now) if step.news is None else step.news
        sampled = [self._sampled(step, at) for at in range(len(step.chosen))]
        names = [one.request_id for one in step.chosen]
        of = ModelRunnerOutput(names, {name: at for at, name in enumerate(names)}, sampled)
        of.kv_connector_output = self._heard(step.news)
        outputs = scheduler.update_from_output(step.output, of)
        given = [one for each in outputs.values() for one in each.outputs]
        finished = [one for one in given if one.finish_reason is not None]
        # those that fail come last, and there in order, as they do not from a set
        finished.sort(key=lambda one: int(one.request_id) if one.finish_reason is FinishReason.ERROR else -1)
        self._note(given, finished, step.news, now)
        if self.script.drafts and not self.config["async_scheduling"]:
            goes_on = [
                one for one, tokens in zip(step.chosen, sampled, strict=True) if tokens and not one.is_finished()
            ]
            drafts = [[0] * self.script.proposes(int(one.request_id)) for one in goes_on]
            scheduler.update_draft_token_ids(DraftTokenIds([one.request_id for one in goes_on], drafts))
        if step.row >= 0:
            self.after[step.row] = [len(finished), self.pool.get_num_free_blocks(), len(step.news)]

    def _sampled(self, step: Step, at: int) -> list[int]:
        """Tokens that a request of a step gets. Of placeholders nothing is accepted, but where a step is scheduled
        before drafts are known."""
        request, drafts = step.chosen[at], step.drafts[at]
        if not step.samples[at]:
            return []
        index, accepted = int(request.request_id), 0
        dropped = request.num_stale_output_tokens > 0 and request.drop_stale_output
        placeholders = not self.config["async_scheduling"] and any(index == one for one, _ in step.admitted)
        if drafts and not placeholders and not dropped and not request.is_finished():
            accepted = self.script.accepted(index, drafts)
        return self.requests.answer(request, 1 + accepted)

    # ------------------------------------------------------------ KV on its way
    def _is_sending(self) -> bool:
        return False

    def _launch(self, step: Step, now: int) -> int:
        """Copies that a step begins; for how long it waits for others, in ns."""
        return 0

    def _launched(self, step: Step) -> None:
        """… when it is known when it ends."""

    def _news(self, now: int) -> list[Copy]:
        over = [one for one in self.coming if one.end_ns <= now]
        self.coming = [one for one in self.coming if one.end_ns > now]
        return over

    def _heard(self, news: list[Copy]) -> KVConnectorOutput | None:
        return None

    # ------------------------------------------------------------ what is written down
    def _write(self, step: Step, now: int, start: int, cost: int) -> None:
        step.row = len(self.rows)
        running, waiting = self.scheduler.get_request_counts()
        row = [now, start, cost, len(step.chosen), len(step.admitted), len(step.preempted)]
        self.rows.append([*row, self.pool.get_num_free_blocks(), self.evicted, waiting, running, *self._of_step(step)])
        self.after.append([0, 0, 0])
        new = step.output.num_scheduled_tokens
        self.lists["scheduled_request"] += map(int, new)
        self.lists["scheduled_tokens"] += new.values()
        self.lists["admitted_request"] += [index for index, _ in step.admitted]
        self.lists["admitted_hit_tokens"] += [computed for _, computed in step.admitted]
        self.lists["preempted_request"] += step.preempted
        if self.script.drafts:
            self._add("scheduled_drafts", step.drafts)

    def _add(self, name: str, values: Any) -> None:
        self.lists.setdefault(name, []).extend(values)

    def _of_step(self, step: Step) -> list[int]:
        return []

    def _set(self, name: str, index: int, value: int, once: bool = True) -> None:
        column = self.per_request.setdefault(name, np.full(len(self.requests), -1, np.int64))
        if column[index] < 0 or not once:
            column[index] = value

    def _note(self, given: list[Any], finished: list[Any], news: list[Copy], now: int) -> None:
        for one in given:
            if one.new_token_ids:
                self._set("first_token_ns", int(one.request_id), now)
        for one in finished:
            self._set("finish_ns", int(one.request_id), now)
            self.lists["finished_request"].append(int(one.request_id))
        if self.script.drafts:
            self._add("sampled_request", [int(one.request_id) for one in given if one.new_token_ids])
            self._add("sampled_tokens", [len(one.new_token_ids) for one in given if one.new_token_ids])

    def columns(self) -> Columns:
        table = np.array(self.rows, np.int64).reshape(len(self.rows), -1).T
        made = dict(zip(self.columns_of_steps, table, strict=True))
        made["step_finished"], made["step_free_blocks_after"], made["step_heard"] = np.array(self.after, np.int64).T
        return made | {name: np.array(values, np.int64) for name, values in self.lists.items()}


class Alone(Engine):
    """An engine without a connector."""

    columns_of_steps = (*ROW, "step_blocks_crc32")

    def _of_step(self, step: Step) -> list[int]:
        manager, crc = self.scheduler.kv_cache_manager, 0
        admitted, fresh = {index for index, _ in step.admitted}, step.output.scheduled_cached_reqs
        taken = dict(zip(fresh.req_ids, fresh.new_block_ids, strict=True))
        for name, tokens in step.output.num_scheduled_tokens.items():
            held = manager.get_block_ids(name)
            blocks = held if int(name) in admitted else taken[name] or ()
            row = [int(name), tokens, *(block for group in blocks for block in group)]
            crc = zlib.crc32(np.array(row, np.int32).tobytes(), crc)
            if len(groups_of(self.config)) > 1:
                self._add("scheduled_blocks", [len(group) - group.count(0) for group in held])
        for index, computed in step.admitted:
            self._set("first_cached_tokens", index, computed)
        return [crc]


def alone(config: dict[str, Any], stream: Columns) -> Columns:
    """The columns of a recording of one engine."""
    engine = Alone(config, stream)
    run(engine, stream)
    made, n = engine.columns(), len(engine.requests)
    del made["step_heard"]
    preempted = np.bincount(np.array(engine.lists["preempted_request"], np.int64), minlength=n)
    return made | engine.per_request | {"preemptions": preempted, "output_seen": stream["output_tokens"]}


def run(engine: Engine, stream: Columns) -> None:
    """All arrivals, and until nothing is left to do."""
    arrivals, joined, now = stream["arrival_ns"].tolist(), 0, 0
    while True:
        looks = engine.looks_ns()
        times = ([] if looks is None else [looks]) + arrivals[joined : joined + 1]
        if not times:
            return
        now = max(now, min(times))
        idle = engine.wakes_ns is None
        while joined < len(arrivals) and arrivals[joined] <= now:
            engine.add(joined, int(stream["output_tokens"][joined]))
            joined += 1
        if idle or engine.wakes_ns <= now:
            engine.advance(now)
        if len(engine.rows) > ENDLESS:
            raise Endless
