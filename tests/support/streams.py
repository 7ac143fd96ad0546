"""The streams of tokens that clients see, listed token by token: what the core counts of gaps must come of them.

After every event it is looked up how many tokens each request has, as its engine's state says it, and whoever has more
than before has them now; those of a burst of decode steps came one after the other, in equal times.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from prebleexp.engines.sglang.records import LEAVING, RUNNING
from prebleexp.lengths.known import Max
from prebleexp.sim.histogram import edges
from prebleexp.sim.pools import PREFILL
from prebleexp.sim.simulate import simulate
from prebleexp.sim.states import State
from prebleexp.sim.types import Floats, Longs, Outcome, Workload

ON_A_GPU = (State.QUEUED, State.RUNNING, State.FINISHED, State.HELD, State.RESERVED)


class Streams:
    """Listens to a run of an engine."""

    def __init__(self, workload: Workload, engine: Any, kinds: Sequence[tuple[int, Any]]) -> None:
        self.n = len(workload)
        self.times: list[list[float]] = [[] for _ in range(self.n)]
        self._had = np.zeros(0, np.int64)
        self._begun_s = np.zeros(0)
        self._mine: list[Any] = []
        self._kind_of = [kind for kind, (count, _) in enumerate(kinds) for _ in range(count)]

        def start(setup: Any) -> Any:
            self._mine.append(engine.start(setup))
            return self._mine[-1]

        self.engine = copy.copy(engine)
        object.__setattr__(self.engine, "start", start)
        self._count = {"Continuous": _continuous, "VLLM": _vllm, "SGLang": _sglang}[type(engine).__name__]

    def look(self, world: Any) -> None:
        """After an event."""
        rows, at = len(world.jobs), world.seen.requests.gpu
        has = np.zeros(rows, np.int64)
        on = np.flatnonzero((at >= 0) & np.isin(world.jobs.state, ON_A_GPU))
        reached = on[world.jobs.reached[on] != 0] if world.pools.legs == 0 else on
        for kind, mine in enumerate(self._mine):
            here = reached[np.array(self._kind_of)[at[reached]] == kind]
            has[here] = self._count(mine, world, here)
        done = world.jobs.state == State.FINISHED
        has[done] = world.jobs.output_seen[done]
        if world.pools.legs:
            has[self.n :][world.pools.roles[at[self.n :]] == PREFILL] = 0
        now = float(world.control.now)
        if not len(self._had):
            self._had, self._begun_s = np.zeros(rows, np.int64), np.zeros(len(world.servers))
        begun_s = np.where(world.servers.begun_s < now, world.servers.begun_s, self._begun_s)  # steps that are over
        if world.rules.resume:  # who has none of this attempt knows again what was shown before it was lost
            self._had = np.where(np.isnan(world.seen.requests.ttft_s), has, self._had)
        for row in np.flatnonzero(has > self._had):
            mine, more = self.times[row % self.n], int(has[row] - self._had[row])
            first = max([float(begun_s[at[row]]), *mine[-1:]])
            mine += [first + (now - first) / more * i for i in range(1, more)] + [now]
        self._had, self._begun_s = has, world.servers.begun_s.copy()

    def gaps(self) -> Floats:
        return np.concatenate([np.zeros(0), *(np.diff(one) for one in self.times)])


def _vllm(mine: Any, world: Any, rows: Longs) -> Longs:
    jobs, over = mine.jobs[rows], mine.gpus.over[world.seen.requests.gpu[rows]]
    since = np.where(jobs.steady_from >= 0, np.maximum(0, over - jobs.steady_from), 0)
    return np.asarray(jobs.known + since - world.seen.requests.prompt_tokens[rows])


def _sglang(mine: Any, world: Any, rows: Longs) -> Longs:
    jobs, over = mine.jobs[rows], mine.gpus.decodes_over[world.seen.requests.gpu[rows]]
    runs = np.isin(jobs.stage, (RUNNING, LEAVING))
    return np.asarray(jobs.shown + jobs.generated + np.where(runs, np.maximum(0, over - jobs.joined), 0))


def _continuous(mine: Any, world: Any, rows: Longs) -> Longs:
    steps = mine.gpus.decode_steps[world.seen.requests.gpu[rows]]
    runs = world.jobs.state[rows] == State.RUNNING
    return np.where(runs, 1 + steps - mine.jobs.joined_step[rows], 0)


def listed(workload: Workload, engine: Any, **given: Any) -> tuple[Outcome, Outcome, Streams]:
    """A run whose tokens were listed, the same one without anybody looking, and the list."""
    streams = Streams(workload, engine, given.get("kinds") or [(given["gpus"], None)])
    watched = simulate(workload, engine=streams.engine, lengths=Max(), on_event=streams.look, **given)
    return watched, simulate(workload, engine=engine, lengths=Max(), **given), streams


def check(made: Outcome, gaps: Floats, slack: float) -> None:
    """The histogram is that of the list; `slack`: by which share of itself a gap may be beyond an edge."""
    assert made.gaps_counts.sum() == len(gaps)
    below = np.concatenate([[0], np.cumsum(made.gaps_counts.sum(axis=0))[:-1]])
    ordered, at = np.sort(gaps), edges()[:-1]
    least = np.searchsorted(ordered, at * (1 - slack), side="left")
    most = np.searchsorted(ordered, at * (1 + slack), side="left")
    assert (least <= below).all()
    assert (below <= most).all()
    np.testing.assert_allclose(made.gaps_max_s.max(initial=0.0), gaps.max(initial=0.0), rtol=slack)
