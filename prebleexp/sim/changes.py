"""What happens to the GPUs of a run: they go down and come up again, slow down, are drained; routers hear of it later.

A timeline is data, rows of `TIMELINE` in order of time; each event has one handler here, in Python: it happens so
rarely that it may. What a request has shown until then is written down before (`prebleexp.sim.changing`).

| event | what happens |
| --- | --- |
| DOWN | the step in hand yields nothing, requests and cache of the GPU are lost, and so is what is sent there |
| NOTICED | routers hear of it: the GPU is no candidate any more, and each lost request is routed again, or has ended |
| UP | it is as at the beginning of the run, and a candidate again |
| SLOW | steps that begin later take 1 / `factor` of what they cost |
| DRAIN | it is no candidate any more, and goes on with what it has; if it is idle when it is UP, its cache is cold |

A GPU that is up again before anybody noticed never ceases to be a candidate. What it told of itself stands until then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from prebleexp.sim import records as of
from prebleexp.sim.states import State
from prebleexp.sim.types import Longs, records

DOWN, NOTICED, UP, SLOW, DRAIN = range(5)
TIMELINE = np.dtype(
    [("at_s", np.float64), ("gpu", np.int64), ("event", np.int64), ("factor", np.float64)],
    align=True,
)
NOTHING = records(0, TIMELINE)

Lose = Callable[[int, Longs], None]
"""empties a GPU's engine, given its number and the requests that are lost there"""


class Changes:
    """Who is up, and of whom routers know that they are not."""

    def __init__(self, gpus: int) -> None:
        self.candidate = np.ones(gpus, np.bool_)
        """of each GPU, whether routers may send to it, as far as they know"""
        self._since_s = np.full(gpus, np.nan)

    def happen(self, world: of.World, lose: Lose) -> None:
        """Let the event in hand happen. GPUs lose all they have by `lose`, which is not kept: a run that could be
        reached from here would outlive its end, with all of its memory."""
        one = world.timeline[world.control.subject]
        g, now, server = int(one.gpu), float(world.control.now), world.servers[one.gpu]
        if one.event == DOWN:
            self._down(world, g, now, lose)
        elif one.event == NOTICED:
            self._notice(world, g)
        elif one.event == UP:
            self._up(world, g, now, lose)
        elif one.event == SLOW:
            server.speed = one.factor
        else:
            self._change(world, g, False)

    def end(self, world: of.World) -> None:
        """The run is over: whoever is down was so until now."""
        for g in np.flatnonzero(~np.isnan(self._since_s)).tolist():
            world.totals[g].down_s += float(world.control.clock) - self._since_s[g]

    def _down(self, world: of.World, g: int, now: float, lose: Lose) -> None:
        server, jobs = world.servers[g], world.jobs
        server.stage, server.leaving = of.DOWN, of.NONE
        self._since_s[g] = now
        if world.totals[g].downs == 0:
            world.totals[g].lost_s = now
        world.totals[g].downs += 1
        there = (world.seen.requests.gpu == g) & (jobs.reached != 0)
        lost = np.flatnonzero(there & np.isin(jobs.state, (State.QUEUED, State.RUNNING)))
        jobs.state[lost] = State.LOST
        jobs.losses[lost] += 1
        world.seen.requests.output_seen[lost] = jobs.output_seen[lost] if world.rules.resume else 0
        lose(g, lost)

    def _notice(self, world: of.World, g: int) -> None:
        jobs = world.jobs
        lost = np.flatnonzero((world.seen.requests.gpu == g) & (jobs.reached != 0) & (jobs.state == State.LOST))
        for request in lost[np.argsort(jobs.number[lost])].tolist():
            _tell(world, of.LOST, request, g)
        if world.servers[g].stage == of.DOWN:
            world.servers[g].gone = 1
            self._change(world, g, False)

    def _up(self, world: of.World, g: int, now: float, lose: Lose) -> None:
        server, live = world.servers[g], world.live[g]
        if server.stage == of.DOWN:
            world.totals[g].down_s += now - self._since_s[g]
            self._since_s[g] = np.nan
            server.stage, server.gone, server.speed = of.IDLE, 0, 1.0
        elif server.stage == of.IDLE:  # it was drained
            lose(g, np.zeros(0, np.int64))
        if server.stage == of.IDLE:
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
