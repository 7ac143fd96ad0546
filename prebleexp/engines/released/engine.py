"""The serving engine of the public simulator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from prebleexp.checks import is_number, require
from prebleexp.engines.base import Engine


@dataclass(frozen=True)
class Released(Engine):
    """SGLang of early 2024 as PREBLE's public simulator has it: whole prefills, the longest cached prefix first, and a
    host loop that adds a fixed time to every model step (spec: engine-as-released, Q10).

    Its router hears of what a step brings when the step begins: finishes, queues and hit ratios of up to half a second
    ahead. No other engine does that. Requests that never fit wait for ever.
    """

    compiles: ClassVar[str] = "prebleexp.engines.released.loop"
    has_frontend: ClassVar[bool] = False

    step_cost_s: float = 0.0006
    """of a step that reports no token"""
    output_step_cost_s: float = 0.03
    """of a step that does"""
    stepwise: bool = field(default=False, metadata={"key": False})
    """a check: take no short cut through idle time or between simultaneous events. Slow; the same results but for ties
    that chance never makes"""

    def __post_init__(self) -> None:
        for name in ("step_cost_s", "output_step_cost_s"):
            value = getattr(self, name)
            valid = is_number(value) and value >= 1e-7
            require(valid, f"engine.{name}", value, "a number of seconds, at least 1e-7")
            object.__setattr__(self, name, float(value))

    @property
    def host_step_s(self) -> float:
        return self.step_cost_s

    def own_loop(self) -> Any:
        from prebleexp.engines.released.simulate import simulate  # nothing that is cached needs it

        return simulate
