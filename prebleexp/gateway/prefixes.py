"""Whose prompt goes on longest with what was sent before (DLPM: Deficit Longest Prefix Match, Cao et al.,
arXiv 2501.14312), among clients that have credit left. When none has, each that waits gets a quantum more.

What was sent is remembered for good, wherever it went: a router that follows prefixes knows where.
"""

from __future__ import annotations

from prebleexp.gateway.books import Books
from prebleexp.gateway.lanes import may_be_asked
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, World


@compiled
def longest(mine: Books, world: World) -> int:
    """The request that the router is to be asked about, of several the one that joined first; -1: it was asked about
    all. `score` is what a client was given beyond its quanta."""
    best, most, waits = NONE, NONE, True
    while best == NONE and waits:
        waits = False
        for at in range(len(mine.lanes) - 1):
            lane = mine.lanes[at]
            waits = waits or lane.upcoming != NONE
            request = lane.upcoming if lane.score < 0 else NONE
            while request != NONE:
                one = mine.requests[request]
                if may_be_asked(mine, request):
                    tokens = _sent_before(mine, world, request)
                    if tokens > most or (tokens == most and one.number < mine.requests[best].number):
                        best, most = request, tokens
                request = one.next
        if best == NONE:
            _refill(mine)
    return int(best)


@compiled
def _refill(mine: Books) -> None:
    for at in range(len(mine.lanes) - 1):
        if mine.lanes[at].upcoming != NONE:
            mine.lanes[at].score -= mine.terms.quantum


@compiled
def _sent_before(mine: Books, world: World, request: int) -> int:
    """Tokens of its prompt, in whole segments: an id stands for all that leads to it, too."""
    row, prompts = world.seen.requests[request], world.seen.prompts
    low, high = 0, int(row.segments)
    while low < high:
        middle = (low + high) >> 1
        if mine.sent[prompts.ids[row.first_segment + middle]]:
            low = middle + 1
        else:
            high = middle
    return int(prompts.ends[row.first_segment + low - 1]) if low > 0 else 0


@compiled
def remember(mine: Books, world: World, request: int) -> None:
    """It is sent, and what is made of its answer may come back."""
    row, prompts = world.seen.requests[request], world.seen.prompts
    for segment in range(row.segments):
        mine.sent[prompts.ids[row.first_segment + segment]] = True
    if row.answer_segment != NONE:
        mine.sent[row.answer_segment] = True
