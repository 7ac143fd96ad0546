"""How good what a policy was told of output lengths is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from prebleexp.sim.types import Floats, Ints


def agreement(told_output: Floats, lengths: Floats | Ints) -> tuple[float | None, float | None]:
    """Mean absolute error, and Spearman's rank correlation, which is 0 where all were told the same; of those that were
    told something (n,), NaN: nothing, and the lengths that came (n,)."""
    heard = ~np.isnan(told_output)
    if not heard.any():
        return None, None
    told, lengths = told_output[heard], lengths[heard]
    error = float(np.abs(told - lengths).mean())
    if told.min() == told.max():
        return error, 0.0
    ranks = [_ranks(side) for side in (told, lengths)]
    spread = float(ranks[0].std() * ranks[1].std())
    covariance = float(((ranks[0] - ranks[0].mean()) * (ranks[1] - ranks[1].mean())).mean())
    return error, covariance / spread if spread else 0.0


def _ranks(values: npt.NDArray[Any]) -> Floats:
    """The mean rank of those that are equal."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[place], np.float64)
