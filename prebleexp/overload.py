"""Runs in which requests arrive faster than the cluster finishes them, in words: nothing there settles, so latencies
grow with the length of the run.

The rule, on the metric `unfinished_growth`. Ups and downs are no overload, so it is the lesser of two quarters' growth:
a burst is in one of them. A tenth of the arrivals is what stays behind at a load of 1.1 times the capacity. And as
Poisson arrivals fluctuate by their square root, three times that has to be exceeded, over all seeds: a run of few
requests never is overloaded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

LEAST_SHARE = 0.1
DEVIATIONS = 3.0


def share(rows: Sequence[Mapping[str, Any]]) -> float:
    """The share of the arrivals that these runs of one cell cannot keep up with; 0 where they can, or where that cannot
    be told."""
    told = [row for row in rows if row.get("unfinished_growth") is not None]
    if not told:
        return 0.0
    mean = math.fsum(row["unfinished_growth"] for row in told) / len(told)
    late = sum(int(row["n_requests"]) for row in told) / 2
    return mean if mean >= LEAST_SHARE and mean * late >= DEVIATIONS * math.sqrt(late) else 0.0


def sentences(cells: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> list[str]:
    """One, if any of these cells is overloaded. A cell is a name and the runs of its seeds."""
    found = [(much, name) for name, rows in cells if (much := share(rows))]
    if not found:
        return []
    much, name = max(found)
    where, worst = f"by {much:.0%} of the arrivals", ""
    if len(cells) > 1:
        where, worst = f"in {len(found):,} of {len(cells):,} cells", f", at worst {where} ({name})"
    return [f"unfinished requests grow to the end {where}{worst}: overloaded, so latencies grow with duration_s"]
