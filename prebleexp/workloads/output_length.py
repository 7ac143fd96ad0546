"""How many tokens the model generates: any discrete distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prebleexp.checks import is_integer, is_number, require
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Ints

LONGEST = 2**31 - 1


@dataclass(frozen=True)
class OutputLength:
    """`lengths` (tokens) with `probabilities`. Raises InvalidInput if they are not a distribution."""

    lengths: tuple[int, ...]
    """tokens"""
    probabilities: tuple[float, ...]
    """one for each length; they sum to 1"""

    def __post_init__(self) -> None:
        lengths, probabilities = self.lengths, self.probabilities
        for name, values in (("lengths", lengths), ("probabilities", probabilities)):
            valid = isinstance(values, Sequence) and not isinstance(values, str) and len(values) > 0
            require(valid, f"output_length.{name}", values, "a list of numbers")
        for length in lengths:
            if not is_integer(length, 1, LONGEST):
                raise InvalidInput(
                    f"output_length.lengths: {length} is not valid; it must be a whole number from 1 to {LONGEST}"
                )
        for p in probabilities:
            if not (is_number(p) and 0 <= p <= 1):
                raise InvalidInput(f"output_length.probabilities: {p} is not valid; it must be a number from 0 to 1")
        if len(lengths) != len(probabilities):
            raise InvalidInput(
                f"output_length has {len(lengths)} lengths and {len(probabilities)} probabilities; "
                "there must be one for each"
            )
        total = math.fsum(probabilities)
        if abs(total - 1) > 1e-9:
            raise InvalidInput(f"output_length.probabilities sum to {total:.10g}; they must sum to 1")
        object.__setattr__(self, "lengths", tuple(lengths))
        object.__setattr__(self, "probabilities", tuple(map(float, probabilities)))

    @property
    def mean(self) -> float:
        """The mean of the distribution, in tokens."""
        return math.fsum(p * length for length, p in zip(self.lengths, self.probabilities, strict=True))

    @property
    def variance(self) -> float:
        """The variance of the distribution, in tokens²."""
        mean = self.mean
        return math.fsum(p * (length - mean) ** 2 for length, p in zip(self.lengths, self.probabilities, strict=True))

    def draw(self, count: int, rng: np.random.Generator) -> Ints:
        """(count,) lengths from one uniform number each.

        So distributions drawn with the same state of the generator rise and fall together.
        """
        order = np.argsort(self.lengths, kind="stable")
        steps = np.cumsum(np.array(self.probabilities)[order])
        index = np.searchsorted(steps, rng.random(count) * steps[-1], side="right")
        drawn: Ints = np.array(self.lengths, np.int32)[order][np.minimum(index, len(order) - 1)]
        return drawn
