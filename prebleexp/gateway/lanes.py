"""Lists of who waits, and whose turn it is."""

from __future__ import annotations

from prebleexp.gateway.books import DRR, EDF, ROUND_ROBIN, VTC, Books
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE


@compiled
def insert(mine: Books, at: int, request: int) -> None:
    """A request joins a lane, behind those of the same rank."""
    lane, one = mine.lanes[at], mine.requests[request]
    before = lane.tail
    while before != NONE and mine.requests[before].rank > one.rank:
        before = mine.requests[before].previous
    behind = lane.head if before == NONE else mine.requests[before].next
    one.previous, one.next = before, behind
    if before == NONE:
        lane.head = request
    else:
        mine.requests[before].next = request
    if behind == NONE:
        lane.tail = request
    else:
        mine.requests[behind].previous = request
    lane.length += 1


@compiled
def take_out(mine: Books, at: int, request: int) -> None:
    lane, one = mine.lanes[at], mine.requests[request]
    if one.previous == NONE:
        lane.head = one.next
    else:
        mine.requests[one.previous].next = one.next
    if one.next == NONE:
        lane.tail = one.previous
    else:
        mine.requests[one.next].previous = one.previous
    lane.length -= 1


@compiled
def may_be_asked(mine: Books, request: int) -> bool:
    """Whether nobody was asked about it in this round, nor is any router about to be."""
    one = mine.requests[request]
    return bool(one.asked != mine.control.rounds and one.offered == 0)


@compiled
def come_back(mine: Books, at: int, request: int) -> None:
    """A router holds a request, and a new round has begun since it was asked."""
    lane, one = mine.lanes[at], mine.requests[request]
    if lane.upcoming == NONE:
        lane.upcoming = request
        return
    other = mine.requests[lane.upcoming]
    if one.rank < other.rank or (one.rank == other.rank and one.number < other.number):
        lane.upcoming = request


@compiled
def pass_by(mine: Books, at: int) -> None:
    """The router is asked about the first of a lane who was not asked about, or that one leaves: who comes then?"""
    lane = mine.lanes[at]
    request = mine.requests[lane.upcoming].next
    while request != NONE and not may_be_asked(mine, request):
        request = mine.requests[request].next
    lane.upcoming = request


@compiled
def begin_round(mine: Books) -> None:
    """The router may be asked about everybody again."""
    mine.control.rounds += 1
    mine.control.asked = 0
    for at in range(len(mine.lanes) - 1):
        mine.lanes[at].upcoming = mine.lanes[at].head
        if mine.lanes[at].head != NONE and not may_be_asked(mine, int(mine.lanes[at].head)):
            pass_by(mine, at)


@compiled
def chosen(mine: Books) -> int:
    """The lane whose turn it is, of those with somebody about whom the router was not asked; -1: there is none."""
    order, count, best = mine.terms.order, len(mine.lanes) - 1, NONE
    for i in range(count):
        at = (mine.control.turn + 1 + i) % count if order == ROUND_ROBIN else i
        if mine.lanes[at].upcoming == NONE:
            continue
        if best == NONE or _is_before(mine, at, best):
            best = at
        if order not in (EDF, VTC):
            break
    return _in_credit(mine) if order == DRR and best != NONE else best


@compiled
def _in_credit(mine: Books) -> int:
    """The lane whose turn it is, as long as its credit is enough for who comes; else the next, with a quantum more."""
    at, count = int(mine.control.turn), len(mine.lanes) - 1
    while mine.lanes[at].upcoming == NONE or mine.requests[mine.lanes[at].upcoming].cost > mine.lanes[at].score:
        at = (at + 1) % count
        if mine.lanes[at].upcoming != NONE:
            mine.lanes[at].score += mine.terms.quantum
    return at


@compiled
def _is_before(mine: Books, at: int, best: int) -> bool:
    if mine.terms.order == VTC:
        return bool(mine.lanes[at].score < mine.lanes[best].score)
    one, other = mine.requests[mine.lanes[at].upcoming], mine.requests[mine.lanes[best].upcoming]
    return bool(one.rank < other.rank or (one.rank == other.rank and one.number < other.number))
