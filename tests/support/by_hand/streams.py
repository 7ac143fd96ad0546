"""Streams whose prompts are written down."""

from __future__ import annotations

import numpy as np

from prebleexp.sim.types import Workload


def stream(
    prompts: list[list[tuple[int, int]]], arrivals: list[float], outputs: list[int], most: list[int] | None = None
) -> Workload:
    """Prompts as (segment id, tokens); requests may generate exactly what they do, or `most`."""
    n = len(prompts)
    return Workload(
        arrival_s=np.array(arrivals),
        prompt_tokens=np.array([sum(tokens for _, tokens in prompt) for prompt in prompts]),
        output_tokens=np.array(outputs),
        max_new_tokens=np.array(most or outputs),
        prefix_group=np.full(n, -1),
        segment_offsets=np.cumsum([0] + [len(prompt) for prompt in prompts]),
        segment_ids=np.array([one for prompt in prompts for one, _ in prompt]),
        segment_tokens=np.array([tokens for prompt in prompts for _, tokens in prompt]),
    )


def own(index: int, tokens: int) -> list[tuple[int, int]]:
    return [(index, tokens)]
