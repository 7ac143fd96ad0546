"""When a second GPU is to have a prefix: once its requests have paid for the copy (rent or buy; Karlin et al. 1988).

A copy delays others once, and many may use it. No single request gains enough, so that none would ever buy it. So each
that goes to a GPU which has its prefix pays rent: by how much its price there is above the mean of all GPUs, were it
everywhere, and by more than chance makes loads differ. So rents add up where the GPUs that have the prefix have too
much to do. What has been paid is kept by segment, and fades as memory turns over, for so long would a copy have
stayed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.policies.marginal.book import Book
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import View


@compiled
def paid(mine: Book, view: View, request: int, low: int, high: int, price: float) -> float:
    """How much of the price of a copy of the prompt's tokens from `low` to `high` has been paid."""
    row, begin, total = view.requests[request], low, 0.0
    for segment in range(row.first_segment, row.first_segment + row.segments):
        end = min(int(view.prompts.ends[segment]), high)
        if end > begin:
            share = price * (end - begin) / (high - low)
            total += min(share, _left(mine, view.prompts.ids[segment]))
            begin = end
    return float(total)


@compiled
def pay(mine: Book, view: View, request: int, low: int, high: int, rent: float) -> None:
    """Add a rent, which may be below 0, for these tokens of the prompt. Nobody owes anything."""
    row, begin = view.requests[request], low
    for segment in range(row.first_segment, row.first_segment + row.segments):
        end = min(int(view.prompts.ends[segment]), high)
        if end > begin:
            name = view.prompts.ids[segment]
            mine.rents[name].paid = max(0.0, _left(mine, name) + rent * (end - begin) / (high - low))
            mine.rents[name].at = mine.turnovers[0]
            begin = end


@compiled
def chance(mine: Book, view: View) -> float:
    """How much loads differ by chance, as a share of them: one standard deviation of as many requests as are on a GPU
    in the mean, where each goes to any."""
    there = 0
    for g in view.candidates:
        there += mine.gpus[g].waiting + mine.gpus[g].running
    return float(np.sqrt(len(view.candidates) / max(len(view.candidates), there)))


@compiled
def buy(mine: Book, view: View, request: int, low: int, high: int) -> None:
    """These tokens of the prompt are copied: what was paid for them is spent."""
    row, begin = view.requests[request], low
    for segment in range(row.first_segment, row.first_segment + row.segments):
        end = min(int(view.prompts.ends[segment]), high)
        if end > begin:
            mine.rents[view.prompts.ids[segment]].paid = 0.0
            begin = end


@compiled
def turn(mine: Book, view: View, new: int) -> None:
    """So many tokens are computed: memory turns over by their share of all."""
    tokens = 0
    for g in view.candidates:
        tokens += view.gpus[g].kv_tokens
    mine.turnovers[0] += new / max(1, tokens)


@compiled
def _left(mine: Book, segment: Any) -> float:
    """Of what was paid for a segment."""
    rent = mine.rents[segment]
    return float(rent.paid * np.exp(rent.at - mine.turnovers[0])) if rent.paid > 0.0 else 0.0
