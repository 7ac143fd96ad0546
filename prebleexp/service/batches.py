"""How well one stream alone says which share of its requests are kept: an interval over contiguous batches of them.

Requests in a row do well or badly together, so their number says little; batches of them, long against that, are nearly
independent. Misses are counted batch by batch. Their number varies as the batches' counts do, widened by what is left
of the correlation of neighbours (as in N-Skart: Tafazzoli, Steiger and Wilson, 2011) and by Student's t for a variance
of so few. So is the difference between two runs of one stream, whose batches are pairs. A count of rare misses that
come in clusters is skewed, so its ends are quantiles of a gamma distribution of that mean and variance (Fay and Feuer,
"Confidence intervals for directly standardized rates", 1997), which for independent misses is the exact interval of a
Poisson count. Of a stream without misses the lower end is that of a binomial share (Clopper and Pearson, 1934), which
is nearer to all where requests are few.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prebleexp.intervals import CONFIDENCE, t_quantile

BATCHES = 20
LEAST = 10
"""requests of a batch: of fewer requests there are fewer batches, …"""
FEWEST = 5
"""… and of no five batches there is no interval"""
WORST = 2
"""batches with the most misses: of a stream without busy stretches they have little more than a tenth of them"""
Z = 1.959964
"""the normal quantile of 95 %"""


class Between(NamedTuple):
    """The 95 % interval of a share from batches of one stream, and where its misses are."""

    low: float
    high: float
    missed: int
    """batches in which one or more missed"""
    first: float
    """of all misses the share in the first batch"""
    worst: float
    """likewise, in the two batches with the most"""


class Stream(NamedTuple):
    """Requests of a run, in an order that other runs of the same stream have, too."""

    due_s: npt.NDArray[np.float64]
    """(n,) when each was due; NaN where it does not count"""
    kept: npt.NDArray[np.bool_]
    """(n,) whether it kept what was promised"""


def count(requests: int) -> int:
    """Of batches; 0 where there are too few requests."""
    found = min(BATCHES, requests // LEAST)
    return found if found >= FEWEST else 0


def surely(requests: int) -> float:
    """The lower end of the interval of a share, if none of so many requests misses."""
    return math.exp(math.log((1 - CONFIDENCE) / 2) / requests)


def fewest_sure(share: float) -> int:
    """Requests of which none must miss, at least, for such a share to be sure."""
    return math.ceil(math.log((1 - CONFIDENCE) / 2) / math.log(share))


def between(kept: npt.NDArray[np.bool_]) -> Between | None:
    """The ends of the 95 % interval of the share of True, of requests in their order; None for too few of them. That
    the stream is stationary it has to be told: a batch like none of the others shows, a day like none of the others
    does not."""
    n, batches = len(kept), count(len(kept))
    if not batches:
        return None
    misses = np.array([float((~one).sum()) for one in np.array_split(kept, batches)])
    total, apart = float(misses.sum()), misses - misses.mean()
    variance = max(_variance(apart), total * (1 - total / n), 1e-9) * (t_quantile(batches - 1) / Z) ** 2
    more = max(1.0, float(misses.max()))  # one more cluster, as large as the largest
    fewest = variance / total * _gamma(total * total / variance, -Z) if total else 0.0
    shape = (total + more) ** 2 / (variance + more * more)
    most = (total + more) / shape * _gamma(shape, Z)
    first, worst = (float(of.sum()) / total if total else 0.0 for of in (misses[:1], np.sort(misses)[-WORST:]))
    low = 1 - min(1.0, most / n) if total else surely(n)
    return Between(low, 1 - fewest / n, int((misses > 0).sum()), first, worst)


def half_width(one: Stream, other: Stream) -> float | None:
    """Of the 95 % interval of the difference between two runs' shares, by batches of the requests that both had: what
    befell both, as a burst, is in neither's favour. None where these are not the same, or too few.

    Each batch says by how much its requests pull the difference from its mean. That is less than nothing but chance
    only if requests that fell out differently were independent, so the variance is at least theirs (McNemar, 1947).
    """
    if len(one.kept) != len(other.kept):
        return None
    counted = np.flatnonzero(~(np.isnan(one.due_s) & np.isnan(other.due_s)))
    first_s = np.fmin(one.due_s, other.due_s)[counted]
    batches = count(len(counted))
    if not batches:
        return None
    apart = (_pulls(other) - _pulls(one))[counted[np.argsort(first_s, kind="stable")]]
    sums = np.array([float(batch.sum()) for batch in np.array_split(apart, batches)])
    variance = max(_variance(sums - sums.mean()), float((apart * apart).sum()))
    return t_quantile(batches - 1) * math.sqrt(variance)


def _pulls(of: Stream) -> npt.NDArray[np.float64]:
    """By how much each request pulls the share of those that count away from what it is without it, (n,)."""
    counts = ~np.isnan(of.due_s)
    share = float(of.kept[counts].mean())
    return np.where(counts, of.kept - share, 0.0) / int(counts.sum())


def _variance(apart: npt.NDArray[np.float64]) -> float:
    """Of the sum over batches, by how far each is from their mean, and by how alike neighbours are."""
    batches, squares = len(apart), float((apart * apart).sum())
    neighbours = max(0.0, float((apart[1:] * apart[:-1]).sum()) / squares) if squares else 0.0
    return batches * squares / (batches - 1) * (1 + neighbours) / (1 - neighbours)


def _gamma(shape: float, z: float) -> float:
    """The quantile of a gamma distribution of scale 1, by that of the normal one (Wilson and Hilferty, 1931)."""
    return shape * max(0.0, 1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))) ** 3
