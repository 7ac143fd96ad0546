"""How late requests were sent: whether what was measured is of the load that was asked for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prebleexp.live.measuring.sent import Table

NO_MEASUREMENT = "this is no measurement"
"""how a sentence begins that makes all others doubtful"""
LEAST_S, SHARE = 5e-3, 0.01
"""the p99 of lateness may be so many seconds, or this share of the median time to first token"""


class Lateness(NamedTuple):
    """Seconds from when requests were due until they were sent; 0 of none."""

    p50_s: float
    p99_s: float
    max_s: float
    valid_p99_s: float
    """what the second may be"""
    valid_max_s: float
    """what the third may be"""

    @property
    def is_late(self) -> bool:
        """Whether the client did not keep its schedule."""
        return self.p99_s > self.valid_p99_s or self.max_s > self.valid_max_s

    @property
    def words(self) -> str:
        p50, p99, most = (f"{one * 1e3:.2f}" for one in (self.p50_s, self.p99_s, self.max_s))
        return f"requests were sent {p50} ms late (median), {p99} ms (p99), {most} ms at most"


def lateness(sent: Table, limit_s: float) -> Lateness:
    """`limit_s`: how late a single request may be."""
    late_s = sent.late_s[~np.isnan(sent.late_s)]
    ttft_s = (sent.first_s - sent.sent_s)[~np.isnan(sent.first_s)]
    valid_s = max(LEAST_S, SHARE * float(np.median(ttft_s)) if len(ttft_s) else 0.0)
    if not len(late_s):
        return Lateness(0.0, 0.0, 0.0, valid_s, limit_s)
    p50_s, p99_s = np.percentile(late_s, (50, 99)).tolist()
    return Lateness(p50_s, p99_s, float(late_s.max()), valid_s, limit_s)
