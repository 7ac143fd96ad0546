"""Simulated GPUs, in a clock's time: requests come, their tokens are told when they are there. Without sockets."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.lengths.known import Max
from prebleexp.live.mock.addressed import Addressed, Listening
from prebleexp.live.mock.prompts import Prompts
from prebleexp.live.mock.room import Rows, check, emptied, give_room, room_for
from prebleexp.live.mock.tickets import Caching, Heard, Ticket, Watching
from prebleexp.overhead.model import Overhead
from prebleexp.sim.comer import Coming
from prebleexp.sim.given import given_of
from prebleexp.sim.notices import EVICTED
from prebleexp.sim.records import DOWN
from prebleexp.sim.stepped import Stepped
from prebleexp.sim.types import Ints, State

ROWS = 1 << 14
"""requests that are remembered, those under way included"""
OVER = (State.FINISHED, State.REFUSED, State.EXPIRED, State.CANCELLED, State.LOST, State.FAILED)
LIFE_S = 30 * 86400.0
"""seconds from which on nothing happens to GPUs"""


class Cluster:
    """The GPUs of a cell. Times are simulated seconds from its beginning; they must not go back.

    Raises InvalidInput for a cell with what GPUs that each have a port cannot have.
    """

    def __init__(self, cell: Cell, rows: int = ROWS, listens: bool = False) -> None:
        check(cell)
        self.cell, self.gpus = cell, cell.replicas
        hardware = cell.hardware
        self.context_length, self.kv_tokens = hardware.context_length, hardware.kv_tokens
        self.block = int(getattr(cell.engine, "block_size", 16))
        slab = 2 * (-(-self.context_length // self.block)) + 2
        asked = runs.asked_of(cell) | {"policy": (Listening if listens else Addressed)(), "lengths": Max()}
        asked |= {"overhead": Overhead(), "reports_ms": 0.0, "horizon": "drain", "duration_s": LIFE_S}
        if asked["faults"] is not None:  # whoever lost an answer asks again, perhaps elsewhere
            asked["faults"] = replace(asked["faults"], on_loss="fail", detect_ms=0.0)
        given = given_of(room_for(rows, self.context_length), **asked, check=False)
        self.run = run = Stepped(given, shows=True)
        give_room(run, rows * slab)
        self.mine = run.host.routers.mine
        self.engine = run.host.kinds[0].engine
        if listens:
            if cell.engine.project != "vllm":
                raise InvalidInput("KV events are of engine=vllm; SGLang's would have an event for every token")
            mine = self.engine.mine
            self.engine.replace(mine._replace(settings=mine.settings._replace(names_keys=True)))
        self.prompts = Prompts(self.block, max(1 << 12, 4 * self.gpus * self.kv_tokens // self.block))
        self.tickets: dict[int, Ticket] = {}
        self.watching: Watching | None = None
        self.on_cache: Caching | None = None
        self._slab, self._rows = slab, Rows(run.host, rows)
        gaps, totals = run.world.gaps, run.world.totals
        self._shown, self._showing = gaps.shown["request"].view(np.ndarray), gaps.showing
        self._steps_of = totals["decode_steps"].view(np.ndarray)
        self._steps = np.zeros(self.gpus, np.int64)
        self._scheduled = np.zeros(self.gpus, np.int64)
        self._forwarded = np.zeros(self.gpus, np.int64)
        self._down = np.zeros(self.gpus, np.bool_)
        self._coming: list[Ticket] = []
        """those that are in no GPU's queue yet, if somebody watches"""

    # ------------------------------------------------------------ time
    @property
    def next_s(self) -> float:
        """When something happens next, if nobody comes."""
        return self.run.next_s

    def to(self, time_s: float) -> None:
        """Let happen what happens until then."""
        self.run.to(time_s, self._look)
        self._look_at_gpus(time_s)

    def before(self, time_s: float) -> None:
        self.to(math.nextafter(time_s, -math.inf))

    # ------------------------------------------------------------ requests
    def come(
        self, gpu: int, prompt: Ints, answer: Ints, most: int, at_s: float, heard: Heard, reason: str = "length"
    ) -> Ticket:
        """A request for at most so many tokens, of which the model makes those of `answer`; `reason`: why no more. What
        happens before is told first. Raises Full."""
        self.before(at_s)
        row = self._rows.take()
        ticket = Ticket(row, gpu, prompt, answer, at_s, heard)
        ticket.reason = reason
        ticket.segments = segments = self.prompts.segments(prompt)
        one = Coming(
            prompt_tokens=len(prompt),
            max_new_tokens=most,
            output_tokens=len(answer),
            ids=segments.ids,
            ends=segments.ends,
            answer_segment=self.prompts.answer(segments, answer),
        )
        self.mine.gpu[row] = gpu
        self.tickets[row] = ticket
        if self.watching is not None:
            self._coming.append(ticket)
        ticket.fits = self.run.come(row, row * self._slab, one, at_s)
        self.to(at_s)
        return ticket

    def leave(self, ticket: Ticket, at_s: float) -> None:
        """A client has left before its answer was whole."""
        self.before(at_s)
        if self.tickets.get(ticket.row) is ticket:
            self._over(ticket, State.CANCELLED, at_s, told=False)
            self.run.leave(ticket.row)
            self.to(at_s)

    def serves(self, gpu: int) -> bool:
        """Whether a GPU is up, and not drained."""
        return not self._down[gpu] and bool(self.run.host.changes.candidate[gpu])

    def answer_id(self, ticket: Ticket) -> int:
        """The segment by which its answer is known."""
        return int(self.run.world.seen.requests.answer_segment[ticket.row])

    def hit_tokens(self, ticket: Ticket) -> int:
        """Of its prompt, those that were found in the cache."""
        return int(self.run.world.jobs.hit_tokens[ticket.row])

    def clear(self, gpu: int) -> bool:
        """Empty a GPU's cache, if nothing runs there, as vLLM does."""
        live = self.run.world.live[gpu]
        if self._down[gpu] or any(one.gpu == gpu for one in self.tickets.values()):
            return False
        emptied(self.run.host).lose(gpu, np.zeros(0, np.int64))
        live.kv_free, live.evictable = live.kv_tokens, 0
        return True

    # ------------------------------------------------------------ what happens
    def _look(self, state: Any) -> None:
        """After an event: who has a token, and who has ended."""
        now, shown = float(state.control.now), int(self._showing[0])
        if shown:
            self._showing[0] = 0
            for row in self._shown[:shown].tolist():
                ticket = self.tickets.get(row)
                if ticket is not None:
                    self._token(ticket, now)
        if self.on_cache is not None and self.mine.rows[0] > 0:
            self._look_at_caches(self.on_cache)
        if self.watching is not None:
            if self._coming:
                self._look_for_queued(state, now)
            self._look_for_scheduled(self.watching, now)
            self._look_at_steps(self.watching, state)
        if state.control.present != len(self.tickets):
            self._look_for_ends(state, now)

    def _token(self, ticket: Ticket, now: float) -> None:
        ticket.made += 1
        if ticket.made == 1:
            ticket.first_s = now
        if self.watching is not None:
            self.watching.token(ticket, now)
        ticket.last_s = now
        ticket.heard.token(ticket, now)

    def _look_for_queued(self, state: Any, now: float) -> None:
        """Who has passed the frontend, and is in its GPU's queue."""
        reached = state.jobs.reached
        for ticket in self._coming:
            if reached[ticket.row]:
                ticket.queued_s = now
        self._coming = [one for one in self._coming if math.isnan(one.queued_s) and self.tickets.get(one.row) is one]

    def _look_for_scheduled(self, watching: Watching, now: float) -> None:
        """Whose prompt is in a step that was scheduled. It begins later where an engine schedules ahead."""
        mine = self.engine.mine
        scheduled = mine.gpus["scheduled"]
        for g in np.flatnonzero(scheduled != self._scheduled).tolist():
            for step in range(int(self._scheduled[g]), int(scheduled[g])):
                slot = step % mine.steps.shape[1]
                count = int(mine.steps["chosen"][g, slot])
                for row in mine.chosen["request"][g, slot, :count].tolist():
                    ticket = self.tickets.get(row)
                    if ticket is not None and math.isnan(ticket.scheduled_s):
                        ticket.scheduled_s = now
                        watching.scheduled(ticket)
            self._scheduled[g] = scheduled[g]

    def _look_at_steps(self, watching: Watching, state: Any) -> None:
        steps = self._steps_of
        for g in np.flatnonzero(steps != self._steps).tolist():
            self._steps[g] = steps[g]
            forwarded = int(state.totals.forwarded_tokens[g])
            watching.stepped(g, forwarded - int(self._forwarded[g]))
            self._forwarded[g] = forwarded

    def _look_at_caches(self, told: Caching) -> None:
        mine = self.mine
        for one in mine.heard[: int(mine.rows[0])]:
            block = int(one.tokens) // self.block
            if one.kind == EVICTED:
                told.evicted(int(one.gpu), int(one.request), block)
            elif (ticket := self.tickets.get(int(one.request))) is not None:
                told.stored(ticket, block)
        mine.rows[0] = 0
        told.over()

    def _look_for_ends(self, state: Any, now: float) -> None:
        rows = np.fromiter(self.tickets, np.int64, len(self.tickets))
        states = state.jobs.state[rows]
        over = np.isin(states, OVER)
        for row, one in zip(rows[over].tolist(), states[over].tolist(), strict=True):
            self._over(self.tickets[row], State(one), now)

    def _look_at_gpus(self, now: float) -> None:
        """Whoever is down has lost what it had."""
        down = self.run.world.servers.stage == DOWN
        if (down != self._down).any():
            for ticket in [one for one in self.tickets.values() if down[one.gpu]]:
                self._over(ticket, State.LOST, now)
            for g in np.flatnonzero(down & ~self._down).tolist():
                if self.on_cache is not None:
                    self.on_cache.cleared(g)
            self._down = down

    def _over(self, ticket: Ticket, state: State, now: float, told: bool = True) -> None:
        del self.tickets[ticket.row]
        self._rows.ended(ticket.row)
        if self.watching is not None:
            self.watching.ended(ticket, state, now)
        if told:
            ticket.heard.ended(ticket, state, now)
