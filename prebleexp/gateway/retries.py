"""Attempts that fail are made again, after a wait, while a budget lasts.

The k-th wait of a request is uniform from 0 to min(max, initial · multiplier ** (k - 1)), and the same for every
policy: it is drawn before the run. Budgets (spec: clusters.md, section 5): `RATIO` as Envoy's, `WINDOW` as Finagle's,
`TOKENS` as gRPC's.
"""

from __future__ import annotations

from typing import Any

from prebleexp.gateway.books import RATIO, TOKENS, WINDOW, Books
from prebleexp.sim.compiled import compiled
from prebleexp.sim.events import EXPIRE, key, push
from prebleexp.sim.records import World
from prebleexp.sim.sessions import look_ahead


@compiled
def begin(mine: Books, now: float) -> None:
    """A request is due: its first attempt."""
    if mine.again.terms.budget == WINDOW:
        mine.again.came[mine.control.came] = now
        mine.control.came += 1


@compiled
def comes_again(mine: Books, world: World, request: int, now: float) -> int:
    """An attempt has failed: whether there will be another. Then its timer is set, and it is away until that rings."""
    gate, one, terms = mine.control, mine.requests[request], mine.again.terms
    over(mine, request)
    if terms.budget == TOKENS:
        gate.tokens = max(0.0, gate.tokens - 1.0)
    gate.away += 1
    if one.retries >= terms.retries or not lasts(mine, world, now):
        gate.away -= 1
        return 0
    longest = min(terms.max_s, terms.initial_s * terms.multiplier**one.retries)
    one.again_s = now + mine.again.draws[request, one.retries] * longest
    one.retries += 1
    one.away = one.retrying = 1
    gate.retrying += 1
    if terms.budget == WINDOW:
        mine.again.tried[gate.tried] = now
        gate.tried += 1
    push(world.sessions.timers, world.sessions.control, one.again_s, key(EXPIRE, request))
    look_ahead(world)
    return 1


@compiled
def over(mine: Books, request: int) -> None:
    """An attempt is over; if it was a retry, there is one less."""
    one = mine.requests[request]
    mine.control.retrying -= one.retrying
    one.retrying = 0


@compiled
def comes_back(mine: Books, request: int) -> None:
    """A request whose client waited to try again is no longer away."""
    one = mine.requests[request]
    mine.control.away -= one.away
    one.away = 0


@compiled
def succeeds(mine: Books) -> None:
    terms = mine.again.terms
    if terms.budget == TOKENS:
        mine.control.tokens = min(float(terms.most_tokens), mine.control.tokens + terms.ratio)


@compiled
def lasts(mine: Books, world: World, now: float) -> bool:
    """Whether the budget lasts for one more retry."""
    gate, terms = mine.control, mine.again.terms
    if terms.budget == RATIO:
        return bool(gate.retrying < max(terms.least, terms.ratio * (world.control.present - gate.away)))
    if terms.budget == TOKENS:
        return bool(gate.tokens > terms.most_tokens / 2)
    if terms.budget == WINDOW:
        gate.came_before = _passed(mine.again.came, int(gate.came_before), int(gate.came), now - terms.window_s)
        gate.tried_before = _passed(mine.again.tried, int(gate.tried_before), int(gate.tried), now - terms.window_s)
        tried, came = gate.tried - gate.tried_before, gate.came - gate.came_before
        return bool(tried + 1 <= terms.least * terms.window_s + terms.ratio * came)
    return True


@compiled
def _passed(times: Any, first: int, end: int, since_s: float) -> int:
    """The first row, from `first` on, that is later."""
    while first < end and times[first] <= since_s:
        first += 1
    return first
