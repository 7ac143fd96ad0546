"""What is kept at a size, as a function that is known, and searches on it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from prebleexp.planning.answer import Answer
from prebleexp.planning.load import Search
from prebleexp.planning.trials import Sample

Curve = Callable[[float, int], float]
"""what is kept at a size by a seed"""


def solved(search: Search, curve: Curve, trend: float = 0.0) -> Answer:
    asked = next(search)
    while True:
        try:
            asked = search.send([Sample(curve(one.size, one.seed), one.requests, trend) for one in asked])
        except StopIteration as over:
            answer: Answer = over.value
            return answer


def falling(capacity: float, spread: float = 0.0, steep: float = 0.3) -> Curve:
    """Straight in the logarithm, and at 0.9 at the capacity; seeds differ by a normal `spread`."""

    def curve(size: float, seed: int) -> float:
        shift = spread * float(np.random.default_rng(seed).normal()) if spread else 0.0
        return min(1.0, max(0.0, 0.9 - steep * math.log(size / capacity) + shift))

    return curve
