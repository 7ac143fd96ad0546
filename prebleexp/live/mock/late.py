"""How late answers are written: beside when they were due, in the clock's real seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable

LEAST_S, GROWTH, BINS = 1e-6, 1.1, 220
"""from a microsecond to 20 minutes, each bin a tenth wider than the one before"""
SAID_S, MANY, WARNED_S = 10.0, 100, 0.005
"""it is looked so often, at least at so many, whether the p99 is beyond this"""


class Late:
    """A histogram of all, and one of what was written since somebody looked."""

    def __init__(self) -> None:
        self.counts, self._since = [0] * BINS, [0] * BINS
        self.most_s, self.beyond = 0.0, 0

    def add(self, seconds: float) -> None:
        at = 0 if seconds <= LEAST_S else min(BINS - 1, 1 + int(math.log(seconds / LEAST_S) / math.log(GROWTH)))
        self.counts[at] += 1
        self._since[at] += 1
        self.most_s = max(self.most_s, seconds)
        self.beyond += seconds > WARNED_S

    def quantile(self, share: float) -> float:
        """Seconds, to a tenth; NaN if nothing was written."""
        return _quantile(self.counts, share)

    def warning(self) -> str | None:
        """Of what was written since the last look, if that was late."""
        since, self._since = self._since, [0] * BINS
        p99_s = _quantile(since, 0.99)
        if sum(since) < MANY or p99_s <= WARNED_S:
            return None
        return (
            f"this machine is too slow for the load: of the last {sum(since):,} tokens 1 % were written more than "
            f"{1e3 * p99_s:.1f} ms late. What clients measure is not what was simulated; use fewer GPUs or tokens, or "
            "a lower speed"
        )

    def lines(self, name: str) -> Iterable[str]:
        """The lines of a histogram as Prometheus reads them."""
        yield f"# HELP {name} Histogram of how late tokens are written, beside when they were due, in real seconds."
        yield f"# TYPE {name} histogram"
        below = 0
        for at in range(0, BINS):
            below += self.counts[at]
            if at % 10 == 0:
                yield f'{name}_bucket{{le="{LEAST_S * GROWTH**at:.6g}"}} {below}'
        yield f'{name}_bucket{{le="+Inf"}} {below}'
        yield f"{name}_count {below}"

    def counter(self, name: str) -> Iterable[str]:
        """Likewise of a counter."""
        yield f"# HELP {name} Tokens that were written more than {WARNED_S * 1e3:g} ms late."
        yield f"# TYPE {name} counter"
        yield f"{name} {self.beyond}"


def _quantile(counts: list[int], share: float) -> float:
    wanted, below = share * sum(counts), 0
    for at, count in enumerate(counts):
        below += count
        if count and below >= wanted:
            return LEAST_S * GROWTH**at
    return math.nan
