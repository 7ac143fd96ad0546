"""The serving engine: what a model step costs beside the GPU's seconds, and the constants of its scheduler."""

from __future__ import annotations

import math
from dataclasses import dataclass

from prebleexp.errors import InvalidInput

REPORT_INTERVAL = 8
"""decode steps between two reports of running requests"""
BURST = 10
"""decode steps at most in one model step"""
HIT_WINDOW_S = 30.0
"""over which a GPU's hit ratio is taken"""
NEW_TOKEN_RATIO = 0.4
"""of the tokens that running requests may still generate, the share that is kept free for them at first"""
RATIO_DECAY, RATIO_LEAST = 0.0001, 0.2
"""after each decode step that finds room"""
RATIO_GROWTH, RATIO_MOST = 0.05, 1.0
"""after one that does not"""


@dataclass(frozen=True)
class Engine:
    """SGLang of early 2024 under a host loop that adds a fixed time to every model step (spec: engine-as-released,
    Q10)."""

    step_cost_s: float = 0.0006
    """of a step that reports no token"""
    output_step_cost_s: float = 0.0006
    """of a step that does; 0.03 in the release"""

    def __post_init__(self) -> None:
        for name in ("step_cost_s", "output_step_cost_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-7 <= value < math.inf:
                raise InvalidInput(f"engine.{name}={value} is not valid; it must be a number of seconds, at least 1e-7")
            object.__setattr__(self, name, float(value))
