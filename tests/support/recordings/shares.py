"""Of drawn decisions, what each worker got in a recording against what it gets here."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class Shares:
    """Of the workers."""

    def __init__(self, gpus: int) -> None:
        self.excess, self.variance = np.zeros(gpus), np.zeros(gpus)

    def add(self, tried: npt.NDArray[np.int64], gpu: int) -> None:
        share = np.bincount(tried, minlength=len(self.excess)) / len(tried)
        self.excess += (np.arange(len(share)) == gpu) - share
        self.variance += share * (1 - share) * (1 + 1 / len(tried))

    def most_unlikely(self) -> float:
        there = self.variance > 0
        return float(np.max(np.abs(self.excess[there]) / np.sqrt(self.variance[there]), initial=0.0))
