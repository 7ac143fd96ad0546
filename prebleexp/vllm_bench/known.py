"""How near a measured mean and a simulated one can be expected to be: the known error of the cost model is the bar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from prebleexp.hardware import uncertain
from prebleexp.hardware.parameters import Support
from prebleexp.intervals import mean_interval

UNKNOWN_ERROR = 0.05
"""by which two means may differ in any case, as a share: no bar is stricter, and no less needs a cause"""
FEW = 10
"""times of what was measured, beyond which no digits after the point are said"""
OWN = "of this very combination"
OTHERS = {
    "unseen model": "of other models on this GPU, each left out, as this one was not measured",
    "steps measured": "of whole steps, as no serving engine was measured",
}
"""of which measurements errors are that are not of this very combination, by their level"""


@dataclass(frozen=True)
class Known:
    """What nine in ten measurements were within, as shares; None: nothing says."""

    ttft: float | None = None
    tpot: float | None = None
    is_own: bool = True
    """whether these were measured of the very combination: those of others are wide. They are the bar all the same, as
    nothing is known better, but a cause is looked for within them"""
    of: str = OWN
    """what was measured, in words"""

    @classmethod
    def of_support(cls, support: Support | None) -> Known:
        if support is None:
            return cls()
        if uncertain.is_of_others(support):
            return cls(None, uncertain.within(support), False, uncertain.OF_OTHERS)
        ttft, tpot = (None if math.isnan(one) else one for one in (support.ttft_p90, support.p90))
        is_own = support.level in ("measured", "ladder measured")
        return cls(ttft, tpot, is_own, OWN if is_own else OTHERS.get(support.level, support.level))


class Judged(NamedTuple):
    """One mean on both sides, in ms."""

    name: str
    """TTFT or TPOT"""
    measured: float
    simulated: float
    """over all seeds"""
    error: float | None
    """the cost model's, as of `Known`"""
    is_own: bool = True
    half: float | None = None
    """half-width of the ratio's 95 % interval over seeds; None: there is none"""

    @property
    def ratio(self) -> float:
        """Simulated to measured."""
        return self.simulated / self.measured if self.measured > 0 else 1.0

    @property
    def bar(self) -> float | None:
        """By how much both may differ, as a share; None: nothing says."""
        return None if self.error is None else max(self.error, UNKNOWN_ERROR)

    @property
    def agrees(self) -> bool | None:
        """Whether both are within the bar; None where seeds do not tell, or there is no bar."""
        if self.bar is None or abs(abs(self.ratio - 1) - self.bar) <= (self.half or 0.0):
            return None
        return abs(self.ratio - 1) < self.bar

    @property
    def needs_cause(self) -> bool:
        """Whether they differ by more than the known error of this very combination, or than 5 %."""
        own = self.bar if self.is_own else None
        return abs(self.ratio - 1) > (own or UNKNOWN_ERROR)

    def __str__(self) -> str:
        digits = 2 if self.ratio < FEW else 0
        spread = "" if self.half is None else f" ± {self.half:.{digits}f}"
        ratio = f"mean {self.name} is {self.ratio:.{digits}f}{spread} of what was measured"
        if self.bar is None:
            return f"{ratio}, and nothing says how well it is known here"
        how = {True: "within", False: "beyond", None: "which may be within or beyond"}[self.agrees]
        return f"{ratio}, {how} {self.bar * 100:.1f} %"


def judged(means: Sequence[tuple[str, float, Sequence[float]]], known: Known) -> list[Judged]:
    """Of each mean its name, TTFT or TPOT, what was measured, and what is simulated, one a seed; in ms."""
    found = []
    for name, measured, simulated in means:
        mean, half = mean_interval(simulated)
        of_ratio = None if half is None or measured <= 0 else half / measured
        error = known.ttft if name == "TTFT" else known.tpot
        found.append(Judged(name, measured, mean, error, known.is_own, of_ratio))
    return found
