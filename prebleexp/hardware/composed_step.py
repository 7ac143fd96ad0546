"""What a model step costs by its equations: a few products (spec: hardware.md, The step). Positive, continuous, and
never less for more of anything."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from prebleexp.sim.compiled import compiled

COST = np.dtype(
    [
        ("fixed", np.float64),  # seconds of a step, …
        ("token", np.float64),  # … of each of its new tokens, …
        ("sequence", np.float64),  # … of each sequence that yields one, …
        ("context", np.float64),  # … of each token of context that a decode reads from memory, …
        ("again", np.float64),  # … or, since another just did, from the cache, …
        ("at_once", np.float64),  # … where so many sequences are read at one time, …
        ("near", np.float64),  # … and, in layers with a sliding window, of each, …
        ("window", np.float64),  # … but of so many of a sequence at most
        ("pair_ms", np.float64),  # milliseconds of a query and a key of a prefill
        # kernels that take √(compute² + memory²), a smooth maximum of both: seconds of a token, and of reading weights
        ("linear_compute", np.float64),
        ("linear_memory", np.float64),
        ("head_compute", np.float64),
        ("head_memory", np.float64),
        ("expert_compute", np.float64),
        ("expert_memory", np.float64),  # of an expert that is touched
        ("experts", np.float64),  # in a layer; 0: there are none
        ("log_missed", np.float64),  # logarithm of the chance that a token misses an expert
    ],
    align=True,
)
"""Coefficients of a step. One record: its address is all that is passed on."""


@compiled
def _linear_s(cost: Any, tokens: int, sequences: int) -> float:
    """All that does not depend on contexts."""
    compute, memory = cost.linear_compute * tokens, cost.linear_memory
    seconds = cost.fixed + cost.token * tokens + cost.sequence * sequences
    seconds += math.sqrt(compute * compute + memory * memory)
    compute, memory = cost.head_compute * sequences, cost.head_memory
    seconds += math.sqrt(compute * compute + memory * memory)
    if cost.experts > 0:
        touched = cost.experts * (1.0 - math.exp(tokens * cost.log_missed))
        compute, memory = cost.expert_compute * tokens, cost.expert_memory * touched
        seconds += math.sqrt(compute * compute + memory * memory)
    return seconds


@compiled
def _attention_s(cost: Any, sequences: int, running: int, context: int, unique: int) -> float:
    """Of decodes, of whose context at most so many tokens are distinct; each is read by the mean number of requests.

    Those that are read at one time read a prefix that they share in step: one of them gets it from memory, and the
    others find it in the cache. When the next are read it is gone. So of the requests that share a token, each time one
    loads it; were `at_once` of all that run drawn by chance, that is what follows."""
    near = cost.near * min(float(context), cost.window * sequences)
    if unique >= context:
        return near + cost.context * context
    share, distinct = min(1.0, cost.at_once / running), float(max(unique, 1))
    loaded = distinct / share * (1.0 - (1.0 - share) ** (context / distinct))
    return near + cost.context * loaded + cost.again * (context - loaded)


# ---------------------------------------------------------------- as a plug (see `prebleexp.sim.cost`)
@compiled
def request_ms(self: Any, mine: Any, new: int, length: int) -> float:
    """Each new token looks at what is cached and, on average, at half of the new ones."""
    return mine.pair_ms * new * (length - 0.5 * new)


@compiled
def step_s(
    self: Any,
    mine: Any,
    prefills: int,
    new: int,
    length: int,
    running: int,
    context: int,
    unique: int,
    requests_ms: float,
) -> float:
    """Kernels of today read a prefix that requests share once for each of them: from memory, or from the cache. What
    prefills hold counts as if decodes did, so that too little is found in the cache, not too much."""
    if running + new == 0:
        return 0.0
    sequences = running + prefills
    seconds = _linear_s(mine, running + new, sequences) + _attention_s(mine, sequences, running, context, unique)
    return seconds + requests_ms / 1e3


@compiled
def decode_s(self: Any, mine: Any, running: int, context: int, unique: int, steps: int) -> float:
    seconds, linear = 0.0, _linear_s(mine, running, running)
    for _ in range(steps):
        seconds += linear + _attention_s(mine, running, running, context, unique)
        context += running
        unique += running
    return seconds
