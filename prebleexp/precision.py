"""How many replications are enough: until the mean is known to a given share of itself.

Looking after every batch and stopping when the usual 95 % interval is narrow enough would be too sure of itself: among
many looks, one that is narrow by chance comes early. So the looks are few (each doubles the replications) and fixed in
advance, and the 5 % that an interval may miss are shared equally among them: by the union bound all intervals together
hold the mean with 95 % (exactly so for normal means), and thus also that at which we stop, whichever it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from prebleexp.intervals import CONFIDENCE, t_quantile

FIRST_LOOK = 5


@dataclass(frozen=True)
class Precision:
    """What is asked of a mean."""

    ci: float
    """the half-width of its interval, as a share of it"""
    metric: str
    most: int
    """replications, however wide the interval is then"""

    @property
    def looks(self) -> tuple[int, ...]:
        """Numbers of replications after which it is looked whether they are enough, doubling up to the most."""
        found = [min(FIRST_LOOK, self.most)]
        while found[-1] < self.most:
            found.append(min(2 * found[-1], self.most))
        return tuple(found)

    def half_width(self, values: Sequence[float]) -> float:
        """Of the interval at one look, in the values' unit; infinite for a single value."""
        n = len(values)
        if n < 2:
            return math.inf
        mean = math.fsum(values) / n
        variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
        return t_quantile(n - 1, 1 - (1 - CONFIDENCE) / len(self.looks)) * math.sqrt(variance / n)

    def reached(self, values: Sequence[float]) -> bool:
        """Whether the interval's half-width is at most `ci` times the mean. One replication is never enough."""
        return len(values) > 1 and self.half_width(values) <= self.ci * abs(math.fsum(values) / len(values))
