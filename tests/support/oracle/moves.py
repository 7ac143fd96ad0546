"""The second simulator with requests that are moved between vLLM's GPUs, written from docs/core.md in plain Python.

GPUs are `tests.support.reference.vllm`'s scheduler, with what Llumnix adds to it.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from prebleexp.sim.changes import UP
from prebleexp.sim.history import Move
from prebleexp.sim.migration import Migration
from prebleexp.sim.moves import RUNNING, WAITING
from prebleexp.sim.pools import BOTH, PREFILL
from prebleexp.sim.types import Outcome, State, Workload
from tests.support.oracle.core import ARRIVED, PAIR, Job
from tests.support.oracle.faults import FaultyGpu
from tests.support.oracle.pools import Linked, Puller
from tests.support.reference.vllm import Request

NOT_RUN = (False, 0, 0)
"""of a request that waits: it does not run, and nothing is copied"""


class Mover(Puller):
    """With requests that have been moved, or were to be, and have blocks."""

    def __init__(self, config: dict[str, Any], role: int, hears_later: bool) -> None:
        super().__init__(config, role, hears_later)
        self.moved = set[Request]()

    def _lacks(self, request: Request) -> int:
        if request not in self.moved:
            return super()._lacks(request)
        return max(0, -(-request.tokens // self.block) - len(request.blocks[0]))

    def _admit(self, chosen: dict[Request, int], budget: int, cap: int) -> dict[Request, int]:
        admitted = super()._admit(chosen, budget, cap)
        self.moved -= set(admitted)
        return admitted

    def busy(self) -> bool:
        return bool(self.moved) or super().busy()

    def leave(self, request: Request) -> None:
        self.moved.discard(request)
        super().leave(request)


class MovesGpu(FaultyGpu):
    def __init__(self, number: int, role: int, engine: Any, hardware: Any, rows: Workload, world: Any) -> None:
        self.leaves: Request | None = None  # is to stop
        self.stopped: Request | None = None
        self.outside = 0  # moves that have blocks of it, of no request that is here or has stopped
        super().__init__(number, role, engine, hardware, rows, world)

    def _scheduler(self, config: dict[str, Any]) -> Puller:
        return Mover(config, self.role, getattr(self.world, "pulls", False))

    def lose(self) -> list[Job]:
        stopped = [self.world.jobs[self.stopped.index]] if self.stopped else []
        self.leaves, self.stopped, self.outside = None, None, 0
        return [*super().lose(), *stopped]

    def moved_in(self) -> set[Request]:
        """Those that have been moved, or were to be, and wait."""
        return set(self.of.moved)  # type: ignore[attr-defined]

    def with_blocks(self) -> set[Request]:
        return self.moved_in()

    def goes_on(self, request: Request) -> None:
        """One that has been moved, or was to be, waits with its blocks."""
        request.running = False
        self.of.skipped.append(request)
        self.of.moved.add(request)  # type: ignore[attr-defined]

    def ready(self) -> bool:
        """Whether any wait that have blocks, and come before all others."""
        return any(request in self.of.arrived or request in self.moved_in() for request in self.of.skipped)

    def _may_wait(self) -> bool:
        reserved = set(self.of.skipped) - self.moved_in()
        return bool(self.outside > 0 or self.stopped or reserved or self.of.held or self.of.told)

    def _schedule(self, now: float) -> tuple[Any, float]:
        self.world.stop(self, now)
        moved = self.moved_in()
        self.of.arrived |= moved  # they have been admitted before
        made = super()._schedule(now)
        self.of.arrived -= moved
        for request in moved & set(self.of.running):
            self.world.jobs[request.index].state = State.RUNNING
        return made

    def end(self, now: float) -> None:
        super().end(now)
        self.world.stop(self, now)

    def take(self, blocks: int) -> list[int] | None:
        kept = self.of.kept_free if self.of.running else 0
        if not self.up or blocks + kept > len(self.of.pool.free):
            return None
        pool = self.of.pool
        before = pool.evicted
        taken = pool.take(blocks)
        self.totals["evicted"] += (pool.evicted - before) * self.block
        pool.evicted = before
        return taken


class MovesOracle(Linked):
    def __init__(self, workload: Workload, of: Any, *given: Any) -> None:
        self.rows, self.migration, self.count = workload, of.migration, len(workload)
        super().__init__(workload, of, *given)
        given: Migration = of.migration
        self.link(given)
        rows = len(self.jobs)
        heapq.heappush(self.heap, (given.interval_s, PAIR, 0))
        self.moves: dict[int, Any] = {}  # by the GPU that a request leaves
        self.busy: set[int] = set()  # GPUs from which something is under way
        self.later: set[int] = set()  # … or of which a request that was given up is still in a step
        self.closed = [False] * rows  # whether policies without `routed` believe that it is over
        self.moved, self.aborted, self.stopped_s = [0] * rows, [0] * rows, [0.0] * rows
        self.made_moves: list[Move] = []

    def _gpu(self, g: int, engine: Any, hardware: Any) -> Any:
        return MovesGpu(g, BOTH, engine, hardware, self.rows, self)

    # ------------------------------------------------------------ pairs
    def _freeness(self, gpu: Any) -> float:
        seen = gpu.seen
        requests = seen.queued + seen.running
        return (seen.kv_free + seen.evictable - seen.waiting_tokens) / requests if requests else math.inf

    def _pair(self, now: float) -> None:
        below = self.migration.below_freeness * self.gpus[0].block
        out = {*self.moves, *self.busy, *self.later, *(one.target for one in self.moves.values())}
        free = {g: self._freeness(gpu) for g, gpu in enumerate(self.gpus) if g not in out}
        sources = sorted((g for g in free if free[g] < below and self.gpus[g].up), key=lambda g: free[g])
        up = self._may_get()
        targets = sorted((g for g in free if free[g] > below and g in up), key=lambda g: -free[g])
        for role in sorted({gpu.role for gpu in self.gpus}):
            of_role = [[g for g in some if self.gpus[g].role == role] for some in (sources, targets)]
            for source, target in zip(*of_role, strict=False):
                self._move(self.gpus[source], self.gpus[target], now)

    def _may_get(self) -> set[int]:
        """Who may get requests, whatever limits them."""
        return self._candidates()

    def _move(self, source: Any, target: Any, now: float) -> None:
        chooses, waiting = self.migration.chooses, source.of.waiting
        first = waiting[0] if waiting and not waiting[0].stale and not source.ready() else None
        if chooses != RUNNING and first is not None:
            self._move_waiting(first, source, target, now)
        elif chooses != WAITING and source.role != PREFILL:
            able = [r for r in source.of.running if r.tokens > r.prompt and r.computed - r.under_way == r.tokens - 1]
            if able:
                request = min(able, key=lambda r: r.tokens)
                mark = (request.preemptions, request)
                self.moves[source.number] = SimpleNamespace(
                    request=request,
                    mark=mark,
                    target=target.number,
                    stages=0,
                    copied=0,
                    taken=[],
                    since_s=math.nan,
                    at_s=now,
                    tokens=request.tokens,
                )
                self._next_stage(source, now)

    def _move_waiting(self, request: Request, source: Any, target: Any, now: float) -> None:
        kept = target.of.kept_free if target.of.running else 0
        if not target.up or -(-request.tokens // target.block) + kept > len(target.of.pool.free):
            self.aborted[request.index] += 1
            self.made_moves.append(
                Move(
                    now,
                    self._number_of(request),
                    source.number,
                    target.number,
                    request.tokens,
                    *NOT_RUN,
                    False,
                    now,
                    0.0,
                )
            )
            return
        self.made_moves.append(
            Move(now, self._number_of(request), source.number, target.number, request.tokens, *NOT_RUN, True, now, 0.0)
        )
        source.of.waiting.popleft()
        target.of.waiting.append(request)
        if request in source.of.pulls:
            source.of.pulls.remove(request)
            target.of.pulls.add(request)
        self._hand_to(request, source, target, now)

    def _number_of(self, request: Request) -> int:
        """Among requests, of which it may compute the prompt."""
        return int(request.index) % self.count

    def _hand_to(self, request: Request, source: Any, target: Any, now: float) -> None:
        target.requests[request.index] = source.requests.pop(request.index)
        self.moved[request.index] += 1
        self.jobs[request.index].gpu = target.number
        self.news += [("left", request.index, source.number, 0), ("routed", request.index, target.number, 0)]
        for gpu in (source, target):
            gpu.publish()
            self._see(gpu)
            self._wake(gpu, now)

    # ------------------------------------------------------------ stages
    def _ran_on(self, source: Any, one: Any) -> bool:
        request = one.request
        return not request.done and request.running and request.preemptions == one.mark[0]

    def _next_stage(self, source: Any, now: float) -> None:
        one, of = self.moves[source.number], self.migration
        computed, target = one.request.tokens - 1, self.gpus[one.target]
        more = computed // source.block - one.copied
        if -(-computed // source.block) - one.copied <= of.last_stage_blocks:
            source.leaves = one.request
            return
        taken = None if one.stages + 1 >= of.max_stages else target.take(more)
        if taken is None:
            self._abort(source, now)
        else:
            self._taken(one, target, taken)
            self._copy(source, one, more, now)

    def _taken(self, one: Any, target: Any, taken: list[int]) -> None:
        target.outside += not one.taken
        one.taken += taken
        target.publish()
        self._see(target)

    def _copy(self, source: Any, one: Any, blocks: int, now: float) -> None:
        one.stages, one.copied = one.stages + 1, one.copied + blocks
        self.busy.add(source.number)
        size = blocks * (self.migration.kv_bytes * source.block)
        self._send_part(source.number, one.target, size, now)

    def _send_part(self, source: int, target: int, size: float, now: float) -> None:
        self.send(source, source, target, size, now)

    def stop(self, gpu: Any, now: float) -> None:
        """What is to stop does so; what has stopped is copied when no step under way has it."""
        one = self.moves.get(gpu.number)
        if gpu.leaves is not None and gpu.leaves is not gpu.stopped:
            request = gpu.leaves
            if not self._ran_on(gpu, one):
                self._abort(gpu, now)
                return
            last = request.expected and request.computed - request.expected + 2 >= request.prompt + request.target
            blocks = -(-(request.tokens + request.expected) // gpu.block) - len(one.taken)
            taken = None if last else self.gpus[one.target].take(blocks)
            if taken is None:
                self._abort(gpu, now)
                return
            self._taken(one, self.gpus[one.target], taken)
            gpu.of.running.remove(request)
            gpu.stopped = request
        if gpu.leaves is None or gpu.stopped.under_way:
            return
        gpu.leaves = None
        if one is None:  # it was given up
            self.later.discard(gpu.number)
            self._resume(gpu, now)
        else:
            one.since_s = now
            self._copy(gpu, one, -(-(one.request.tokens - 1) // gpu.block) - one.copied, now)

    def _copied(self, source: Any, now: float) -> None:
        self.busy.discard(source.number)
        one = self.moves.get(source.number)
        if one is None:
            return
        if source.stopped is one.request:
            self._commit(source, one, now)
        elif self._ran_on(source, one):
            self._next_stage(source, now)
        else:
            self._abort(source, now)

    def _commit(self, source: Any, one: Any, now: float) -> None:
        request, target = one.request, self.gpus[one.target]
        del self.moves[source.number]
        source.of._release(request)
        source.stopped = None
        self.stopped_s[request.index] += now - one.since_s
        self._write_down(source, one, True, now)
        request.blocks, request.running, request.computed = [one.taken], False, request.tokens - 1
        target.outside -= 1
        target.of._remember(request, request.computed)
        self._waits_with_blocks(request, target)
        self._hand_to(request, source, target, now)

    def _waits_with_blocks(self, request: Request, gpu: Any) -> None:
        gpu.goes_on(request)
        self.jobs[request.index].state = State.QUEUED

    def _resume(self, gpu: Any, now: float) -> None:
        request, gpu.stopped = gpu.stopped, None
        self._waits_with_blocks(request, gpu)
        gpu.publish()
        self._see(gpu)
        self._wake(gpu, now)

    def _abort(self, source: Any, now: float) -> None:
        one = self.moves.pop(source.number)
        self._write_down(source, one, False, now)
        source.leaves = None
        target = self.gpus[one.target]
        self.aborted[one.request.index] += 1
        if one.taken and target.up:
            target.of.pool.release(one.taken)
            target.outside -= 1
            target.publish()
            self._see(target)
            if target.of.waiting or target.ready():
                self._wake(target, now)

    def _write_down(self, source: Any, one: Any, made: bool, now: float) -> None:
        stopped_s = 0.0 if math.isnan(one.since_s) else now - one.since_s
        way = (True, one.stages, one.copied * source.block, made, now, stopped_s)
        self.made_moves.append(
            Move(one.at_s, self._number_of(one.request), source.number, one.target, one.tokens, *way)
        )

    def _abandon(self, g: int, now: float) -> None:
        for s in sorted(self.moves):
            one, source = self.moves[s], self.gpus[s]
            if g not in (s, one.target):
                continue
            stopped, begun = source.stopped is one.request, source.leaves is None
            if stopped and begun:
                self.stopped_s[one.request.index] += now - one.since_s
            self._abort(source, now)
            if stopped and source.up and begun:
                self._resume(source, now)
            elif stopped and source.up:
                source.leaves = source.stopped
                self.later.add(s)

    # ------------------------------------------------------------ events
    def _happens(self, kind: int, subject: int, now: float) -> None:
        if kind == PAIR:
            self._pair(now)
            self._tell(0, now)
            self._again(now + self.migration.interval_s, PAIR)
        elif kind == ARRIVED and self._is_move(subject):
            subject = self._is_of(subject)
            if self._has_come(subject, now):
                self._copied(self.gpus[subject], now)
                self._tell(subject, now)
        else:
            super()._happens(kind, self._handed_over(kind, subject), now)

    def _finds_nothing(self, g: int, now: float) -> None:
        if self.gpus[g]._may_wait():
            self._tell(g, now)

    def _has_come(self, source: int, now: float) -> bool:
        """Whether all of what left that GPU is there."""
        return self._arrives(source, now)

    def _handed_over(self, kind: int, subject: int) -> int:
        """Whose KV has come that is none of a move."""
        return subject

    def _is_move(self, subject: int) -> bool:
        """Whether what has come is of a move."""
        return True

    def _is_of(self, subject: int) -> int:
        """The GPU that it leaves."""
        return subject

    def _leaves(self, g: int, now: float) -> None:
        self._abandon(g, now)

    def _change(self, g: int, event: int, factor: float, now: float) -> None:
        if event == UP and self.gpus[g].up and not self.gpus[g].awake:
            self._abandon(g, now)
        super()._change(g, event, factor, now)

    def _lose_all(self, gpu: Any, now: float) -> None:
        gpu.up = False
        self._abandon(gpu.number, self.now)
        self.later.discard(gpu.number)
        super()._lose_all(gpu, now)

    def _see(self, gpu: Any) -> None:
        if not self.reports_s:
            self.view.gpus[gpu.number] = gpu.seen

    def _tell(self, g: int, now: float) -> None:
        """As ever, but for requests that have been moved."""
        news = list(self.news)
        self.news.clear()
        for one in news:
            kind, i, source, _ = one
            job = self.jobs[i]
            if kind not in ("left", "routed"):
                self.news.append(one)
                super()._tell(g, now)
                continue
            if kind == "routed":
                self.view.requests[i].gpu = source
            self._write_move(job, source, 1 if kind == "routed" else -1, now)
            told = {"left": "finished"}.get(kind, kind)
            for policy, mine, view in self._hearers(kind, i, source, now):
                if hasattr(policy, told) and not self._is_silent(kind, i, policy):
                    getattr(policy, told)(mine, view, i, now)
            self.closed[i] = True
        super()._tell(g, now)

    def _is_silent(self, kind: str, i: int, policy: Any) -> bool:
        ends = kind in ("first_token", "finished", "cancelled", "lost", "left")
        return ends and self.closed[i] and not hasattr(policy, "routed")

    def _go_on(self, job: Job, now: float) -> None:
        self.closed[job.index] = False
        super()._go_on(job, now)

    def _outcome(self, end_s: float) -> Outcome:
        made = super()._outcome(end_s)
        counts = {"moves": self.moved, "moves_aborted": self.aborted}

        def joined(column: list[Any], dtype: Any) -> Any:
            """With what the legs of prompts have of it."""
            return np.array(column, dtype).reshape(-1, len(self.jobs)).sum(axis=0, dtype=dtype)

        columns = {name: joined(column, np.int32) for name, column in counts.items()}
        history = replace(made.history, moves=tuple(self.made_moves))
        return replace(made, **columns, stopped_s=joined(self.stopped_s, np.float64), history=history)


def simulate(workload: Workload, **given: Any) -> Outcome:
    """As `prebleexp.sim.simulate.simulate` with a migration and `engine=vllm`, of lengths Max."""
    return MovesOracle(workload, SimpleNamespace(**{"reports_ms": 0.0, "kinds": (), "faults": None, **given})).run()
