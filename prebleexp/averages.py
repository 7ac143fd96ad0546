"""Mean and percentiles of what requests have, and of those alone that have it."""

from __future__ import annotations

import numpy as np

from prebleexp.sim.arrays import Floats

STATISTICS = {"mean": "Mean", "p50": "Median", "p90": "90th percentile", "p99": "99th percentile"}


def statistics(column: Floats) -> tuple[float | None, ...]:
    """Mean and percentiles (linear interpolation, rounded as np.percentile does) of what is not NaN, from one sort."""
    values = np.sort(column)  # NaN last
    values = values[: len(values) - int(np.isnan(values).sum())]
    if not len(values):
        return (None,) * len(STATISTICS)
    positions = np.array([0.5, 0.9, 0.99]) * (len(values) - 1)
    low = positions.astype(np.int64)
    below, above = values[low], values[np.minimum(low + 1, len(values) - 1)]
    share, step = positions - low, above - below
    percentiles = np.where(share < 0.5, below + step * share, above - step * (1 - share))
    return float(values.mean()), *map(float, percentiles)
