"""Whether measured and simulated times are as near to one another as the cost model is known to be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from prebleexp.hardware.parameters import Support

UNKNOWN_ERROR = 0.05
"""by which both may differ, as a share, where nothing says how well the cost model is known"""


@dataclass(frozen=True)
class Known:
    """What nine in ten measurements were within, as shares; None: nothing says."""

    ttft: float | None = None
    tpot: float | None = None
    is_own: bool = True
    """whether these were measured of the very combination: those of others are wide, and excuse nothing"""

    @classmethod
    def of(cls, support: Support | None) -> Known:
        if support is None:
            return cls()
        ttft, tpot = (None if math.isnan(one) else one for one in (support.ttft_p90, support.p90))
        return cls(ttft, tpot, support.level in ("measured", "ladder measured"))


class Judged(NamedTuple):
    """One time on both sides, in ms."""

    name: str
    """TTFT or TPOT"""
    measured: float
    simulated: float
    error: float | None
    """the cost model's, as of `Known`"""
    is_own: bool = True

    @property
    def ratio(self) -> float:
        """Simulated to measured."""
        return self.simulated / self.measured if self.measured > 0 else 1.0

    @property
    def agrees(self) -> bool:
        """Whether both are as near as the cost model of this combination is known to be."""
        known = self.error or 0.0 if self.is_own else 0.0
        return abs(self.ratio - 1) <= max(known, UNKNOWN_ERROR)

    def __str__(self) -> str:
        within = "within" if self.agrees else "beyond"
        about = f"{within} {UNKNOWN_ERROR * 100:.0f} %"
        if self.error and self.is_own:
            about = f"{within} the known error (p90 {self.error * 100:.1f} %)"
        elif self.error:
            about += f" (p90 of other models {self.error * 100:.1f} %)"
        return f"{self.name} is {self.ratio:.2f} of what was measured, {about}"


def said(judged: Sequence[Judged]) -> str:
    """All of them in a part of a sentence."""
    text = " and ".join(map(str, judged))
    return text if any(one.error for one in judged) else f"{text}; nothing says how well step times are known here"
