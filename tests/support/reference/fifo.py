"""A first-come queue of one server as arrays: so quick that a search for its capacity can be repeated many times.

Gaps are gamma with a coefficient of variation of 2, service lognormal with a mean of 0.1 s and one of 1.3; a request is
good that waits for at most 1 s (spec: workloads, 4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from prebleexp.planning.answer import Answer
from prebleexp.planning.load import Search, largest
from prebleexp.planning.trials import Question, Sample, Trial
from prebleexp.service.in_system import slope
from prebleexp.sim.types import Floats

SERVICE_S, SIGMA, LIMIT_S = 0.1, 1.0, 1.0


@lru_cache(256)
def stream(family: int, seed: int, requests: int) -> tuple[Floats, Floats]:
    """Gaps at unit rate, and service times."""
    rng = np.random.default_rng([family, seed])
    return rng.gamma(0.25, 4.0, requests), rng.lognormal(math.log(SERVICE_S) - SIGMA**2 / 2, SIGMA, requests)


def waits(gaps: Floats, service: Floats, load: float) -> Floats:
    """Lindley's recursion: the walk less its least value so far."""
    walk = np.concatenate([[0.0], np.cumsum(service[:-1] - gaps[1:] / load)])
    found: Floats = walk - np.minimum.accumulate(walk)
    return found


def sample(family: int, trial: Trial) -> Sample:
    gaps, service = stream(family, trial.seed, trial.requests)
    waited = waits(gaps, service, trial.size)
    come = np.cumsum(gaps) / trial.size
    start, end = come[-1] / 10, come[-1]
    trend = slope(come, come + waited + service, start, end) * (end - start) / int((come >= start).sum())
    return Sample(float((waited <= LIMIT_S).mean()), trial.requests, trend)


def solved(search: Search, family: int) -> Answer:
    asked = next(search)
    while True:
        try:
            asked = search.send([sample(family, trial) for trial in asked])
        except StopIteration as over:
            answer: Answer = over.value
            return answer


def capacity(question: Question, family: int, guess: float = 5.0) -> Answer:
    return solved(largest(question, guess), family)


def mean(load: float, seeds: int, requests: int) -> float:
    """Of the share of good requests, over seeds that no search has."""
    return float(np.mean([sample(1_000_000, Trial(load, seed, requests)).kept for seed in range(seeds)]))


def truth(target: float, requests: int, seeds: int, around: float) -> float:
    """The load at which the mean is at the target, by so many seeds that it counts as known."""
    loads = around * np.geomspace(0.85, 1.15, 9)
    kept = [mean(load, seeds, requests) for load in loads]
    assert kept[0] > target > kept[-1]
    assert all(one >= other for one, other in pairwise(kept))
    return float(np.exp(np.interp(-target, -np.array(kept), np.log(loads))))


def share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags)
