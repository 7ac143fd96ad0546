"""The GPU with the least price, or that for which a copy has been paid."""

from __future__ import annotations

from prebleexp.policies.marginal.book import Book
from prebleexp.policies.marginal.price import Asked, Price, price_of, total
from prebleexp.policies.marginal.rent import buy, chance, paid, pay
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, View


@compiled
def choose(mine: Book, view: View, request: int, asked: Asked, now: float) -> tuple[int, Price, int, float]:
    """(the GPU, its price, the GPU that might be sent a copy or -1, what has been paid for that)."""
    best = int(view.candidates[0])
    least = price_of(mine, view, asked, best, int(mine.hits[best]), now)
    heir, price_there, as_holder, mean = NONE, 0.0, 0.0, 0.0
    for gpu in view.candidates:
        g, held = int(gpu), int(mine.hits[gpu])
        price = price_of(mine, view, asked, g, held, now)
        if total(price) < total(least):
            best, least = g, price
        had = total(price)
        if held < asked.most:
            had = total(price_of(mine, view, asked, g, asked.most, now))
            if heir == NONE or had < as_holder:
                heir, price_there, as_holder = g, total(price), had
        mean += had / len(view.candidates)
    if heir == NONE:
        return best, least, heir, 0.0
    low = int(mine.hits[heir])
    rent = paid(mine, view, request, low, asked.most, price_there - as_holder)
    if price_there - rent < total(least):
        best, least = heir, price_of(mine, view, asked, heir, low, now)
    if mine.hits[best] < asked.most:
        buy(mine, view, request, int(mine.hits[best]), asked.most)
    else:
        above = total(least) - (1.0 + chance(mine, view)) * mean
        pay(mine, view, request, low, asked.most, asked.rent_weight * above)
    return best, least, heir, rent
