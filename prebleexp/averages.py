"""Mean and percentiles of a column of requests."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

STATISTICS = {
    "mean": "Mean",
    "p50": "Median",
    "p90": "90th percentile",
    "p95": "95th percentile",
    "p99": "99th percentile",
}
CALLED = {"mean": "average", "p50": "median"}
"""the others are called what they are named"""


def statistics(column: npt.NDArray[np.float64]) -> tuple[float | None, ...]:
    """Of what is not NaN, by `STATISTICS`, from one sort: linear interpolation, rounded as np.percentile does."""
    values = np.sort(column)  # NaN last
    values = values[: len(values) - int(np.isnan(values).sum())]
    if not len(values):
        return (None,) * len(STATISTICS)
    positions = np.array([0.5, 0.9, 0.95, 0.99]) * (len(values) - 1)
    low = positions.astype(np.int64)
    below, above = values[low], values[np.minimum(low + 1, len(values) - 1)]
    share, step = positions - low, above - below
    percentiles = np.where(share < 0.5, below + step * share, above - step * (1 - share))
    return float(values.mean()), *map(float, percentiles)
