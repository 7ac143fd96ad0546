"""Knative's pod autoscaler, which KServe has too."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prebleexp.autoscalers.base import Rule
from prebleexp.checks import is_number, positive, require

if TYPE_CHECKING:
    from prebleexp.sim.fleet import Fleet
    from prebleexp.sim.types import Setup


@dataclass
class Past:
    """Requests in flight or waiting, as they were seen, and of a panic when it is over and how many it wants."""

    seen: deque[tuple[float, int]] = field(default_factory=deque)
    until_s: float = -math.inf
    most: int = 0


@dataclass(frozen=True)
class Knative(Rule):
    """As many GPUs as the mean of `stable_s` of all requests there are needs, at `target` · `utilisation` each. Where
    the mean of `panic_s` needs `panic_threshold` times what there are or more, it is a panic: for `stable_s` from the
    last time that this was so the number only grows, by that mean."""

    interval_s: float = 2.0
    target: float = 100.0
    """requests at a time that a GPU can serve, …"""
    utilisation: float = 0.7
    """… and the share of them that it is to have"""
    stable_s: float = 60.0
    """seconds of which the mean counts, and that a panic lasts"""
    panic_s: float = 6.0
    """seconds of the mean by which it panics"""
    panic_threshold: float = 2.0
    """times the GPUs there are, that this mean needs"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("target", "stable_s", "panic_s", "panic_threshold"):
            positive(f"autoscaler.{name}", getattr(self, name))
        share = is_number(self.utilisation) and 0 < self.utilisation <= 1
        require(share, "autoscaler.utilisation", self.utilisation, "a share above 0, at most 1")

    @property
    def memory_s(self) -> float:
        return self.panic_s + self.stable_s  # a panic may begin so late, and lasts so long

    def start(self, setup: Setup) -> Any:
        return Past()

    def desired(self, mine: Any, fleet: Fleet, now: float) -> int:
        mine.seen.append((now, fleet.waiting + int(fleet.in_flight.sum())))
        while now - mine.seen[0][0] >= self.stable_s:
            mine.seen.popleft()
        stable, panic = self._needs(mine, now, self.stable_s), self._needs(mine, now, self.panic_s)
        if panic >= self.panic_threshold * max(1, fleet.gpus):
            mine.until_s = now + self.stable_s
        if now >= mine.until_s:
            mine.most = 0
            return stable
        mine.most = max(mine.most, panic, fleet.gpus)
        return int(mine.most)

    def _needs(self, mine: Past, now: float, window_s: float) -> int:
        """GPUs, for the mean of the last seconds."""
        counts = [one for at_s, one in mine.seen if now - at_s < window_s]
        return math.ceil(sum(counts) / len(counts) / (self.target * self.utilisation))
