"""What an event brings of which routers hear when all of it has been done."""

from __future__ import annotations

from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import World


@compiled
def tell(world: World, kind: int, request: int, g: int, tokens: int) -> None:
    """Let the router hear of it, if it listens, when this event has been dealt with."""
    control = world.control
    news = world.news[control.news]
    news.kind, news.request, news.gpu, news.tokens = kind, request, g, tokens
    control.news += 1
