"""A ladder served by the simulator, as it was measured, under other costs of a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from prebleexp.calibration import factors
from prebleexp.calibration.ladder import METRICS, Arm, Play
from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.experiment.runs import Run
from prebleexp.hardware.composed import Composed
from prebleexp.hardware.domain import Domain
from prebleexp.hardware.equations import Array
from prebleexp.sim.types import Workload
from prebleexp.stages import Stage, of_requests, whole


@dataclass
class Simulated:
    """An arm, and its streams of requests: the same ones whatever a step costs, so that differences are of costs."""

    arm: Arm
    seeds: int
    runs: int = 0
    """that were simulated so far"""
    _streams: dict[tuple[int, int], Workload] = field(default_factory=dict)

    @property
    def hardware(self) -> Composed:
        found = self.arm.plays[0].cell.hardware
        assert isinstance(found, Composed)
        return found

    @property
    def seen(self) -> list[tuple[int, str]]:
        """Each that was measured: of which of the arm's stages, and the metric."""
        return [(i, name) for i, rung in enumerate(self.arm.rungs) for name in METRICS if name in rung.seen]

    @property
    def measured(self) -> Array:
        """The measured value of each of `seen`, in its order: (seen,)."""
        rungs = self.arm.rungs
        return np.array([rungs[i].seen[name] for i, name in self.seen])

    def __call__(self, logs: Sequence[float] | Array) -> Array:
        """(seeds, seen), under these logarithms of `factors.FACTORS`. Raises InvalidInput where one was measured, and
        there is none of it."""
        found = np.empty((self.seeds, len(self.seen)))
        for seed in range(self.seeds):
            made = [one for number in range(len(self.arm.plays)) for one in self._stages(number, logs, seed)]
            for column, (i, name) in enumerate(self.seen):
                value = getattr(made[i], name)
                if value is None or not value > 0:
                    raise InvalidInput(
                        f"{self.arm.rungs[i].name}: {name} was measured, and no request that is simulated has one; "
                        "leave it out, or check lengths and rate"
                    )
                found[seed, column] = value
        return found

    def _stages(self, number: int, logs: Sequence[float] | Array, seed: int) -> list[Stage]:
        play = self.arm.plays[number]
        made = runs.requests_columns(self._run(play, number, logs, seed))
        if not play.stages:
            return [whole(made)]
        each = {one.stage: one for one in of_requests(made)}
        return [each[stage] for stage in play.stages]

    def _run(self, play: Play, number: int, logs: Sequence[float] | Array, seed: int) -> Run:
        if (number, seed) not in self._streams:
            self._streams[number, seed] = play.stream(seed)
        self.runs += 1
        hardware: Any = factors.applied(self.hardware, logs)
        return runs.run(replace(play.cell, hardware=hardware, seed=seed), self._streams[number, seed])

    def domain(self, logs: Sequence[float] | Array) -> Domain:
        """The largest steps, prompts and rates of a copy of the model that it had."""
        sizes = np.zeros(3)
        for number, play in enumerate(self.arm.plays):
            metrics = self._run(play, number, logs, 0).metrics
            names = ("peak_running", "peak_context_tokens", "prompt_tokens_max")
            sizes = np.maximum(sizes, [metrics[name] or 0 for name in names])
        running, context, prompt = sizes.astype(int).tolist()
        rates = [rung.rate for rung in self.arm.rungs if math.isfinite(rung.rate)]
        return Domain(running, context, prompt, max(rates, default=0.0) / self.arm.plays[0].cell.replicas)
