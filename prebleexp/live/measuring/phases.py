"""What a request's time is made of, measured and simulated: network and frontend, queue, prefill, decode.

Measured, the engines' own metrics say what they keep a request for, and what is left of its latency is everything
before and behind them. Simulated, requests are looked at after each event.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prebleexp.experiment.runs import Run
from prebleexp.sim.types import Floats, State

REST, OF_ENGINES = "network, frontend, router", ("queue", "prefill", "decode")
NAMES = (REST, *OF_ENGINES)
"""as vLLM divides a request's time: until it is in an engine's queue, which is behind its frontend, until it is first
scheduled, until its first token, until its last"""


class Phase(NamedTuple):
    """Of a request, on average; they add up to the mean latency."""

    name: str
    measured_s: float | None
    """None: engines do not tell"""
    simulated_s: float


class Watched:
    """An observer of `simulate` (its `on_event`): when requests join a GPU's queue, and when it first schedules them.
    Their hits are known then; where an engine schedules ahead, their step begins later."""

    def __init__(self, requests: int) -> None:
        self.queued_s: Floats = np.full(requests, np.nan)
        self.scheduled_s: Floats = np.full(requests, np.nan)
        self._left = np.arange(requests)
        """rows that were not taken up so far"""

    def __call__(self, world: Any) -> None:
        rows, jobs, now = self._left, world.jobs, float(world.control.now)
        queued = (jobs.reached[rows] != 0) & np.isnan(self.queued_s[rows])
        self.queued_s[rows[queued]] = now
        scheduled = jobs.hit_tokens[rows] + jobs.prefilled_tokens[rows] > 0
        if scheduled.any():
            self.scheduled_s[rows[scheduled]] = now
            self._left = rows[~scheduled]


def phases(
    means_s: Mapping[str, float], kept: Mapping[str, npt.NDArray[Any]], made: Run, watched: Watched
) -> list[Phase]:
    """`means_s`: of engines, by `OF_ENGINES`; `kept`: a measurement's columns, with latencies that count as the
    simulation's do. There are none where engines tell nothing, or nothing has finished."""
    of = made.outcome
    ok = (of.state == State.FINISHED) & ~np.isnan(watched.queued_s) & ~np.isnan(watched.scheduled_s)
    finished = kept["state"] == State.FINISHED
    measured = [means_s.get(name) for name in OF_ENGINES]
    known = [one for one in measured if one is not None]
    if not known or not ok.any() or not finished.any():
        return []
    rest_s = float(kept["latency_s"][finished].mean()) - sum(known) if len(known) == len(measured) else None
    ends = of.due_s, watched.queued_s, watched.scheduled_s, of.due_s + of.ttft_s, of.due_s + of.latency_s
    simulated = [float((end - begin)[ok].mean()) for begin, end in pairwise(ends)]
    return [Phase(*one) for one in zip(NAMES, [rest_s, *measured], simulated, strict=True)]
