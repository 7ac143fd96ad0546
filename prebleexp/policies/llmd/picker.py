"""llm-d's endpoint picker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.checks import is_integer, is_number, one_of, positive, require
from prebleexp.policies.base import Policy
from prebleexp.policies.choices import any_equal, highest
from prebleexp.policies.llmd import scorers
from prebleexp.policies.llmd.affinity import Affinity, keep_sticky
from prebleexp.policies.llmd.block_index import (
    BlockIndex,
    block_index,
    blocks_of,
    counted,
    forget_all,
    lacks_room,
    put,
    with_more_room,
)
from prebleexp.policies.llmd.scorers import Prompt, Scores, Weights, add_up, any_of, got_cold, never_cold, uncached
from prebleexp.sim.compiled import compiled
from prebleexp.sim.draws import below, generator, uniform
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup

NAMES = {
    "prefix-cache-scorer": scorers.PREFIX,
    "queue-scorer": scorers.WAITING,
    "kv-cache-utilization-scorer": scorers.FREE_MEMORY,
    "running-requests-size-scorer": scorers.RUNNING,
    "load-aware-scorer": scorers.NO_QUEUE,
    "active-request-scorer": scorers.IN_FLIGHT,
    "token-load-scorer": scorers.IN_FLIGHT_TOKENS,
    "no-hit-lru-scorer": scorers.LAST_COLD,
}
PICKERS = ("max-score", "weighted-random", "random")
MAX_SCORE, WEIGHTED_RANDOM, RANDOM = range(3)


class Remembered(NamedTuple):
    believed: BlockIndex
    scores: Scores
    sent_tokens: Any
    """(requests,) of each, until its first token, those that are among its GPU's `scores.tokens`"""
    affinity: Affinity
    picker: int
    draws: Any


@dataclass(frozen=True)
class LlmD(Policy):
    """The weighted sum of scorers, largest wins: matching prompt blocks, short queue and free memory, unless others are
    named; any of equals. What each GPU has cached is an LRU of what was sent there, which hears of no eviction. A GPU
    that is lost, or back, is a pod that is deleted, or made: nothing is believed of it.

    Source: llm-d-router ebab68792 (v0.10.0-rc.1+62); dynamo-llmd-research.md, section 2. Verified: scorers, max-score
    picker and prefix index, by recordings of its own code. Read: the other pickers; that the in-flight tokens are
    whole blocks, with the request's own; prefix-cache-affinity-filter. decode-filter and prefill-filter are the roles
    of GPUs (cluster=disaggregated). Not there: the size of the LRU that the engines report (`autoTune`), other filters,
    the prediction of latencies.

    Raises InvalidInput, naming the field, for scorers and pickers that there are not, and numbers out of range.
    """

    scorers: Weights = (("prefix-cache-scorer", 3.0), ("queue-scorer", 2.0), ("kv-cache-utilization-scorer", 2.0))
    """what each weighs, by its name"""
    picker: str = "max-score"
    """`max-score`; `weighted-random`: each as likely as its score is high; `random`: any"""
    block_size: int = 64
    """tokens, at least 64: the engine's, where that is larger"""
    max_prefix_blocks: int = 2048
    """of a prompt that are looked at"""
    lru_capacity: int = 31_250
    """blocks that each GPU is believed to have, at most"""
    match_length_weight: float = 0.0
    """of how long the match is, up to 8,192 tokens, in the prefix's score; its share of the prompt has the rest"""
    affinity_threshold: float = 0.0
    """of the prefix-cache-affinity-filter: only GPUs with such a share of the prompt's blocks, if any has; 0: none"""
    max_tokens_in_flight_penalty: int = 0
    """all GPUs, if the least tokens in flight of these exceed the others' by more than this; 0: however many"""
    max_ttft_penalty_ms: float = 0.0
    """likewise of tokens in flight over `peak_prefill_throughput`; 0: however much"""
    peak_prefill_throughput: float = 15_928.0
    """tokens/s of a GPU: llm-d's, of Qwen3-32B on two H100"""

    reads_lengths: ClassVar[bool] = False
    reports_ms: ClassVar[float] = 50.0
    least_block: ClassVar[int] = 64
    """tokens: smaller blocks are raised to it"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "scorers", scorers.checked(self.scorers, NAMES))
        one_of("policy.picker", self.picker, PICKERS)
        for name in ("block_size", "max_prefix_blocks", "lru_capacity"):
            value = getattr(self, name)
            require(is_integer(value, 1, 2**31 - 1), f"policy.{name}", value, "an integer >= 1")
        share = self.match_length_weight
        require(is_number(share) and 0 <= share <= 1, "policy.match_length_weight", share, "a number from 0 to 1")
        share = self.affinity_threshold
        require(is_number(share) and 0 <= share <= 1, "policy.affinity_threshold", share, "a number from 0 to 1")
        most = self.max_tokens_in_flight_penalty
        require(is_integer(most, 0, 2**62), "policy.max_tokens_in_flight_penalty", most, "an integer >= 0")
        most_ms = self.max_ttft_penalty_ms
        require(is_number(most_ms) and most_ms >= 0, "policy.max_ttft_penalty_ms", most_ms, "a number >= 0")
        positive("policy.peak_prefill_throughput", self.peak_prefill_throughput)

    def affinity(self, setup: Setup) -> Affinity:
        return Affinity(
            float(self.affinity_threshold),
            float(self.max_ttft_penalty_ms),
            float(self.peak_prefill_throughput),
            self.max_tokens_in_flight_penalty,
            np.zeros(setup.gpus, np.int64),
        )

    def start(self, setup: Setup) -> Remembered:
        block = max(self.block_size, self.least_block)
        return Remembered(
            block_index(setup, block, self.max_prefix_blocks, True, self.lru_capacity),
            scorers.scores(setup, dict(self.scorers).items(), NAMES),
            np.zeros(setup.requests, np.int32),
            self.affinity(setup),
            PICKERS.index(self.picker),
            generator(setup.seed),
        )

    def lacks_room(self, mine: Any, view: View, request: int) -> int:
        return lacks_room(mine.believed, view, request)

    def with_more_room(self, mine: Any, view: View, request: int) -> Remembered:
        value: Remembered = getattr(mine, "value", mine)
        return value._replace(believed=with_more_room(value.believed, view, request))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        counted(mine.believed, view, request, mine.scores.held)
        prompt = prompt_of(mine, view, request, self.match_length_weight)
        return send(mine, view, request, prompt, chosen(mine, view, prompt))

    def first_token(self, mine: Any, view: View, request: int, now: float) -> None:
        computed(mine, view, request)

    def finished(self, mine: Any, view: View, request: int, now: float) -> None:
        computed(mine, view, request)  # it gave up before its first token, or was lost

    def changed(self, mine: Any, view: View, gpu: int, now: float) -> None:
        forget_all(mine.believed, gpu)
        never_cold(mine.scores, gpu)


@compiled
def computed(mine: Any, view: View, request: int) -> None:
    """The request's tokens are in flight no more."""
    mine.scores.tokens[view.requests[request].gpu] -= mine.sent_tokens[request]
    mine.sent_tokens[request] = 0


@compiled
def prompt_of(mine: Remembered, view: View, request: int, length_weight: float) -> Prompt:
    tokens, warm = view.requests[request].prompt_tokens, any_of(mine.scores.held)
    return Prompt(tokens, blocks_of(mine.believed, view, request), mine.believed.block_size, length_weight, warm)


@compiled
def chosen(mine: Any, view: View, prompt: Prompt) -> int:
    """The GPU that filter, scorers and picker choose, by what each is believed to hold."""
    among = view.candidates
    if mine.affinity.threshold > 0.0:
        among = mine.affinity.kept[: keep_sticky(mine.affinity, mine.scores, prompt, among)]
    add_up(mine.scores, view, among, prompt)
    return int(pick(mine, among))


@compiled
def send(mine: Remembered, view: View, request: int, prompt: Prompt, gpu: int) -> int:
    """Note that the GPU gets the request, and what it will then hold; returns the GPU."""
    put(mine.believed, view, request, gpu)
    sent(mine, request, prompt, gpu)
    return gpu


@compiled
def sent(mine: Any, request: int, prompt: Prompt, gpu: int) -> None:
    """Its tokens are in flight there; it has got cold ones, if no GPU had any of the prompt."""
    if not prompt.warm:
        got_cold(mine.scores, gpu)
    mine.sent_tokens[request] = uncached(prompt, mine.scores.held[gpu])
    mine.scores.tokens[gpu] += mine.sent_tokens[request]


@compiled
def pick(mine: Any, candidates: Any) -> int:
    """The candidate with the highest score, any of equals; or any, each as likely as its score is high; or any."""
    total = mine.scores.total
    if mine.picker == MAX_SCORE:
        return _any_best(mine, candidates)
    whole = 0.0
    if mine.picker == WEIGHTED_RANDOM:
        for gpu in candidates:
            whole += total[gpu]
    if whole == 0.0:
        return int(candidates[below(mine.draws, len(candidates))])
    behind, last = whole * uniform(mine.draws), candidates[0]
    for gpu in candidates:
        if total[gpu] > 0.0:
            last = gpu
            behind -= total[gpu]
            if behind < 0.0:
                break
    return int(last)


@compiled
def _any_best(mine: Any, candidates: Any) -> int:
    scores = mine.scores.total.view(np.int64)
    return any_equal(mine.draws, candidates, scores, highest(scores, candidates))
