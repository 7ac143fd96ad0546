"""Dynamo's planner by load (ai-dynamo 1.6.1), of workers that do prompts and outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prebleexp.autoscalers.base import Rule
from prebleexp.checks import is_number, require

if TYPE_CHECKING:
    from prebleexp.sim.fleet import Fleet
    from prebleexp.sim.types import Setup

FIELDS = ("queued_up", "queued_down", "kv_up", "kv_down")


@dataclass(frozen=True)
class DynamoLoad(Rule):
    """One GPU more where the prompt tokens that wait on one, on average, are above `queued_up` times the context, or
    the use of KV is above `kv_up`; one less where they are below `queued_down` times, and KV is below `kv_down`. Dynamo
    says the first of its prefill workers and the second of its decode workers; here each GPU is both."""

    interval_s: float = 5.0
    queued_up: float = 1.0
    """prompt tokens that wait on a GPU, over the context: one more above, …"""
    queued_down: float = 0.1
    """… one less below"""
    kv_up: float = 1.0
    """share of KV memory in use: one more above, …"""
    kv_down: float = 0.6
    """… one less below"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in FIELDS:
            value = getattr(self, name)
            require(is_number(value) and value >= 0, f"autoscaler.{name}", value, "a number >= 0")

    @property
    def memory_s(self) -> float:
        return 0.0

    def start(self, setup: Setup) -> Any:
        return setup.context_length

    def desired(self, mine: Any, fleet: Fleet, now: float) -> int:
        if not len(fleet.in_flight):
            return fleet.gpus
        queued, used = float(fleet.waiting_tokens.mean()) / mine, float(fleet.kv_use.mean())
        more = queued > self.queued_up or used > self.kv_up
        less = queued < self.queued_down and used < self.kv_down
        return fleet.gpus + int(more) - int(less)
