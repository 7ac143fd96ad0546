"""BLIS's weighted routing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.checks import is_integer, require
from prebleexp.policies import prefix_index
from prebleexp.policies.base import Policy
from prebleexp.policies.choices import highest, nth_equal
from prebleexp.policies.llmd import scorers
from prebleexp.policies.llmd.block_index import (
    BlockIndex,
    block_index,
    blocks_of,
    forget_all,
    lacks_room,
    leading,
    put,
    with_more_room,
)
from prebleexp.policies.llmd.scorers import Prompt, Scores, Weights, add_up, any_of, got_cold, never_cold
from prebleexp.policies.prefix_index import PrefixIndex
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup

NAMES = {
    "prefix-affinity": scorers.PREFIX,
    "precise-prefix-cache": scorers.REPORTED_PREFIX,
    "queue-depth": scorers.WAITING,
    "kv-utilization": scorers.FREE_MEMORY,
    "load-balance": scorers.LOAD,
    "active-requests": scorers.IN_FLIGHT,
    "running-requests": scorers.RUNNING,
    "load-aware": scorers.NO_QUEUE,
    "vllm-dp": scorers.WAITING_AND_RUNNING,
    "no-hit-lru": scorers.LAST_COLD,
}
REPORTED = ("precise-prefix-cache", "no-hit-lru")
LRU = 10_000
"""blocks a GPU"""
ALL = 2**31 - 1


class Remembered(NamedTuple):
    scores: Scores
    believed: BlockIndex
    reported: PrefixIndex
    reads_believed: bool
    reads_reported: bool


@dataclass(frozen=True)
class BlisWeighted(Policy):
    """The weighted sum of scorers, largest wins: prompt blocks that GPUs report to have, short queue and free memory,
    unless others are named; the first of equals. `prefix-affinity` goes by what was sent where instead: leading full
    blocks in an LRU of 10,000 a GPU.

    Source: inference-sim f90a1e3 (v0.7.15+43); dynamo-llmd-research.md, section 3. Verified, by recordings of its own
    code: all scorers, with and without prefixes. Not there: reports of the cache are not 50 ms old, as those of the
    load are, but fresh; admission. A GPU that is lost, or back, is a new one, of which nothing is believed: a guess.

    Raises InvalidInput, naming the field, for scorers that there are not, and numbers out of range.
    """

    scorers: Weights = (("precise-prefix-cache", 2.0), ("queue-depth", 1.0), ("kv-utilization", 1.0))
    """what each weighs, by its name; they are divided by their sum"""
    block_size: int = 16
    """tokens"""

    reads_lengths: ClassVar[bool] = False
    reports_ms: ClassVar[float] = 50.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scorers", scorers.checked(self.scorers, NAMES))
        require(is_integer(self.block_size, 1, ALL), "policy.block_size", self.block_size, "an integer >= 1")

    def start(self, setup: Setup) -> Remembered:
        weights = dict(self.scorers)
        whole = sum(weights.values())
        return Remembered(
            scorers.scores(setup, ((name, weight / whole) for name, weight in weights.items()), NAMES),
            block_index(setup, self.block_size, ALL, False, LRU),
            prefix_index.prefix_index(setup),
            "prefix-affinity" in weights,
            any(name in weights for name in REPORTED),
        )

    def lacks_room(self, mine: Any, view: View, request: int) -> int:
        return lacks_room(mine.believed, view, request)

    def with_more_room(self, mine: Any, view: View, request: int) -> Remembered:
        value: Remembered = getattr(mine, "value", mine)
        return value._replace(believed=with_more_room(value.believed, view, request))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        scores, reported, blocks = mine.scores, mine.scores.reported, blocks_of(mine.believed, view, request)
        if mine.reads_believed:
            leading(mine.believed, view, request, scores.held)
        if mine.reads_reported:
            prefix_index.matches(mine.reported, view, request, reported)
            for gpu in range(len(reported)):
                if reported[gpu] > 0:
                    reported[gpu] //= self.block_size
        warm = any_of(reported)
        prompt = Prompt(view.requests[request].prompt_tokens, blocks, self.block_size, 0.0, warm)
        add_up(scores, view, view.candidates, prompt)
        gpu = first_best(scores, view)
        if mine.reads_believed:
            put(mine.believed, view, request, gpu)
        if not warm:
            got_cold(scores, gpu)
        return gpu

    def stored(self, mine: Any, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        if mine.reads_reported:
            prefix_index.store(mine.reported, view, request, gpu, tokens)

    def evicted(self, mine: Any, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        if mine.reads_reported:
            prefix_index.forget(mine.reported, view, request, gpu, tokens)

    def changed(self, mine: Any, view: View, gpu: int, now: float) -> None:
        forget_all(mine.believed, gpu)
        prefix_index.forget_all(mine.reported, gpu)
        never_cold(mine.scores, gpu)


@compiled
def first_best(scores: Scores, view: View) -> int:
    """The first candidate with the highest score."""
    total, candidates = scores.total.view(np.int64), view.candidates
    return nth_equal(total, candidates, highest(total, candidates), 0)
