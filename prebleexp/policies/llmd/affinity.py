"""llm-d's prefix-cache-affinity-filter: only GPUs that have most of the prompt, unless these have too much to do."""

from __future__ import annotations

from typing import Any, NamedTuple

from prebleexp.policies.llmd.scorers import Prompt, Scores
from prebleexp.sim.compiled import compiled


class Affinity(NamedTuple):
    threshold: float
    """the share of a prompt's blocks from which on a GPU has it; 0: there is no filter"""
    most_ttft_ms: float
    """by how much they may take longer than the best of the others; 0: however much"""
    tokens_per_s: float
    """of a prefill, by which tokens in flight are that time"""
    most_tokens: int
    """how many more tokens they may have in flight; 0: however many"""
    kept: Any
    """(GPUs,) the answer in hand"""


@compiled
def keep_sticky(affinity: Affinity, scores: Scores, prompt: Prompt, candidates: Any) -> int:
    """Write to `kept` those candidates that have the prompt; all where none has, or where the best of these has too
    much more to do than the best of the others. Returns how many there are."""
    sticky, least, least_of_others = 0, -1, -1
    for gpu in candidates:
        tokens = int(scores.tokens[gpu])
        if prompt.blocks > 0 and scores.held[gpu] / prompt.blocks >= affinity.threshold:
            affinity.kept[sticky] = gpu
            sticky += 1
            least = tokens if least < 0 else min(least, tokens)
        else:
            least_of_others = tokens if least_of_others < 0 else min(least_of_others, tokens)
    if sticky > 0 and (sticky == len(candidates) or not _is_too_much(affinity, least, least_of_others)):
        return sticky
    for i, gpu in enumerate(candidates):
        affinity.kept[i] = gpu
    return len(candidates)


@compiled
def _is_too_much(affinity: Affinity, tokens: int, of_others: int) -> bool:
    if affinity.most_tokens > 0 and tokens - of_others > affinity.most_tokens:
        return True
    more_ms = _ttft_ms(affinity, tokens) - _ttft_ms(affinity, of_others)
    return affinity.most_ttft_ms > 0.0 and more_ms > affinity.most_ttft_ms


@compiled
def _ttft_ms(affinity: Affinity, tokens: int) -> float:
    return tokens / affinity.tokens_per_s * 1000.0
