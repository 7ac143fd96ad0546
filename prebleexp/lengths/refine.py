"""What is left of an output, once some of it was produced: an estimate that gets better as tokens come.

TRAIL (Shahout et al., 2024) refines with the served model's own state. The tokens seen so far alone tell a good deal
and need no access to any model: bins that the output has outgrown are ruled out.
"""

from __future__ import annotations

import numpy as np

from prebleexp.sim.types import Floats

LEAST = 1e-12
"""probability that nothing is denied"""


def remaining(probabilities: Floats, edges: Floats, values: Floats, produced: int) -> Floats:
    """(n,) expected tokens still to come of requests that have produced so many and not ended.

    `probabilities`, shape (n, k), are those of k bins from before the first token; bin i is from edge i to edge i + 1
    and has the mean length values[i]. Bayes' rule over the bins: a bin that was not reached keeps its mean; within one
    that was, lengths are taken to be equally likely, and in the last, which has a long tail, exponential, so that what
    has outgrown all bins goes on.
    """
    low, high = edges[:-1], edges[1:]
    alive = np.clip((high - produced) / (high - low), 0, 1)  # P(length > produced | bin)
    left = np.maximum(high - produced, 1) / 2
    tail = max(values[-1] - low[-1], 1.0)
    alive[-1], left[-1] = max(np.exp(-max(0.0, produced - low[-1]) / tail), LEAST), tail
    mean = np.where(produced <= low, values - produced, left)
    weights = np.maximum(probabilities, LEAST) * alive
    return np.asarray((weights @ mean) / weights.sum(axis=1), np.float64)
