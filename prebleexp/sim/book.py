"""The router's own book: what it sent to each GPU and has not heard the end of."""

from __future__ import annotations

from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import World


@compiled
def enter(world: World, request: int) -> None:
    """The request belongs to its GPU from now on, …"""
    seen = world.seen.requests[request]
    sent = world.seen.sent[seen.gpu]
    sent.outstanding += 1
    sent.tokens += seen.prompt_tokens
    world.control.most = max(world.control.most, sent.outstanding)


@compiled
def strike(world: World, request: int) -> None:
    """… and no more."""
    seen = world.seen.requests[request]
    sent = world.seen.sent[seen.gpu]
    sent.outstanding -= 1
    sent.tokens -= seen.prompt_tokens
