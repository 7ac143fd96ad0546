"""What replications say about a mean: Student-t confidence intervals, without SciPy.

The terminal prints intervals too and must start at once, and an integer number of degrees of freedom needs no special
function: Student's distribution is then a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

CONFIDENCE = 0.95
DRAWS_COSTS = "hardware.uncertainty"
"""the column that says that each seed drew what step times are, of which one is true"""


def mean_interval(
    values: Sequence[float], confidence: float = CONFIDENCE, *, of_one: bool = False
) -> tuple[float, float | None]:
    """Mean of independent replications and the half-width of its confidence interval, 95 % unless said, in the values'
    unit; `of_one`: of the interval in which one more replication would be, for what each draws and only one is true.

    The half-width is None where one value says nothing about the spread. Raises ValueError if there are no values.
    """
    n = len(values)
    if n == 0:
        raise ValueError("an interval needs at least one value")
    mean = math.fsum(values) / n
    if n == 1:
        return mean, None
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    return mean, t_quantile(n - 1, confidence) * math.sqrt(variance * ((1 + 1 / n) if of_one else 1 / n))


def relative_difference(
    ones: Mapping[Any, float], others: Mapping[Any, float], *, of_one: bool = False
) -> tuple[float, float | None] | None:
    """By how much the mean of `ones` is above that of `others` as a share of the latter, over the seeds that both have,
    and the half-width of the interval of the paired differences (see `mean_interval`).

    None where they have no seed in common, or nothing to compare with.
    """
    seeds = [seed for seed in ones if seed in others]
    base = math.fsum(others[seed] for seed in seeds) / len(seeds) if seeds else 0.0
    if not base:
        return None
    mean, half = mean_interval([ones[seed] - others[seed] for seed in seeds], of_one=of_one)
    return mean / base, None if half is None else abs(half / base)


@cache
def t_quantile(df: int, confidence: float = CONFIDENCE) -> float:
    """The t for which a Student variable with `df` degrees of freedom lies in [-t, t] with this probability."""
    low, high = 0.0, math.pi / 2
    # t = sqrt(df) tan(angle) maps all t to a bounded angle, where plain bisection reaches the last bit
    while low < (middle := (low + high) / 2) < high:
        if _central_probability(middle, df) < confidence:
            low = middle
        else:
            high = middle
    return math.sqrt(df) * math.tan(middle)


def _central_probability(angle: float, df: int) -> float:
    """P(|T| <= sqrt(df) tan(angle)) for an integer df >= 1."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = df % 2
    term = cosine if odd else 1.0
    total = term if df > 1 else 0.0
    for k in range(2 + odd, df, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
