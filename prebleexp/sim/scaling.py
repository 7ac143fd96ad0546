"""GPUs are started and drained as an autoscaler wants: at every interval, in Python.

Where GPUs have roles, those of each are a fleet of their own, of which a rule knows nothing but that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from prebleexp.errors import NeverEnds
from prebleexp.sim import records as of
from prebleexp.sim.changes import Changes
from prebleexp.sim.emptied import Emptied
from prebleexp.sim.events import CHANGE, PAIR, REPORT, key, kind_of, with_event
from prebleexp.sim.fleet import Fleet, seen, waiting
from prebleexp.sim.history import Decision
from prebleexp.sim.types import Longs

IN_VAIN = 200
"""looks in turn that started or drained GPUs, while no request ended: then none ever will"""


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


class Scales(Protocol):
    """Of a run's: which rule it has for a role, or for GPUs without."""

    def of_role(self, role: str | None) -> Wanting | None: ...


class Scaled(NamedTuple):
    """GPUs whose number a rule says."""

    rule: Wanting
    setup: Any
    """what it may know of them"""
    gpus: Longs
    asked: int
    """whether routers choose among them first (0), or second (1)"""


class Scaling:
    """Who is off, and what the autoscaler remembers. A GPU is off that is down and did not fail; it has no cache."""

    def __init__(self, pools: Sequence[Scaled], gpus: int, changes: Changes) -> None:
        """`gpus`: how many there can be of all; those of no pool are there from the beginning to the end."""
        self._pools, self._mine = pools, [one.rule.start(one.setup) for one in pools]
        self._changes = changes
        self._interval_s = pools[0].rule.interval_s
        self._still_s = np.nan
        """since when nothing but looks was to happen, and none changed anything"""
        self._left, self._left_s, self._in_vain = -1, 0.0, 0
        """requests that had not ended, since when these are as many, and looks since then that changed something"""
        self._started_s = np.zeros(gpus)
        self.decisions: list[Decision] = []

    def begin(self, block: Any) -> None:
        """At 0 the first GPUs are up, and the others off."""
        world = block.value
        for pool in self._pools:
            for g in pool.gpus[pool.rule.first :].tolist():
                self._changes.candidate[g] = False
                self._changes.switch_off(world, g, 0.0)
                self._changes.note(world, g, 0.0)
        self._plan(block, self._interval_s)

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
            changes.note(world, g, now)
        waits, draining, could_start = waiting(world), changes.draining(), len(changes.off(world))
        asked = [
            self._ask(block, engines, pool, mine, waits[pool.asked], now)
            for pool, mine in zip(self._pools, self._mine, strict=True)
        ]
        wanted, there, starting, begun, left = (sum(column) for column in zip(*asked, strict=True))
        still = still and not (empty or begun or left)
        if not still:  # to look at what is over is not to go on
            world.control.clock = now
            self.decisions.append(Decision(now, wanted, there, starting, draining, begun, left))
        self._ends(world, bool(begun or left), now)
        self._still_s = np.nan if not still else now if np.isnan(self._still_s) else self._still_s
        may_change = there + starting + could_start > 0
        if not still or (may_change and now - self._still_s <= self._remembers_s(world)):
            self._plan(block, now + self._interval_s)

    def _ends(self, world: of.World, changed: bool, now: float) -> None:
        """Raises NeverEnds if GPUs come and go so fast that requests start over again and again."""
        left = int(world.control.unfinished)
        if left != self._left or world.control.present == 0:
            self._left, self._left_s, self._in_vain = left, now, 0
        self._in_vain += changed
        if self._in_vain == IN_VAIN:
            raise NeverEnds(
                f"the run would never end: from {self._left_s:,.0f} to {now:,.0f} s the autoscaler started or drained "
                f"GPUs {IN_VAIN:,} times, and no request ended ({left:,} are left), since GPUs leave sooner than that. "
                "Set autoscaler.least or faults.drain_s higher, or let the autoscaler look less often (interval_s)"
            )

    def _ask(
        self, block: Any, engines: Emptied, pool: Scaled, mine: Any, waits: int, now: float
    ) -> tuple[int, int, int, int, int]:
        """Let a pool have as many GPUs as its rule wants: how many these are, how many were ready and starting, and how
        many are started and drained."""
        world, changes, its = block.value, self._changes, set(pool.gpus.tolist())
        there = [g for g in np.flatnonzero(changes.candidate).tolist() if g in its]
        starting = [g for g in changes.starting() if g in its]
        off = [g for g in changes.off(world) if g in its]
        n = len(there) + len(starting)
        wanted = pool.rule.desired(mine, seen(world, np.array(there, np.int64), n, waits), now)
        wanted = max(pool.rule.least, min(wanted, len(its)))
        begin = off[: max(0, wanted - n)]
        for g in begin:
            self._started_s[g] = now
            changes.start(block, g, now, engines)
        leave = [*self._last_first(starting), *self._last_first(there)][: max(0, n - wanted)]
        for g in leave:
            changes.drain(block, g, now, engines)
        for g in (*begin, *leave):
            changes.note(world, g, now)
        return wanted, len(there), len(starting), len(begin), len(leave)

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
        remembers_s = max(pool.rule.memory_s for pool in self._pools)
        return remembers_s + float(world.rules.reports_s) + self._interval_s

    def _plan(self, block: Any, at_s: float) -> None:
        world = block.value
        row = len(world.timeline) - 1
        world.timeline[row].at_s = at_s
        block.put(("events",), with_event(world.events, world.control, at_s, key(CHANGE, row)))
