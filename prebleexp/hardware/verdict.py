"""Whether a fit is better than what ships, by more than noise: judged on what it was not fitted to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from prebleexp.hardware.equations import Array
from prebleexp.hardware.fitting import FREEDOM

SURE = math.log(20)
"""of the score: by so much what was left out is more likely by the fit than by what ships, 20 times"""


def score(before: Array, left_out: Array, share: Any = 1.0) -> float:
    """By how much greater the logarithm of the likelihood is of what was left out, by fits to the rest, than by what
    ships. `before` and `left_out` are errors (logarithms of simulated / measured) over their scatter, which has
    Student's t; `share` is how much each counts."""
    losses = [share * (FREEDOM + 1) / 2 * np.log1p(one**2 / FREEDOM) for one in (before, left_out)]
    return float(losses[0].sum() - losses[1].sum())


def said(score: float) -> str:
    """What follows from it, in a sentence."""
    if score >= SURE:
        return f"the fit is better than what ships by more than noise (log score {score:+.1f} on what was left out)"
    if score > -SURE:
        return f"the fit is no better than what ships by more than noise (log score {score:+.1f}; {SURE:.1f} is needed)"
    return f"the fit is worse than what ships (log score {score:+.1f} on what was left out)"
