"""How large the steps of a run become, by which it is seen whether they are of the sizes that were measured."""

from __future__ import annotations

from typing import Any

from prebleexp.sim.compiled import compiled


@compiled
def keep_largest(total: Any, running: int, context: int) -> None:
    """Of a step that decodes a token of each of `running` requests, which are `context` tokens long with it."""
    total.peak_running = max(total.peak_running, running)
    total.peak_context_tokens = max(total.peak_context_tokens, context)
