"""What happens to the GPUs of a run: they go down and come up again, slow down, are drained; routers hear of it later.

A timeline is data, rows of `TIMELINE` in order of time; each event has one handler here, in Python: it happens so
rarely that it may. What a request has shown until then is written down before (`prebleexp.sim.changing`). Behind the
rows of the timeline are two for each GPU that are used when it comes to that (`with_spare`).

| event | what happens |
| --- | --- |
| DOWN | the step in hand yields nothing, requests and cache of the GPU are lost, and so is what is sent there |
| NOTICED | routers hear of it: the GPU is no candidate any more, and each lost request is routed again, or has ended |
| UP | it is started, if that takes time; else, or if it was drained and is not empty yet, it is READY |
| SLOW | steps that begin later take 1 / `factor` of what they cost |
| DRAIN | it is no candidate any more, and goes on with what it has, or gives back what waits there |
| READY | it is as at the beginning of the run, and a candidate again; one that was drained keeps what it still has |
| LIMIT | it was drained long ago: what it still has is lost, as routers know at once |
| LOOK | an autoscaler says how many there are to be (see `prebleexp.sim.scaling`) |

A GPU that is up again before anybody noticed never ceases to be a candidate. What it told of itself stands until then.
It is on, and paid for, from when it is started until it goes down, or is empty and drained.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from prebleexp.sim import notices
from prebleexp.sim import records as of
from prebleexp.sim.breaking import break_off, given_back, keep_shown, lost_row, torn, unread
from prebleexp.sim.emptied import Emptied
from prebleexp.sim.events import CHANGE, key, with_event
from prebleexp.sim.hearing import tell_of_loss
from prebleexp.sim.history import Change, Decision, GpuState, changes_of
from prebleexp.sim.states import State
from prebleexp.sim.tiers import is_lending, is_loading
from prebleexp.sim.types import Longs, records

DOWN, NOTICED, UP, SLOW, DRAIN, READY, LIMIT, LOOK = range(8)
TIMELINE = np.dtype(
    [("at_s", np.float64), ("gpu", np.int64), ("event", np.int64), ("factor", np.float64)],
    align=True,
)
NOTHING = records(0, TIMELINE)
Row = TypeVar("Row", Change, Decision)


class Terms(NamedTuple):
    """On which GPUs come and go."""

    start_s: tuple[float, ...]
    """of each GPU, from when it is started until it may serve"""
    requeue: bool
    """whether a GPU that is drained gives back what waits there"""
    drain_s: float
    """after which what it still has is lost"""

    @property
    def changes_nothing(self) -> bool:
        """Whether nothing follows upon an event of a timeline but what is in that."""
        return not any(self.start_s) and self.drain_s == math.inf


def with_spare(timeline: Any, gpus: int) -> Any:
    """The same, and behind it a row for each GPU to be READY, one for it to come to its LIMIT, and one to LOOK."""
    rows = records(len(timeline) + 2 * gpus + 1, TIMELINE)
    rows[-1].event = LOOK
    rows[: len(timeline)] = timeline
    for at, event in enumerate((READY, LIMIT)):
        spare = rows[len(timeline) + at * gpus :][:gpus]
        spare.gpu, spare.event, spare.at_s = np.arange(gpus), event, math.nan
    return rows


class Changes:
    """Who is up, and of whom routers know that they are not."""

    def __init__(self, gpus: int, terms: Terms, scaled: bool = False) -> None:
        self.candidate = np.ones(gpus, np.bool_)
        """of each GPU, whether routers may send to it, as far as they know"""
        self._terms, self._scaled = terms, scaled
        self._down_s, self._drained_s = np.full(gpus, np.nan), np.full(gpus, np.nan)
        self._on_s = np.zeros(gpus)
        self._at_s = {READY: np.full(gpus, np.nan), LIMIT: np.full(gpus, np.nan)}
        self._lost_with: dict[int, list[int]] = {}
        """by GPU, requests that were lost elsewhere, for their KV was computed there, and routers do not know yet"""
        self._noted: list[Change] = []
        self._begun_s = 0.0

    def begin(self, now: float) -> None:
        """What was before does not count: the run begins now, and who is on is so from now on."""
        self._begun_s = now
        self._on_s[~np.isnan(self._on_s)] = now

    def since_begun(self, rows: Iterable[Row]) -> tuple[Row, ...]:
        """The same, their times from when the run began."""
        return tuple(one._replace(at_s=max(one.at_s - self._begun_s, 0.0)) for one in rows)

    def happen(self, block: Any, engines: Emptied) -> None:
        """Let the event in hand happen."""
        world = block.value
        one = world.timeline[world.control.subject]
        g, now = int(one.gpu), float(world.control.now)
        world.control.clock = now
        if one.event == DOWN:
            self._down(world, g, now, engines)
        elif one.event == NOTICED:
            self._notice(world, g, world.servers[g].stage == of.DOWN, engines)
        elif one.event == UP and self._scaled:
            self._repaired(world, g, now)
        elif one.event == UP:
            self._up(block, g, now, engines)
        elif one.event == SLOW:
            world.servers[g].speed = one.factor
        elif one.event == DRAIN:
            self.drain(block, g, now, engines)
        elif self._at_s[int(one.event)][g] == now:
            self._at_s[int(one.event)][g] = np.nan
            (self._ready if one.event == READY else self._reach_limit)(world, g, now, engines)
        self.note(world, g, now)

    def note(self, world: of.World, g: int, now: float) -> None:
        """Write down what has become of a GPU."""
        server = world.servers[g]
        if not np.isnan(self._at_s[READY][g]):
            state = GpuState.STARTING
        elif server.stage == of.DOWN:
            state = GpuState.OFF if np.isnan(self._down_s[g]) else GpuState.FAILED
        elif not np.isnan(self._drained_s[g]):
            state = GpuState.DRAINING
        else:
            state = GpuState.READY if server.speed == 1.0 else GpuState.SLOW
        self._noted.append(Change(now, g, state))

    def gpu_states(self) -> tuple[Change, ...]:
        """What was written down (see `History`)."""
        return changes_of(len(self.candidate), self.since_begun(self._noted))

    def end(self, world: of.World) -> None:
        """The run is over: whoever is down was so until now, and whoever is on."""
        now = float(world.control.clock)
        for g in np.flatnonzero(~np.isnan(self._down_s)).tolist():
            world.totals[g].down_s += now - self._down_s[g]
        for g in range(len(self._on_s)):
            self._is_off(world, g, now)

    # ---------------------------------------------------------------- going
    def _down(self, world: of.World, g: int, now: float, engines: Emptied) -> None:
        self._at_s[READY][g] = self._at_s[LIMIT][g] = np.nan
        self._is_off(world, g, now)
        if world.servers[g].stage == of.DOWN:  # it was being started
            return
        self._down_s[g] = now
        if world.totals[g].downs == 0:
            world.totals[g].lost_s = now
        world.totals[g].downs += 1
        self._lose_all(world, g, engines)

    def _lose_all(self, world: of.World, g: int, engines: Emptied) -> None:
        server, jobs, told = world.servers[g], world.jobs, world.live[g].copy()
        server.stage, server.leaving = of.DOWN, of.NONE
        engines.abandon(g)
        for request in torn(world, g).tolist():
            row = break_off(world, engines, request)
            if world.seen.requests[row].gpu != g:
                self._lost_with.setdefault(g, []).append(row)
        there = (world.seen.requests.gpu == g) & (jobs.reached != 0)
        lost = np.flatnonzero(there & np.isin(jobs.state, (State.QUEUED, State.RUNNING, State.RESERVED)))
        jobs.state[lost] = State.LOST
        jobs.losses[lost] += 1
        keep_shown(world, lost)
        engines.lose(g, lost)
        world.live[g] = told

    def _notice(self, world: of.World, g: int, is_down: bool, engines: Emptied) -> None:
        jobs, requests = world.jobs, world.seen.requests
        lost, elsewhere = (requests.gpu == g) & (jobs.reached != 0) & (jobs.state == State.LOST), np.zeros(0, np.int64)
        if self._lost_with:
            lost[[one for g_of, ones in self._lost_with.items() if g_of != g for one in ones]] = False
            elsewhere = np.array(self._lost_with.pop(g, []), np.int64)
            elsewhere = elsewhere[jobs.state[elsewhere] == State.LOST]
        for row in _in_order(world, np.concatenate([np.flatnonzero(lost), elsewhere])):
            tell_of_loss(engines.handle, lost_row(world, engines, row))
        if is_down:
            world.servers[g].gone = 1
            self._change(world, g, False)

    def drain(self, block: Any, g: int, now: float, engines: Emptied) -> None:
        world = block.value
        if world.servers[g].stage == of.DOWN:  # it was being started
            self._down(world, g, now, engines)
        else:
            self._drained_s[g], self._at_s[READY][g] = now, np.nan
            if self._terms.requeue:
                for row in _in_order(world, given_back(world, engines, g)):
                    tell_of_loss(engines.handle, lost_row(world, engines, row))
            if self._terms.drain_s < math.inf:
                self._plan(block, LIMIT, g, now + self._terms.drain_s)
        self._change(block.value, g, False)

    def _reach_limit(self, world: of.World, g: int, now: float, engines: Emptied) -> None:
        if not _is_empty(world, g):
            self._is_off(world, g, now)
            self._lose_all(world, g, engines)
            self._notice(world, g, True, engines)

    # ---------------------------------------------------------------- coming
    def _up(self, block: Any, g: int, now: float, engines: Emptied) -> None:
        world = block.value
        self._at_s[LIMIT][g] = np.nan
        if world.servers[g].stage == of.IDLE:
            engines.abandon(g)
        empty = world.servers[g].stage == of.DOWN or _is_empty(world, g)
        if not empty or self._terms.start_s[g] == 0:
            self._ready(world, g, now, engines)
            return
        self._is_off(world, g, now)
        self.start(block, g, now, engines)

    def start(self, block: Any, g: int, now: float, engines: Emptied) -> None:
        """Let one that is off be ready as soon as it can be."""
        self._on_s[g], self._drained_s[g] = now, np.nan
        if self._terms.start_s[g] == 0:
            self._ready(block.value, g, now, engines)
        else:
            self._plan(block, READY, g, now + self._terms.start_s[g])

    def _ready(self, world: of.World, g: int, now: float, engines: Emptied) -> None:
        server, live = world.servers[g], world.live[g]
        if not np.isnan(self._drained_s[g]) and _is_empty(world, g):
            self._is_off(world, g, now)
        moves = len(unread(world, g)) > 0 or is_loading(world, g) or is_lending(world, g)
        awaits = moves or live.queued > 0  # for blocks that are being stored
        empty = server.stage == of.DOWN or (server.stage == of.IDLE and not awaits)
        self._on_s[g] = now if np.isnan(self._on_s[g]) else self._on_s[g]
        self._drained_s[g] = np.nan
        if server.stage == of.DOWN:
            if not np.isnan(self._down_s[g]):
                world.totals[g].down_s += now - self._down_s[g]
                self._down_s[g] = np.nan
            server.stage, server.gone, server.speed = of.IDLE, 0, 1.0
        elif empty:  # it was drained
            engines.lose(g, np.zeros(0, np.int64))
        if empty:
            kv_tokens = int(live.kv_tokens)
            world.live[g] = np.zeros(1, of.REPORT)[0]
            live.kv_tokens = live.kv_free = kv_tokens
        self._change(world, g, True)

    # ---------------------------------------------------------------- where there is an autoscaler
    def starting(self) -> list[int]:
        """Numbers of GPUs that are being started and do not serve yet."""
        return np.flatnonzero(~np.isnan(self._at_s[READY])).tolist()

    def off(self, world: of.World) -> list[int]:
        """Who can be started: it did not fail, or is repaired."""
        return np.flatnonzero(
            (world.servers.stage == of.DOWN) & np.isnan(self._down_s) & np.isnan(self._at_s[READY])
        ).tolist()

    def emptied(self, world: of.World) -> list[int]:
        """Who was drained and has nothing any more."""
        drained = np.flatnonzero(~np.isnan(self._drained_s)).tolist()
        return [g for g in drained if _is_empty(world, g)]

    def draining(self) -> int:
        """How many are drained and not off yet."""
        return int((~np.isnan(self._drained_s)).sum())

    def switch_off(self, world: of.World, g: int, now: float) -> None:
        """One that nobody uses, and no router may send to."""
        self._at_s[LIMIT][g] = np.nan
        self._is_off(world, g, now)
        server = world.servers[g]
        server.stage, server.gone, server.leaving = of.DOWN, 1, of.NONE

    def _repaired(self, world: of.World, g: int, now: float) -> None:
        """It may be started again."""
        if not np.isnan(self._down_s[g]):
            world.totals[g].down_s += now - self._down_s[g]
            self._down_s[g] = np.nan
            world.servers[g].gone = 1
            self._change(world, g, False)

    # ---------------------------------------------------------------- what follows
    def _is_off(self, world: of.World, g: int, now: float) -> None:
        """It is not on from now on, or since it was drained and empty."""
        if np.isnan(self._on_s[g]):
            return
        if not np.isnan(self._drained_s[g]) and _is_empty(world, g):
            now = min(now, max(float(self._drained_s[g]), float(world.servers[g].ends_s)))
            self._noted.append(Change(now, g, GpuState.OFF))
        world.totals[g].on_s += now - self._on_s[g]
        self._on_s[g] = self._drained_s[g] = np.nan

    def _plan(self, block: Any, event: int, g: int, at_s: float) -> None:
        """Let its READY or LIMIT be then; what was planned of it before is void."""
        world = block.value
        row = int(world.rules.changes) + g + (len(self._on_s) if event == LIMIT else 0)
        self._at_s[event][g] = world.timeline[row].at_s = at_s
        block.put(("events",), with_event(world.events, world.control, at_s, key(CHANGE, row)))

    def _change(self, world: of.World, g: int, candidate: bool) -> None:
        if self.candidate[g] != candidate:
            self.candidate[g] = candidate
            _tell(world, notices.CHANGED, of.NONE, g)


def _is_empty(world: of.World, g: int) -> bool:
    """Whether nothing is to come of what it has."""
    return bool(world.seen.sent[g].outstanding == 0) and len(unread(world, g)) == 0


def _in_order(world: of.World, rows: Longs) -> list[int]:
    """The rows, in order of arrival of their requests."""
    requests = rows % world.pools.requests
    return [int(row) for row in rows[np.argsort(world.jobs.number[requests], kind="stable")]]


def _tell(world: Any, kind: int, request: int, g: int) -> None:
    """As `prebleexp.sim.news.tell`, from Python."""
    world.news[world.control.news] = (kind, request, g, 0)
    world.control.news += 1
