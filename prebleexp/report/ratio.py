"""A ratio of latencies over the same requests, as what it is averaged as: its logarithm."""

from __future__ import annotations

import math
from dataclasses import dataclass

from prebleexp.report.wording import signed_percent


@dataclass(frozen=True)
class Ratio:
    """The logarithm of a ratio, and the half-width of its interval; None: of one seed there is none."""

    mean: float
    half: float | None

    @property
    def is_sure(self) -> bool:
        return self.half is not None and abs(self.mean) > self.half

    @property
    def share(self) -> str:
        """The ratio as a difference in per cent, with its half-width: "−12 ± 1 %"."""
        ratio = math.exp(self.mean)
        return signed_percent(ratio - 1, None if self.half is None else ratio * self.half)
