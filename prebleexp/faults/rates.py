"""GPUs that fail and are repaired at random."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from prebleexp.checks import is_integer, is_number, positive, require
from prebleexp.faults.base import Event, Faults

HOUR_S = 3600.0


@dataclass(frozen=True)
class Rates(Faults):
    """Each GPU is up for an exponential time of mean `mtbf_h`, then down until a repair of mean `mttr_h` is over, and
    so on, by the run's seed: the k-th life and repair of a GPU are the same for every policy. A replica of
    several GPUs is lost with the first of them, and repaired as one. Where there are fewer
    crews than GPUs that are down, those that went down first are repaired first. After duration_s no GPU goes down.

    Llama 3's training had an unexpected interruption every 50,677 GPU-hours, of which GPUs caused 58.7 % (Grattafiori
    et al. 2024, table 5): an upper bound for serving. Raises InvalidInput for times that are not above 0, and if there
    is no crew.
    """

    mtbf_h: float | None = 50677.0
    """mean hours of a GPU between failures; null: it never fails"""
    mttr_h: float = 1.0
    """mean hours of a repair"""
    crews: int | None = None
    """that repair a GPU each at a time; null: as many as it takes"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mtbf_h == math.inf:
            object.__setattr__(self, "mtbf_h", None)
        if self.mtbf_h is not None:
            valid = is_number(self.mtbf_h) and self.mtbf_h > 0
            require(valid, "faults.mtbf_h", self.mtbf_h, "a number of hours > 0, or null: never")
        positive("faults.mttr_h", self.mttr_h, "a number of hours > 0")
        if self.crews is not None:
            valid = is_integer(self.crews, 1)
            require(valid, "faults.crews", self.crews, "an integer >= 1, or null: as many as it takes")

    @property
    def changes_nothing(self) -> bool:
        return self.mtbf_h is None

    def events(self, gpus: int, duration_s: float, seed: int) -> Iterator[Event]:
        if self.mtbf_h is None:
            return
        rngs = [np.random.default_rng([seed, g]) for g in range(gpus)]
        free_s = [0.0] * (self.crews or gpus)  # when each crew is done: of as many as there are GPUs one always is
        to_come = [(self._life_s(g, rng), g, "down") for g, rng in enumerate(rngs)]
        heapq.heapify(to_come)
        while to_come:
            now, g, event = heapq.heappop(to_come)
            if event == "up":
                yield Event(now, g, event)
                heapq.heappush(to_come, (now + self._life_s(g, rngs[g]), g, "down"))
            elif now < duration_s:
                yield Event(now, g, event)
                up_s = max(now, heapq.heappop(free_s)) + float(rngs[g].exponential(self.mttr_h * HOUR_S))
                heapq.heappush(free_s, up_s)
                heapq.heappush(to_come, (up_s, g, "up"))

    def of_replicas(self, gpus: Sequence[int]) -> Rates:
        return self if max(gpus, default=1) == 1 else OfReplicas(**vars(self), gpus=tuple(gpus))

    def _life_s(self, g: int, rng: np.random.Generator) -> float:
        assert self.mtbf_h is not None
        return float(rng.exponential(self.mtbf_h * HOUR_S))


@dataclass(frozen=True)
class OfReplicas(Rates):
    """The same where a replica takes several GPUs: it is down when the first of them is."""

    gpus: tuple[int, ...] = ()
    """of each replica"""

    def _life_s(self, g: int, rng: np.random.Generator) -> float:
        return super()._life_s(g, rng) / self.gpus[g]
