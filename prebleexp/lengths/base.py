"""What a policy is told about a request's output length. The simulated GPUs never see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from prebleexp.sim.types import Floats, Ints, Workload
from prebleexp.sources import Part


@dataclass(frozen=True)
class Lengths(Part):
    """Subclass it and name the class in conf/lengths/<name>.yaml. What it tells is `request.expected_output`."""

    draws: ClassVar[bool] = True
    """false: what it tells does not depend on the seed"""

    @property
    def window_s(self) -> float:
        """Seconds over which the router averages the outputs that finished, to tell that mean; 0: it does not."""
        return 0.0

    @property
    def per_prefix(self) -> bool:
        """Whether each prefix group has a mean of its own."""
        return False

    def check(self, predictors: Sequence[str]) -> None:
        """Raises InvalidInput if it needs predictions that a workload, which has those of `predictors`, lacks."""

    def expected(self, workload: Workload, seed: int) -> Floats | None:
        """(n,) tokens told of each request; None: nothing but max_new_tokens is known from the start."""
        return None

    def refined(self, workload: Workload, seed: int) -> tuple[Ints, Floats] | None:
        """(n,) each request's class, and (classes, tokens) the output tokens that one of a class has still to come when
        it has produced so many (the last column: so many or more); None: nobody looks while a request is served."""
        return None


def actual(workload: Workload) -> Floats:
    """(n,) tokens that each request will generate."""
    return workload.output_tokens.clip(max=workload.max_new_tokens).astype(float)
