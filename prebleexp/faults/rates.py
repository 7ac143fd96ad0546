"""GPUs that fail and are repaired at random."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from prebleexp.checks import is_number, positive, require
from prebleexp.faults.base import Event, Faults

HOUR_S = 3600.0


@dataclass(frozen=True)
class Rates(Faults):
    """Each GPU is up for an exponential time of mean `mtbf_h`, then down for one of mean `mttr_h`, and so on, by the
    run's seed: the k-th life of a GPU is the same for every policy. After duration_s no GPU goes down any more.

    Llama 3's training had an unexpected interruption every 50,677 GPU-hours, of which GPUs caused 58.7 % (Grattafiori
    et al. 2024, table 5): an upper bound for serving. Raises InvalidInput for times that are not above 0.
    """

    mtbf_h: float | None = 50677.0
    """mean hours of a GPU between failures; null: it never fails"""
    mttr_h: float = 1.0
    """mean hours until it is back"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mtbf_h == math.inf:
            object.__setattr__(self, "mtbf_h", None)
        if self.mtbf_h is not None:
            valid = is_number(self.mtbf_h) and self.mtbf_h > 0
            require(valid, "faults.mtbf_h", self.mtbf_h, "a number of hours > 0, or null: never")
        positive("faults.mttr_h", self.mttr_h, "a number of hours > 0")

    @property
    def changes_nothing(self) -> bool:
        return self.mtbf_h is None

    def events(self, gpus: int, duration_s: float, seed: int) -> Iterable[Event]:
        return heapq.merge(*(self._of(g, duration_s, seed) for g in range(gpus)))

    def _of(self, g: int, duration_s: float, seed: int) -> Iterator[Event]:
        """What happens to one GPU."""
        if self.mtbf_h is None:
            return
        rng, now = np.random.default_rng([seed, g]), 0.0
        while True:
            now += float(rng.exponential(self.mtbf_h * HOUR_S))
            if now >= duration_s:
                return
            yield Event(now, g, "down")
            now += float(rng.exponential(self.mttr_h * HOUR_S))
            yield Event(now, g, "up")
