"""The terms of every decision: of the GPU that was chosen, and of the next best one."""

from __future__ import annotations

from typing import Any

from prebleexp.policies.marginal.book import Book
from prebleexp.policies.marginal.price import Asked, Price, price_at, total
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, View


@compiled
def note(mine: Book, view: View, request: int, asked: Asked, best: int, heir: int, rent: float, now: float) -> None:
    """Keep what was compared, the heir's price less the rent that was paid for its copy. A request that is routed again
    is kept as it was last."""
    row = mine.decisions[request]
    row.asked += 1
    row.at_s, row.gpu, row.next_gpu = now, best, NONE
    _keep(row.chosen, price_at(mine, view, asked, best, now), rent if best == heir else 0.0)
    least = 0.0
    for gpu in view.candidates:
        if gpu != best:
            price = price_at(mine, view, asked, int(gpu), now)
            less = rent if gpu == heir else 0.0
            if row.next_gpu == NONE or total(price) - less < least:
                row.next_gpu, least = gpu, total(price) - less
                _keep(row.next, price, less)


@compiled
def _keep(into: Any, price: Price, rent: float) -> None:
    into[0], into[1], into[2] = price.own_wait, price.own_decode, price.tail
    into[3], into[4], into[5] = price.others_wait, price.others_decode, price.coming
    into[6], into[7], into[8], into[9] = price.copy, price.memory, price.settle, -rent
