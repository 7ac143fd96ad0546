"""The truth with an error."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from prebleexp.errors import InvalidInput
from prebleexp.lengths.base import Lengths, actual
from prebleexp.sim.types import Floats, Workload

STREAM = 100
"""of random numbers, apart from the workload's"""


@dataclass(frozen=True)
class Noisy(Lengths):
    """The truth times a log-normal error of median 1; at least one token."""

    sigma: float = 0.5
    """standard deviation of the error's logarithm; 0 is the truth"""

    def __post_init__(self) -> None:
        if isinstance(self.sigma, bool) or not isinstance(self.sigma, int | float) or not 0 <= self.sigma < math.inf:
            raise InvalidInput(f"lengths.sigma={self.sigma} is not valid; it must be a finite number >= 0")

    def expected(self, workload: Workload, seed: int) -> Floats:
        errors = np.random.default_rng([seed, STREAM]).standard_normal(len(workload))
        with np.errstate(over="ignore"):
            told = actual(workload) * np.exp(self.sigma * errors)
        return np.asarray(np.clip(told, 1.0, 2.0**31), np.float64)  # of what is told, sums are kept
