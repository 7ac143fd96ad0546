"""How much better the estimate of what is left gets as tokens are produced."""

from __future__ import annotations

import numpy as np

from prebleexp.lengths.refine import remaining
from prebleexp.predict.bins import Bins
from prebleexp.sim.types import Floats, Ints

PRODUCED = (0, 8, 16, 32, 64, 128, 256)
"""tokens after which the estimate is looked at"""


def refinement(probabilities: Floats, lengths: Ints, bins: Bins) -> list[dict[str, float]]:
    """For each of `PRODUCED`, mean absolute errors, in tokens, of what is left of the requests that have not ended
    then: of the refined estimate, and of the first one less what was produced."""
    found = []
    first = bins.mean(probabilities)
    edges, values = np.array(bins.edges), np.array(bins.values)
    for produced in PRODUCED:
        alive = lengths > produced
        if alive.any():
            left = lengths[alive] - produced
            refined = float(np.abs(remaining(probabilities[alive], edges, values, produced) - left).mean())
            unrefined = float(np.abs(np.maximum(first[alive] - produced, 1) - left).mean())
            found.append({"produced": produced, "n": int(alive.sum()), "refined": refined, "unrefined": unrefined})
    return found
