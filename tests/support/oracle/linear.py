"""What a step takes by `tests.support.costs.linear_cost`, and by `wave_cost` where all ranks have as much to do."""

from __future__ import annotations

from typing import Any


def alone_s(of: Any, new: int, context: int) -> float:
    seconds = of.step_s + of.token_s * new + of.context_token_s * context
    if of.ranks > 1:
        seconds += of.all_s + of.all_token_s * (new * of.ranks)
    return float(max(0.0, seconds))
