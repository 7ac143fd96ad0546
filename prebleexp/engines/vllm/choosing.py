"""What a step that is being scheduled computes of each request that it chooses."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.vllm.records import STEPS, Engines
from prebleexp.sim.compiled import compiled


@compiled
def choose(mine: Engines, g: int, number: int, request: int, tokens: int, drafts: int, hits: int) -> None:
    """List a request for step `number`. Whether its tokens bring one is seen when the step is whole."""
    step = mine.steps[g, number % STEPS]
    one = mine.chosen[g, number % STEPS, step.chosen]
    one.request, one.tokens, one.samples, one.hits = request, tokens, 1 + drafts, hits
    step.chosen += 1
    step.quiet = 0  # nor is one that was, where requests are listed afterwards


@compiled
def not_chosen(mine: Engines, g: int, step: Any, request: int) -> int:
    """Take a request out of the step, if it is in it; returns its tokens."""
    chosen = mine.chosen[g, mine.gpus[g].scheduled % STEPS]
    for row in range(step.chosen):
        if chosen[row].request == request:
            tokens = int(chosen[row].tokens)
            step.chosen -= 1
            for other in range(row, step.chosen):
                chosen[other] = chosen[other + 1]
            return tokens
    return 0


@compiled
def blocks_of(mine: Engines, tokens: int) -> int:
    """that hold so many tokens"""
    return -(-tokens // mine.settings.block_size)
