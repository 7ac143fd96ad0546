"""GPUs are started and drained as an autoscaler wants: at every interval, in Python."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from prebleexp.sim import records as of
from prebleexp.sim.changes import Changes
from prebleexp.sim.emptied import Emptied
from prebleexp.sim.events import CHANGE, REPORT, key, kind_of, with_event
from prebleexp.sim.fleet import Fleet, seen

PATIENCE_S = 3600.0
"""after which an autoscaler looks no more, if nothing at all has happened: whoever waits then waits for ever"""


class Wanting(Protocol):
    """What the simulator asks of an autoscaler (see `prebleexp.autoscalers.base.Rule`)."""

    @property
    def interval_s(self) -> float: ...
    @property
    def least(self) -> int: ...
    @property
    def first(self) -> int: ...
    def start(self, setup: Any) -> Any: ...
    def desired(self, mine: Any, fleet: Fleet, now: float) -> int: ...


class Scaling:
    """Who is off, and what the autoscaler remembers. A GPU is off that is down and did not fail; it has no cache."""

    def __init__(self, rule: Wanting, setup: Any, changes: Changes) -> None:
        self._rule, self._mine, self._changes = rule, rule.start(setup), changes
        self._busy_s = 0.0
        self._started_s = np.zeros(setup.gpus)

    def begin(self, block: Any) -> None:
        """At 0 the first GPUs are up, and the others off."""
        world = block.value
        for g in range(self._rule.first, len(world.servers)):
            self._changes.candidate[g] = False
            self._changes.switch_off(world, g, 0.0)
        self._plan(block, self._rule.interval_s)

    def look(self, block: Any, engines: Emptied, now: float) -> None:
        """Ask, and let it be so."""
        world, changes = block.value, self._changes
        for g in changes.emptied(world):
            changes.switch_off(world, g, now)
            engines.lose(g, np.zeros(0, np.int64))
        there = np.flatnonzero(changes.candidate)
        starting = changes.starting()
        n = len(there) + len(starting)
        wanted = self._rule.desired(self._mine, seen(world, there, n), now)
        wanted = max(self._rule.least, min(wanted, len(changes.candidate)))
        for g in changes.off(world)[: max(0, wanted - n)]:
            self._started_s[g] = now
            changes.start(block, g, now, engines)
        leave = [*self._last_first(starting), *self._last_first(there.tolist())][: max(0, n - wanted)]
        for g in leave:
            changes.drain(block, g, now, engines)
        if self._goes_on(block.value, now):
            self._plan(block, now + self._rule.interval_s)

    def _last_first(self, gpus: list[int]) -> list[int]:
        return sorted(gpus, key=lambda g: (-self._started_s[g], -g))

    def _goes_on(self, world: of.World, now: float) -> bool:
        """Whether anything else is to come, or came of late."""
        kinds = [kind_of(int(one)) for one in world.events.keys[: world.control.events]]
        if any(kind != REPORT for kind in kinds) or world.sessions.control.time < np.inf or self._changes.starting():
            self._busy_s = now
        return now - self._busy_s < PATIENCE_S

    def _plan(self, block: Any, at_s: float) -> None:
        world = block.value
        row = len(world.timeline) - 1
        world.timeline[row].at_s = at_s
        block.put(("events",), with_event(world.events, world.control, at_s, key(CHANGE, row)))
