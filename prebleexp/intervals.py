"""What replications say about a mean: Student-t confidence intervals, without SciPy.

The terminal prints intervals too and must start at once, and an integer number of degrees of freedom needs no special
function: Student's distribution is then a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

CONFIDENCE = 0.95


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float | None]:
    """Mean of independent replications and the half-width of its confidence interval, 95 % unless said, in the values'
    unit.

    The half-width is None where one value says nothing about the spread. Raises ValueError if there are no values.
    """
    n = len(values)
    if n == 0:
        raise ValueError("an interval needs at least one value")
    mean = math.fsum(values) / n
    if n == 1:
        return mean, None
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    return mean, t_quantile(n - 1, confidence) * math.sqrt(variance / n)


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
