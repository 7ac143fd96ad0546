"""The truth with an error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prebleexp.checks import is_number, require
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
        require(is_number(self.sigma) and self.sigma >= 0, "lengths.sigma", self.sigma, "a finite number >= 0")

    def expected(self, workload: Workload, seed: int) -> Floats:
        errors = np.random.default_rng([seed, STREAM]).standard_normal(len(workload))
        with np.errstate(over="ignore"):
            told = actual(workload) * np.exp(self.sigma * errors)
        return np.asarray(np.clip(told, 1.0, 2.0**31), np.float64)  # of what is told, sums are kept
