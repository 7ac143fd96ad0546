"""How requests are served before time 0: by the same loop, as steps of which each begins when nothing is left to do.

The run's own requests, what happens to GPUs and the end of time wait until the last of these steps is over. From then
on clocks go on as they were, so that whatever remembers a time remembers the right one; what comes out counts from
there (`measured`), and so do running totals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np

from prebleexp.errors import InvalidInput
from prebleexp.sim.changes import Changes
from prebleexp.sim.events import CHANGE, KIND_BITS, SUBMIT, kind_of
from prebleexp.sim.given import Given
from prebleexp.sim.pools import DECODE
from prebleexp.sim.types import COLUMNS, OF_REQUESTS, OPTIONAL, Floats, Longs, Outcome, State, Workload
from prebleexp.sim.warmth import Before as Before
from prebleexp.sim.warmth import Begun as Begun

OF_GAPS = tuple(one.name for one in fields(Outcome) if one.name.startswith("gaps_"))


def joined_with(first: Workload, then: Workload) -> Workload:
    """Both in one, the first requests first. They are of the first stage of the others."""
    w, made = len(first), dict[str, Any]()
    for name in (*COLUMNS, *OPTIONAL):
        made[name] = np.concatenate([getattr(first, name), getattr(then, name)])
    made["arrival_s"][:w] = 0.0  # whoever comes before the run is of it, whenever
    offsets = then.segment_offsets[1:] + first.segment_offsets[-1]
    made["segment_offsets"] = np.concatenate([first.segment_offsets, offsets])
    made["after_offsets"] = np.concatenate([first.after_offsets, then.after_offsets[1:] + len(first.after_ids)])
    made["after_ids"] = np.concatenate([first.after_ids, then.after_ids + w])
    made["after_ends"][w:] += w * (then.after_ends > 0)
    for name in ("stage", "overlaps"):
        made[name][:w] = getattr(then, name)[:1] if len(then) else 0
    names = {*first.predictions, *then.predictions}
    made["predictions"] = {
        name: np.concatenate([one.predictions.get(name, one.output_tokens.astype(np.float64)) for one in (first, then)])
        for name in sorted(names)
    }
    return then.changed(**made)


class Warming:
    """Of a run whose world is made for all requests (`joined_with`)."""

    def __init__(self, given: Given, block: Any, changes: Changes, find_candidates: Callable[[Any], None]) -> None:
        """Raises InvalidInput for a GPU that is not there, or makes outputs alone."""
        assert given.before is not None
        self._block, self._changes, self._find_candidates = block, changes, find_candidates
        world, self._before, self._whole = block.value, given.before, given.workload
        self._w = len(self._before.workload)
        self._own_s = given.workload.arrival_s.copy()
        self._own_s[: self._w] = self._before.workload.arrival_s
        self._up, self._outputs = changes.candidate.copy(), world.pools.roles == DECODE
        self._check()
        self.begun: Begun | None = None
        n, self._end_s = int(world.control.events), float(world.rules.end_s)
        self._planned = list(zip(world.events.times[:n].tolist(), world.events.keys[:n].tolist(), strict=True))
        block.put(("rules",), world.rules._replace(end_s=math.inf))
        world.seen.requests.arrival_s[world.sessions.firsts] = world.arrivals[world.sessions.firsts] = math.inf
        self._steps = self._each() if self._before.one_by_one else iter([(np.arange(self._w), -1)])
        self.goes_on()

    def _check(self) -> None:
        if not (self._up & ~self._outputs if len(self._outputs) else self._up).any():
            raise InvalidInput("requests come before time 0, and no GPU is up then")
        for gpu in np.unique([] if self._before.gpus is None else self._before.gpus).tolist():
            if gpu >= len(self._up):
                raise InvalidInput(f"GPU {gpu} is to hold something at time 0; GPUs are 0 to {len(self._up) - 1}")
            if gpu >= 0 and (not self._up[gpu] or (len(self._outputs) and self._outputs[gpu])):
                why = "is not up then" if not self._up[gpu] else "computes no prompts"
                raise InvalidInput(f"GPU {gpu} is to hold something at time 0, and it {why}")

    def _each(self) -> Iterator[tuple[Longs, int]]:
        gpus = self._before.gpus
        for row in range(self._w):
            yield np.array([row]), -1 if gpus is None else int(gpus[row])

    @property
    def is_over(self) -> bool:
        """Whether the run itself has begun."""
        return self.begun is not None

    def goes_on(self) -> bool:
        """Nothing is left to do: let the next step begin, or the run itself. False if that is what is over."""
        if self.begun is not None:
            return False
        world = self._block.value
        now = max(float(world.control.now), float(world.control.clock))
        rows, gpu = next(self._steps, (None, -1))
        self._send_to(gpu)
        if rows is None:
            now = self._begin(now)
            rows = np.arange(self._w, len(self._whole))
        self._plan([(now + at_s, key) for at_s, key in self._planned if self.is_over or kind_of(key) != CHANGE])
        self._release(rows, now)
        return True

    def _send_to(self, gpu: int) -> None:
        """Let it be the only candidate; -1: all that are up are."""
        only = np.arange(len(self._up)) == gpu
        may = self._up & (only | self._outputs if len(self._outputs) else only) if gpu >= 0 else self._up
        if (may != self._changes.candidate).any():
            self._changes.candidate[:] = may
            self._find_candidates(self._block.value)
            touched = self._block.value.seen.touched
            if touched.times[0] > 0:  # as `prebleexp.sim.touching.touch_all`
                touched.times[0] += len(touched.gpus) + 1

    def _plan(self, due: list[tuple[float, int]]) -> None:
        events, control = self._block.value.events, self._block.value.control
        control.events = len(due)
        for row, (at_s, key) in enumerate(sorted(due)):
            events.times[row], events.keys[row] = at_s, key

    def _release(self, rows: Longs, now: float) -> None:
        """Those of these requests that wait for nobody come as long after now as they were to come after 0."""
        world = self._block.value
        sessions, agenda = world.sessions, world.sessions.control
        firsts = sessions.firsts[np.isin(sessions.firsts, rows)] if len(rows) > 1 else rows
        world.seen.requests.arrival_s[firsts] = now + self._own_s[firsts]
        if self._before.one_by_one and not self.is_over:
            world.seen.requests.arrival_s[firsts] = now
        world.arrivals[firsts] = world.seen.requests.arrival_s[firsts] + world.rules.submit_s
        if len(sessions.from_s):
            arrive = rows[self._whole.arrives[rows]]
            sessions.from_s[arrive] = now + self._own_s[arrive]
        agenda.time = math.inf
        if agenda.came < len(sessions.firsts):
            first = int(sessions.firsts[agenda.came])
            agenda.time, agenda.key = world.arrivals[first], SUBMIT << KIND_BITS | first

    def _begin(self, now: float) -> float:
        """At the next whole second, so that times from then on are as exact as they were."""
        world, now = self._block.value, float(math.ceil(now))
        self._block.put(("rules",), world.rules._replace(end_s=now + self._end_s))
        world.control.clock = now
        world.timeline.at_s += now
        self._changes.begin(now)
        world.totals[:] = 0
        world.gaps.classes[:] = np.zeros_like(world.gaps.classes)
        world.tiers.totals[:] = 0
        world.servers.begun_s[:] = world.servers.ends_s[:] = 0.0
        share = 1.0 - world.live.kv_free / np.maximum(world.live.kv_tokens, 1)
        finished = int((self._state() == State.FINISHED).sum())
        sent = world.seen.sent.requests.astype(np.int64)
        self.begun = Begun(now, self._w, finished, float(share[self._up].mean()), sent)
        return now

    def _state(self) -> Any:
        """(w,) of those before."""
        return self._block.value.jobs.state[: self._w]


def measured(made: Outcome, workload: Workload, begun: Begun) -> Outcome:
    """What comes out of all requests, without those that were before the run, from when it began."""
    w, at_s = begun.requests, begun.at_s
    of: dict[str, Any] = {name: getattr(made, name)[w:] for name in OF_REQUESTS}
    came: Floats = np.where(workload.dated, workload.arrival_s, of["due_s"] - at_s)
    of |= {"due_s": np.where(np.isnan(of["due_s"]), np.nan, came), "finish_s": of["finish_s"] - at_s}
    of |= {"gpu_requests": made.gpu_requests - begun.gpu_requests, "gpu_lost_s": made.gpu_lost_s - at_s}
    if len(made.gaps_priority) > 1:  # those that only requests before the run have are none of its classes
        mine = np.isin(made.gaps_priority, workload.priority)
        of |= {name: getattr(made, name)[mine] for name in OF_GAPS}
    assert {*of} <= {one.name for one in fields(Outcome)}
    return replace(made, **of, end_s=made.end_s - at_s, begun=begun)
