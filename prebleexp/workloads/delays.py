"""Times of traces in Mooncake's form: of each request, or of the first of a session, which others come after."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Floats, Ints, Longs
from prebleexp.workloads.clock import UNITS, clock, in_order, unit_of
from prebleexp.workloads.columns import Columns, found, own, plain, set_column
from prebleexp.workloads.rows import NOTHING, Rows
from prebleexp.workloads.trace import Links, told

ARRIVAL, DELAYS, SESSION = "timestamp", ("delay", "delay_ms"), "session_id"


class Timed(NamedTuple):
    """Rows of a trace with the times between them."""

    order: Longs
    """(n,) rows as their requests stand in the trace"""
    starts: Floats
    """(n,) in that order; of a turn that comes after another, its session's"""
    says: str
    doubts: tuple[str, ...]
    sessions: tuple[Ints, Ints] | None
    """in that order; None: the file does not say"""
    by: str
    """which field says it"""
    links: Links | None
    closed: bool


def timed(rows: Rows, columns: Columns, unit: str | None) -> Timed:
    """Raises InvalidInput, naming row and field, for what is not valid."""
    delay = set_column(rows, columns, "delay") or found(rows, DELAYS)
    session = set_column(rows, columns, "session") or (SESSION if SESSION in rows else None)
    arrival = set_column(rows, columns, "arrival") or ARRIVAL
    if delay is not None and session is not None:
        return _delayed(rows, arrival, delay, session, unit)
    name = own(rows, columns, "arrival", ARRIVAL)
    when = clock(rows, name, unit, "ms", known=True, least=0)
    order, starts = in_order(when.seconds)
    sessions = None if session is None else told(rows.codes(session)[order])
    return Timed(order, starts, when.says, when.doubts, sessions, session or "", None, False)


def _delayed(rows: Rows, arrival: str, delay: str, session: str, unit: str | None) -> Timed:
    """A row without a delay has a time, or is a session's first: then at 0; one with a delay comes so long after the
    answer before it, whether or not it has a time too."""
    waits = list(rows.optional(delay))
    times = list(rows.optional(arrival)) if arrival in rows else [None] * len(rows)
    codes = rows.codes(session)
    if (codes < 0).any():
        raise rows.wrong(int(np.argmax(codes < 0)), f"there is no {session}; it must be there where there are delays")
    first: dict[int, int] = {}
    for row, code in enumerate(codes.tolist()):
        first.setdefault(code, row)
    heads = np.array(sorted(first.values()))
    timed_heads = [row for row in heads.tolist() if times[row] not in NOTHING]
    doubts: tuple[str, ...] = ()
    start = np.zeros(len(rows))
    if timed_heads:
        if len(timed_heads) < len(heads):
            row = next(row for row in heads.tolist() if times[row] in NOTHING)
            raise rows.wrong(row, f"there is no {arrival}; a session's first request must have one, as others have")
        when = clock(rows.taken(np.array(timed_heads)), arrival, unit, "ms", known=True, least=0)
        start[np.array(timed_heads)] = when.seconds - when.seconds.min()
        says, doubts = when.says, when.doubts
    else:
        says = f"there is no {arrival}: all sessions start at once"
        doubts = (f"sessions have no {arrival}: they all start at 0; workload.load=poisson spreads them",)
    size = UNITS[unit or unit_of(plain(delay)) or "ms"]
    each = np.zeros(len(rows))
    for row, value in enumerate(waits):
        if value in NOTHING or row == first[int(codes[row])]:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**63:
            raise rows.wrong(row, f"{delay}={value!r} is not valid; it must be a number >= 0")
        each[row] = value / size
    for row in range(len(rows)):
        head = first[int(codes[row])]
        if row != head and waits[row] in NOTHING:
            raise InvalidInput(
                f"{rows.path}: row {rows.number(row)}: there is no {delay}; a later turn of {session} needs one"
            )
        start[row] = start[head]
    order = np.lexsort((np.arange(len(rows)), start))
    sessions = told(codes[order])
    place = np.empty(len(rows), np.int64)
    last: dict[int, int] = {}
    later, before = list[int](), list[int]()
    for at, row in enumerate(order.tolist()):
        place[row] = at
        code = int(codes[row])
        if code in last:
            later.append(at)
            before.append(last[code])
        last[code] = at
    links = Links(np.array(later, np.int64), np.array(before, np.int64), each[order])
    says += f"; later turns {delay} after the answer before"
    return Timed(order, start[order], says, doubts, sessions, session, links, True)
