"""The spread of the requests under way, at which AIBrix's prefix routers look first."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.policies.bits import fill
from prebleexp.policies.candidates import nth
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import GPUS, View


@compiled
def spread(requests: Any, view: View) -> tuple[int, int, float, float]:
    """Least, most, mean and standard deviation (n − 1) of the candidates' requests, which are (GPUs,) of all."""
    candidates, total, squares = view.candidates, np.int64(0), np.int64(0)
    least = most = requests[candidates[0]]
    count = len(candidates)
    for i in range(count):
        one = requests[nth(candidates, len(requests), i)]
        least, most = min(least, one), max(most, one)
        total += np.int64(one)
        squares += np.int64(one) * one
    view.work[GPUS] += count
    variance = (count * squares - total * total) / (count * (count - 1)) if count > 1 else 0.0
    return int(least), int(most), total / count, np.sqrt(variance)


@compiled
def choose(requests: Any, view: View, least: int, all_of_them: bool, into: Any) -> None:
    """Write to `into`, 64 a word, the candidates that may match: all, or those with the least requests."""
    if all_of_them:
        fill(into, view.candidates, len(requests))
        return
    into[:] = 0
    for gpu in view.candidates:
        if requests[gpu] == least:
            into[gpu >> 6] |= np.int64(1) << np.int64(gpu & 63)
