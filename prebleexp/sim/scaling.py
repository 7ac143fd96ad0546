"""GPUs are started and drained as an autoscaler wants: at every interval, in Python."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from prebleexp.sim import records as of
from prebleexp.sim.changes import Changes
from prebleexp.sim.emptied import Emptied
from prebleexp.sim.events import CHANGE, PAIR, REPORT, key, kind_of, with_event
from prebleexp.sim.fleet import Fleet, seen
from prebleexp.sim.history import Decision


class Wanting(Protocol):
    """What the simulator asks of an autoscaler (see `prebleexp.autoscalers.base.Rule`)."""

    @property
    def interval_s(self) -> float: ...
    @property
    def least(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def memory_s(self) -> float: ...
    def start(self, setup: Any) -> Any: ...
    def desired(self, mine: Any, fleet: Fleet, now: float) -> int: ...


class Scaling:
    """Who is off, and what the autoscaler remembers. A GPU is off that is down and did not fail; it has no cache."""

    def __init__(self, rule: Wanting, setup: Any, changes: Changes) -> None:
        self._rule, self._mine, self._changes = rule, rule.start(setup), changes
        self._still_s = np.nan
        """since when nothing but looks was to happen, and none changed anything"""
        self._started_s = np.zeros(setup.gpus)
        self.decisions: list[Decision] = []

    def begin(self, block: Any) -> None:
        """At 0 the first GPUs are up, and the others off."""
        world = block.value
        for g in range(self._rule.first, len(world.servers)):
            self._changes.candidate[g] = False
            self._changes.switch_off(world, g, 0.0)
            self._changes.note(world, g, 0.0)
        self._plan(block, self._rule.interval_s)

    def look(self, block: Any, engines: Emptied, now: float) -> None:
        """Ask, and let it be so; and again in a while, if that can make a difference."""
        world, changes = block.value, self._changes
        still = not self._goes_on(world)
        if still and world.control.present == 0:  # nobody is there, nor comes
            return
        empty = changes.emptied(world)
        for g in empty:
            changes.switch_off(world, g, now)
            engines.abandon(g)
            engines.lose(g, np.zeros(0, np.int64))
        there = np.flatnonzero(changes.candidate)
        starting, off, draining = changes.starting(), changes.off(world), changes.draining()
        n = len(there) + len(starting)
        wanted = self._rule.desired(self._mine, seen(world, there, n), now)
        wanted = max(self._rule.least, min(wanted, len(changes.candidate)))
        begin = off[: max(0, wanted - n)]
        for g in begin:
            self._started_s[g] = now
            changes.start(block, g, now, engines)
        leave = [*self._last_first(starting), *self._last_first(there.tolist())][: max(0, n - wanted)]
        for g in leave:
            changes.drain(block, g, now, engines)
        for g in (*empty, *begin, *leave):
            changes.note(world, g, now)
        still = still and not (empty or begin or leave)
        if not still:  # to look at what is over is not to go on
            world.control.clock = now
            seen_then = (wanted, len(there), len(starting), draining)
            self.decisions.append(Decision(now, *seen_then, len(begin), len(leave)))
        self._still_s = np.nan if not still else now if np.isnan(self._still_s) else self._still_s
        if not still or (n + len(off) > 0 and now - self._still_s <= self._remembers_s(world)):
            self._plan(block, now + self._rule.interval_s)

    def _last_first(self, gpus: list[int]) -> list[int]:
        return sorted(gpus, key=lambda g: (-self._started_s[g], -g))

    def _goes_on(self, world: of.World) -> bool:
        """Whether anything is to happen besides what comes again and again."""
        kinds = [kind_of(int(one)) for one in world.events.keys[: world.control.events]]
        comes_s = min(world.sessions.control.time, world.links.control.time)
        return any(kind not in (REPORT, PAIR) for kind in kinds) or bool(comes_s < np.inf)

    def _remembers_s(self, world: of.World) -> float:
        """How long something may make a difference that was seen before: then all GPUs have reported what they are,
        and routers were asked about what they hold since."""
        return self._rule.memory_s + float(world.rules.reports_s) + self._rule.interval_s

    def _plan(self, block: Any, at_s: float) -> None:
        world = block.value
        row = len(world.timeline) - 1
        world.timeline[row].at_s = at_s
        block.put(("events",), with_event(world.events, world.control, at_s, key(CHANGE, row)))
