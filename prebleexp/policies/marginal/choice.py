"""The GPU with the least price, or that for which a copy has been paid."""

from __future__ import annotations

from prebleexp.policies.marginal.book import Book
from prebleexp.policies.marginal.price import Asked, Price, price_at, price_of, there_of, total
from prebleexp.policies.marginal.rent import buy, chance, paid, pay
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, View


@compiled
def choose(mine: Book, view: View, request: int, asked: Asked, now: float) -> tuple[int, Price, int, float]:
    """(the GPU, its price, the GPU that might be sent a copy or -1, what has been paid for that)."""
    best, least, heir, as_holder, mean = NONE, 0.0, NONE, 0.0, 0.0
    for gpu in view.candidates:
        g, held = int(gpu), int(mine.hits[gpu])
        there = there_of(mine, view, asked, g)
        had = total(price_of(mine, view, asked, g, there, asked.most, now))
        mean += had / len(view.candidates)
        if held < asked.most and (heir == NONE or had < as_holder):
            heir, as_holder = g, had
        if best == NONE or had < least:  # whoever loses with all of it cached is not priced again without
            price = had if held == asked.most else total(price_of(mine, view, asked, g, there, held, now))
            if best == NONE or price < least:
                best, least = g, price
    if heir == NONE:
        return best, price_at(mine, view, asked, best, now), heir, 0.0
    low, price_there = int(mine.hits[heir]), total(price_at(mine, view, asked, heir, now))
    rent = paid(mine, view, request, low, asked.most, price_there - as_holder)
    if price_there - rent < least:
        best, least = heir, price_there
    if mine.hits[best] < asked.most:
        buy(mine, view, request, int(mine.hits[best]), asked.most)
    else:
        above = least - (1.0 + chance(mine, view)) * mean
        pay(mine, view, request, low, asked.most, asked.rent_weight * above)
    return best, price_at(mine, view, asked, best, now), heir, rent
