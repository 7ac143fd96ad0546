"""A GPU's hit ratio over its last admissions (see `recent`)."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.recent import RECENT
from prebleexp.sim.compiled import compiled


@compiled
def note(recent: Any, gpu: Any, g: int, hits: int, prompt: int) -> None:
    """Add an admission to the window of a GPU's hit ratio."""
    row = recent[g, gpu.lookups % RECENT]
    gpu.lookups += 1
    gpu.recent_hits += hits - row[0]
    gpu.recent_prompts += prompt - row[1]
    row[0], row[1] = hits, prompt
