"""LBGR: predicted milliseconds from uncached characters, a backlog that melts, and a residual that is learnt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.checks import is_number, positive, require
from prebleexp.policies.base import Policy, tuned
from prebleexp.policies.prefix_index import PrefixIndex, forget_all, insert, matches, prefix_index
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import GPUS, View
from prebleexp.sim.types import Setup, records

TICK_S = 0.020
HYSTERESIS_MS = 1.0
FIRST_VARIANCE = 1e6

WORKER = np.dtype(
    [
        ("backlog", np.int64),  # milliseconds
        ("residual", np.float64),  # milliseconds, learnt …
        ("variance", np.float64),  # … by least squares, which has this of it
    ],
    align=True,
)
ROUTED = np.dtype(
    [
        ("alone", np.float64),  # milliseconds, with no backlog
        ("backlog", np.int64),  # of its GPU when it was routed
        ("sent_s", np.float64),
    ],
    align=True,
)
"""A request, by its number."""


class Learner(NamedTuple):
    tree: PrefixIndex
    matched: Any
    """(GPUs,) leading tokens of the prompt in hand that each is believed to hold"""
    workers: Any
    """(GPUs,) `WORKER`"""
    routed: Any
    """(requests,) `ROUTED`"""
    ticks: Any
    """(1,) so far"""


@dataclass(frozen=True)
class Lbgr(Policy):
    """The GPU with the least predicted latency: 1 ms for each character that it is not believed to hold, its backlog of
    such milliseconds, which melts by 1/32 every 20 ms, and its residual, learnt from latencies by recursive least
    squares with forgetting. A later GPU must be better by more than 1 ms.

    Source: ICLR 2026, "Randomization boosts KV caching, learning balances query load", policy eta_online_3d of
    fzwark/KVRouting fc3b2a1, sgl-router/src/router.rs and lib.rs, which were read; there are no recordings. Its tree of
    prompts knows nothing of what engines evict. There each GPU's part of it is cut to 2^24 characters once a minute,
    the least recently used first, which is not simulated here: nor then does inserting a prompt once more at the end of
    its request change anything. The engine's randomised eviction, the other half of the paper, is not here either.
    A GPU that is lost, or back, is one that is removed, or added, there: nothing is known of it.

    Raises InvalidInput, naming the field, for characters that are no number above 0 and a forgetting not in (0, 1]."""

    reads_lengths: ClassVar[bool] = False

    characters_per_token: float = 4.0
    """that one token stands for"""
    forgetting: float = tuned(0.992, 0.9, 1.0)
    """weight that an observation keeps with each that follows (the default is what the router is started with; the
    class of its least squares names 0.95, which nothing uses)"""

    def __post_init__(self) -> None:
        positive("policy.characters_per_token", self.characters_per_token)
        valid = is_number(self.forgetting) and 0 < self.forgetting <= 1
        require(valid, "policy.forgetting", self.forgetting, "a number in (0, 1]")

    def start(self, setup: Setup) -> Learner:
        workers = records(setup.gpus, WORKER)
        workers.variance = FIRST_VARIANCE
        matched, routed = np.zeros(setup.gpus, np.int64), records(setup.requests, ROUTED)
        return Learner(prefix_index(setup), matched, workers, routed, np.zeros(1, np.int64))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        melt(mine, now)
        matches(mine.tree, view, request, mine.matched)
        best, least, own = -1, 0.0, 0.0
        for g in view.candidates:
            worker, base = mine.workers[g], base_ms(mine, view, request, g, self.characters_per_token)
            predicted = max(1.0, base + worker.backlog + worker.residual)
            if best < 0 or predicted + HYSTERESIS_MS < least:
                best, least, own = g, predicted, base
        view.work[GPUS] += len(view.candidates)
        worker, routed = mine.workers[best], mine.routed[request]
        routed.alone, routed.backlog, routed.sent_s = own, worker.backlog, now
        worker.backlog += whole(own)
        insert(mine.tree, view, request, best)
        return best

    def finished(self, mine: Any, view: View, request: int, now: float) -> None:
        melt(mine, now)
        routed, worker = mine.routed[request], mine.workers[view.requests[request].gpu]
        passed = int((now - routed.sent_s) / TICK_S)
        worker.backlog = max(0, worker.backlog - whole(whole(routed.alone) * (31 / 32) ** passed))
        latency_ms = 1000.0 * (now - routed.sent_s)
        learn(worker, max(1.0, latency_ms - (routed.alone + routed.backlog)), self.forgetting)

    def changed(self, mine: Any, view: View, gpu: int, now: float) -> None:
        forget_all(mine.tree, gpu)
        worker = mine.workers[gpu]
        worker.backlog, worker.residual, worker.variance = 0, 0.0, FIRST_VARIANCE


@compiled
def base_ms(mine: Learner, view: View, request: int, g: int, characters_per_token: float) -> float:
    """1 ms for each uncached character, and for none."""
    return max(1.0, characters_per_token * (view.requests[request].prompt_tokens - mine.matched[g]))


@compiled
def whole(value: float) -> int:
    """The nearest whole number, upwards from the middle."""
    return int(value + 0.5)


@compiled
def melt(mine: Learner, now: float) -> None:
    """All backlogs, by the ticks that have passed."""
    ticks = int(now / TICK_S)
    passed, mine.ticks[0] = ticks - mine.ticks[0], ticks
    if passed > 0:
        for worker in mine.workers:
            for _ in range(passed):
                if worker.backlog == 0:
                    break
                worker.backlog = worker.backlog * 31 // 32


@compiled
def learn(worker: Any, observed_ms: float, forgetting: float) -> None:
    """One step of least squares of a constant."""
    gain = worker.variance / (forgetting + worker.variance)
    worker.residual += gain * (observed_ms - worker.residual)
    worker.variance = (worker.variance - gain * worker.variance) / forgetting
