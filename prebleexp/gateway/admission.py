"""Who is let in."""

from __future__ import annotations

from prebleexp.gateway.books import BY_ADMISSION, Books
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import World


@compiled
def refused(mine: Books, world: World, request: int, now: float) -> int:
    """`BY_ADMISSION`, or 0: it is let in. It is among those present already."""
    terms = mine.terms
    if 0 < terms.limit < world.control.present:
        return BY_ADMISSION
    return 0
