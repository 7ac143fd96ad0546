"""Kubernetes' horizontal pod autoscaler."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prebleexp.autoscalers.base import ByLoad
from prebleexp.checks import is_integer, is_number, require

if TYPE_CHECKING:
    from prebleexp.sim.fleet import Fleet
    from prebleexp.sim.types import Setup


@dataclass(frozen=True)
class HPA(ByLoad):
    """As many GPUs as would bring the load to its target: n · load / target, rounded up; n stays where load / target is
    1 up to `tolerance`. To fewer than the highest of `window_s` it does not go. In an interval n grows by n, or by
    `burst` if that is more.

    The defaults are those of Kubernetes' controller and of its behavior v2.
    """

    tolerance: float = 0.1
    """of load / target"""
    window_s: float = 300.0
    """of which the highest number counts, for less"""
    burst: int = 4
    """GPUs that may be added in an interval, at least"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, what in (("tolerance", "a share >= 0"), ("window_s", "a number of seconds >= 0")):
            require(is_number(getattr(self, name)) and getattr(self, name) >= 0, f"autoscaler.{name}",
                    getattr(self, name), what)  # fmt: skip
        require(is_integer(self.burst, 1), "autoscaler.burst", self.burst, "an integer >= 1")

    @property
    def memory_s(self) -> float:
        return self.window_s

    def start(self, setup: Setup) -> Any:
        return deque[tuple[float, int]]()

    def desired(self, mine: Any, fleet: Fleet, now: float) -> int:
        n, ratio = fleet.gpus, self.of(fleet) / self.target
        wanted = n if abs(ratio - 1) <= self.tolerance else math.ceil(n * ratio)
        mine.append((now, wanted))
        while now - mine[0][0] > self.window_s:
            mine.popleft()
        if wanted > n:
            return min(wanted, n + max(n, self.burst))
        highest: int = max(one for _, one in mine)
        return min(n, highest)
