"""The spread of the requests under way, at which AIBrix's prefix routers look first."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.policies.candidates import nth
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import GPUS, View


@compiled
def spread(view: View) -> tuple[int, int, float, float]:
    """Least, most, mean and standard deviation (n − 1) of the candidates' requests."""
    least = most = view.sent[view.candidates[0]].outstanding
    count, total, squares = len(view.candidates), 0, 0
    for i in range(count):
        outstanding = view.sent[nth(view.candidates, len(view.sent), i)].outstanding
        least, most = min(least, outstanding), max(most, outstanding)
        total += outstanding
        squares += outstanding * outstanding
    view.work[GPUS] += count
    variance = (count * squares - total * total) / (count * (count - 1)) if count > 1 else 0.0
    return least, most, total / count, np.sqrt(variance)


@compiled
def choose(view: View, least: int, all_of_them: bool, into: Any) -> None:
    """Write to `into`, 64 a word, the candidates that may match: all, or those with the least requests."""
    into[:] = 0
    for gpu in view.candidates:
        if all_of_them or view.sent[gpu].outstanding == least:
            into[gpu >> 6] |= np.int64(1) << np.int64(gpu & 63)
