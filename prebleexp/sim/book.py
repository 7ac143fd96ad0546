"""The book: what was sent to each GPU and has not ended, as far as was heard; and what each of several routers has of
it in a book of its own."""

from __future__ import annotations

from prebleexp.sim.compiled import compiled
from prebleexp.sim.plug import call_none
from prebleexp.sim.records import World


@compiled
def enter(world: World, request: int, is_sent: int) -> None:
    """The request belongs to its GPU from now on, where a router has sent it, or it was moved (`is_sent` is 0), …"""
    seen = world.seen.requests[request]
    sent = world.seen.sent[seen.gpu]
    sent.outstanding += 1
    sent.tokens += seen.prompt_tokens
    sent.requests += is_sent
    world.control.most = max(world.control.most, sent.outstanding)
    if sent.outstanding == world.rules.max_in_flight:
        world.control.stale = 1
    call_none(world.books.write, world.books.own, world, request, 1, is_sent)


@compiled
def strike(world: World, request: int) -> None:
    """Take a request off the book that `enter` wrote it into."""
    seen = world.seen.requests[request]
    sent = world.seen.sent[seen.gpu]
    sent.outstanding -= 1
    sent.tokens -= seen.prompt_tokens
    if sent.outstanding == world.rules.max_in_flight - 1:
        world.control.stale = world.control.offering = 1
    call_none(world.books.write, world.books.own, world, request, -1, 0)
