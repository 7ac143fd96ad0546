"""KEDA: Kubernetes' autoscaler, and none where nothing happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from prebleexp.autoscalers.hpa import HPA
from prebleexp.checks import is_number, require

if TYPE_CHECKING:
    from prebleexp.sim.fleet import Fleet
    from prebleexp.sim.types import Setup


@dataclass(frozen=True)
class KEDA(HPA):
    """As HPA while there are requests, and until `cooldown_s` later; then no GPU, until there are requests again."""

    zero: ClassVar[bool] = True

    interval_s: float = 30.0
    least: int = 0
    initial: int | None = 1
    cooldown_s: float = 300.0
    """of no activity"""

    def __post_init__(self) -> None:
        super().__post_init__()
        valid = is_number(self.cooldown_s) and self.cooldown_s >= 0
        require(valid, "autoscaler.cooldown_s", self.cooldown_s, "a number of seconds >= 0")

    @property
    def memory_s(self) -> float:
        return max(self.window_s, self.cooldown_s)

    def start(self, setup: Setup) -> Any:
        return [super().start(setup), 0.0]  # and when there was something last

    def desired(self, mine: Any, fleet: Fleet, now: float) -> int:
        active = fleet.waiting > 0 or fleet.in_flight.sum() > 0
        if active:
            mine[1] = now
        wanted = super().desired(mine[0], fleet, now)
        if now - mine[1] >= self.cooldown_s:
            return 0
        return max(1, wanted) if active else max(min(1, fleet.gpus), wanted)
