"""What happens to the GPUs of a run: they go down and come up again, slow down, are drained; routers hear of it later.

A timeline is data, rows of `TIMELINE` in order of time; each event has one handler here, in Python: it happens so
rarely that it may. What a request has shown until then is written down before (`prebleexp.sim.changing`).

| event | what happens |
| --- | --- |
| DOWN | the step in hand yields nothing, requests and cache of the GPU are lost, and so is what is sent there |
| NOTICED | routers hear of it: the GPU is no candidate any more, and each lost request is routed again, or has ended |
| UP | it is as at the beginning of the run, and a candidate again |
| SLOW | steps that begin later take 1 / `factor` of what they cost |
| DRAIN | it is no candidate any more, and goes on with what it has; if that is nothing when UP, its cache is cold |

A GPU that is up again before anybody noticed never ceases to be a candidate. What it told of itself stands until then.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from prebleexp.sim import records as of
from prebleexp.sim.breaking import break_off, unread
from prebleexp.sim.pools import leg_of, request_of
from prebleexp.sim.router import is_lost
from prebleexp.sim.states import State
from prebleexp.sim.types import Longs, records

DOWN, NOTICED, UP, SLOW, DRAIN = range(5)
TIMELINE = np.dtype(
    [("at_s", np.float64), ("gpu", np.int64), ("event", np.int64), ("factor", np.float64)],
    align=True,
)
NOTHING = records(0, TIMELINE)


class Engines(Protocol):
    """What is asked of the engines of a run."""

    @property
    def handle(self) -> Any:
        """The world, as compiled functions are given it."""

    def lose(self, g: int, requests: Longs) -> None:
        """Empty a GPU, given the requests that are lost there."""

    def withdraw(self, g: int, request: int) -> None:
        """Take out of a GPU a request that waits there for KV."""

    def forget(self, g: int, request: int) -> None:
        """Let a request that a GPU was done with be as if it had never come there."""


class Changes:
    """Who is up, and of whom routers know that they are not."""

    def __init__(self, gpus: int) -> None:
        self.candidate = np.ones(gpus, np.bool_)
        """of each GPU, whether routers may send to it, as far as they know"""
        self._since_s = np.full(gpus, np.nan)
        self._lost_with: dict[int, list[int]] = {}
        """by GPU, requests that were lost elsewhere, for their KV was computed there, and routers do not know yet"""

    def happen(self, world: of.World, engines: Engines) -> None:
        """Let the event in hand happen. `engines` are not kept: a run that could be reached from here would outlive its
        end, with all of its memory."""
        one = world.timeline[world.control.subject]
        g, now, server = int(one.gpu), float(world.control.now), world.servers[one.gpu]
        if one.event == DOWN:
            self._down(world, g, now, engines)
        elif one.event == NOTICED:
            self._notice(world, g, engines)
        elif one.event == UP:
            self._up(world, g, now, engines)
        elif one.event == SLOW:
            server.speed = one.factor
        else:
            self._change(world, g, False)

    def end(self, world: of.World) -> None:
        """The run is over: whoever is down was so until now."""
        for g in np.flatnonzero(~np.isnan(self._since_s)).tolist():
            world.totals[g].down_s += float(world.control.clock) - self._since_s[g]

    def _down(self, world: of.World, g: int, now: float, engines: Engines) -> None:
        server, jobs, told = world.servers[g], world.jobs, world.live[g].copy()
        server.stage, server.leaving = of.DOWN, of.NONE
        self._since_s[g] = now
        if world.totals[g].downs == 0:
            world.totals[g].lost_s = now
        world.totals[g].downs += 1
        for request in unread(world, g).tolist():
            break_off(world, engines.handle, request, engines.withdraw)
            if world.seen.requests[request].gpu != g:
                self._lost_with.setdefault(g, []).append(request)
        there = (world.seen.requests.gpu == g) & (jobs.reached != 0)
        lost = np.flatnonzero(there & np.isin(jobs.state, (State.QUEUED, State.RUNNING)))
        jobs.state[lost] = State.LOST
        jobs.losses[lost] += 1
        world.seen.requests.output_seen[lost] = jobs.output_seen[lost] if world.rules.resume else 0
        engines.lose(g, lost)
        world.live[g] = told

    def _notice(self, world: of.World, g: int, engines: Engines) -> None:
        jobs, requests = world.jobs, world.seen.requests
        lost, elsewhere = (requests.gpu == g) & (jobs.reached != 0) & (jobs.state == State.LOST), np.zeros(0, np.int64)
        if self._lost_with:
            lost[[one for g_of, ones in self._lost_with.items() if g_of != g for one in ones]] = False
            elsewhere = np.array(self._lost_with.pop(g, []), np.int64)
            elsewhere = elsewhere[jobs.state[elsewhere] == State.LOST]
        both = np.concatenate([np.flatnonzero(lost), elsewhere])
        came = [int(jobs[request_of(engines.handle, row)].number) for row in both.tolist()]
        for row in both[np.argsort(came)].tolist():
            leg, at = leg_of(engines.handle, request_of(engines.handle, row)), int(requests[row].gpu)
            if row != leg:
                engines.forget(int(requests[leg].gpu), leg)
            if at == of.NONE:  # no router has it in its book
                is_lost(engines.handle, row)
            else:
                _tell(world, of.LOST, row, at)
        if world.servers[g].stage == of.DOWN:
            world.servers[g].gone = 1
            self._change(world, g, False)

    def _up(self, world: of.World, g: int, now: float, engines: Engines) -> None:
        server, live = world.servers[g], world.live[g]
        empty = server.stage == of.DOWN or (server.stage == of.IDLE and len(unread(world, g)) == 0)
        if server.stage == of.DOWN:
            world.totals[g].down_s += now - self._since_s[g]
            self._since_s[g] = np.nan
            server.stage, server.gone, server.speed = of.IDLE, 0, 1.0
        elif empty:  # it was drained
            engines.lose(g, np.zeros(0, np.int64))
        if empty:
            kv_tokens = int(live.kv_tokens)
            world.live[g] = np.zeros(1, of.REPORT)[0]
            live.kv_tokens = live.kv_free = kv_tokens
        self._change(world, g, True)

    def _change(self, world: of.World, g: int, candidate: bool) -> None:
        if self.candidate[g] != candidate:
            self.candidate[g] = candidate
            _tell(world, of.CHANGED, of.NONE, g)


def _tell(world: Any, kind: int, request: int, g: int) -> None:
    """As `prebleexp.sim.news.tell`, from Python."""
    world.news[world.control.news] = (kind, request, g, 0)
    world.control.news += 1
