"""llm-d's endpoint picker, fed by KV events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.checks import is_number, require
from prebleexp.policies import prefix_index
from prebleexp.policies.llmd import scorers
from prebleexp.policies.llmd.affinity import Affinity
from prebleexp.policies.llmd.picker import NAMES, PICKERS, LlmD, chosen, computed, sent
from prebleexp.policies.llmd.scorers import Prompt, Scores, Weights, any_of, never_cold
from prebleexp.policies.prefix_index import PrefixIndex
from prebleexp.sim.compiled import compiled
from prebleexp.sim.draws import generator
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup


class Informed(NamedTuple):
    reported: PrefixIndex
    """what GPUs say they hold"""
    until_s: Any
    """(GPUs, segment ids) until when a segment is taken to be where it was sent; (0, 0) if that is not done"""
    scores: Scores
    sent_tokens: Any
    """(requests,) of each, until its first token, those that are among its GPU's `scores.tokens`"""
    affinity: Affinity
    picker: int
    draws: Any


@dataclass(frozen=True)
class LlmDPrecise(LlmD):
    """llm-d's picker where GPUs report what they cache and drop: a prompt's blocks there are its leading full ones that
    the GPU holds, or that were sent there a moment ago.

    Source: llm-d-router (precise-prefix-cache-producer) and the values of llm-d's guide precise-prefix-cache-routing;
    read. Scorers, filter and picker are those of `LlmD`. Not there: the delay of reports, which are fresh; two pickers
    that do not know of each other (gateway.replicas=2 has them); the older precise-prefix-cache-scorer, which is
    relative to the GPU that has the most.

    Raises InvalidInput, naming the field, as `LlmD` does.
    """

    scorers: Weights = (
        ("prefix-cache-scorer", 3.0),
        ("queue-scorer", 2.0),
        ("kv-cache-utilization-scorer", 2.0),
        ("no-hit-lru-scorer", 2.0),
    )
    speculative_s: float = 2.0
    """for so long after it was sent somewhere a prompt is taken to be there; 0: only when the GPU says so"""

    least_block: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        valid = is_number(self.speculative_s) and self.speculative_s >= 0
        require(valid, "policy.speculative_s", self.speculative_s, "a number of seconds >= 0")

    def start(self, setup: Setup) -> Informed:  # type: ignore[override]
        guessed = self.speculative_s > 0
        return Informed(
            prefix_index.prefix_index(setup),
            np.zeros((setup.gpus, setup.segment_ids) if guessed else (0, 0)),
            scorers.scores(setup, dict(self.scorers).items(), NAMES),
            np.zeros(setup.requests, np.int32),
            self.affinity(setup),
            PICKERS.index(self.picker),
            generator(setup.seed),
        )

    def lacks_room(self, mine: Any, view: View, request: int) -> int:
        return 0

    def with_more_room(self, mine: Any, view: View, request: int) -> Any:
        raise AssertionError("there is always room")

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        scores, tokens = mine.scores, view.requests[request].prompt_tokens
        prefix_index.matches(mine.reported, view, request, scores.held)
        _add_sent(mine.until_s, view, request, now, scores.held)
        blocks = min(self.max_prefix_blocks, tokens // self.block_size)
        for gpu in range(len(scores.held)):
            scores.held[gpu] = min(blocks, scores.held[gpu] // self.block_size)
        prompt = Prompt(tokens, blocks, self.block_size, self.match_length_weight, any_of(scores.held))
        gpu = chosen(mine, view, prompt)
        sent(mine, request, prompt, gpu)
        _was_sent(mine.until_s, view, request, gpu, now + self.speculative_s)
        return gpu

    def stored(self, mine: Any, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        prefix_index.store(mine.reported, view, request, gpu, tokens)

    def evicted(self, mine: Any, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        prefix_index.forget(mine.reported, view, request, gpu, tokens)

    def first_token(self, mine: Any, view: View, request: int, now: float) -> None:
        computed(mine, view, request)

    def finished(self, mine: Any, view: View, request: int, now: float) -> None:
        computed(mine, view, request)  # it gave up before its first token, or was lost

    def changed(self, mine: Any, view: View, gpu: int, now: float) -> None:
        prefix_index.forget_all(mine.reported, gpu)
        if len(mine.until_s) > 0:
            mine.until_s[gpu, :] = 0.0
        never_cold(mine.scores, gpu)


@compiled
def _add_sent(until_s: Any, view: View, request: int, now: float, into: Any) -> None:
    """Leading tokens that were sent to each GPU of late, where these are more."""
    row = view.requests[request]
    for gpu in range(len(until_s)):
        for one in range(row.first_segment, row.first_segment + row.segments):
            if until_s[gpu, view.prompts.ids[one]] <= now:
                break
            into[gpu] = max(into[gpu], view.prompts.ends[one])


@compiled
def _was_sent(until_s: Any, view: View, request: int, gpu: int, until: float) -> None:
    row = view.requests[request]
    if len(until_s) > 0:
        for one in range(row.first_segment, row.first_segment + row.segments):
            until_s[gpu, view.prompts.ids[one]] = until
