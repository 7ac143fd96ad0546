"""Links as recordings of offloading have them: a copy's latency, too, is spent when those before it are over."""

from __future__ import annotations

from typing import Any

from prebleexp.sim import links
from prebleexp.sim.compiled import compiled
from prebleexp.sim.links import drop as drop
from prebleexp.sim.links import happens as happens
from prebleexp.sim.links import takes as takes


@compiled
def ask(self: None, made: Any, subject: int, source: int, target: int, size: float, now: float) -> None:
    """Whoever comes behind it begins a latency later, which is then its own."""
    links.ask(self, made, subject, source, target, size, now)
    one = made.transfers[subject]
    for port in (made.ports[one.egress], made.ports[one.ingress]):
        if port.free_s > 0:
            port.free_s += made.ports[one.egress].latency_s
