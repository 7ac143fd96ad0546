"""How long requests of a log took, until their first token and their end, and how long somebody thought after it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Floats, Ints, Longs
from prebleexp.workloads import ended
from prebleexp.workloads.came import TIMES, clock_of
from prebleexp.workloads.clock import SUFFIXES, arrival_of, since_first, unit_of
from prebleexp.workloads.columns import Columns, found, matching, plain
from prebleexp.workloads.dates import joined
from prebleexp.workloads.rows import NOTHING, Records, Rows
from prebleexp.workloads.trace import UNTIMED, Span, Times

FIRSTS = tuple(
    f"{stem}{end}"
    for stem in ("completion_start_time", "first_token_time", "first_token_at", "first_token_timestamp")
    for end in ("", *(f"_{one}" for ends in SUFFIXES.values() for one in ends))
)
"""when the first token of an answer came; LiteLLM's, where an answer was not streamed, is when it ended"""


def lasted(rows: Rows, columns: Columns, outputs: Longs, came_s: Floats, session: Ints, turn: Ints) -> Times:
    """Of (n,) requests in order of (n,) `came_s`. A field with how long they took comes before when they ended."""
    has_start = "arrival" in columns or found(rows, TIMES) is not None
    start = arrival_of(rows, columns, TIMES) if has_start else None
    own = ended.took(rows, columns, outputs)
    end = _alone(rows, ended.ENDS)
    took_s = _between(rows, start, end) if own is None else own.seconds
    if took_s is None:
        return UNTIMED
    first, first_s = _alone(rows, FIRSTS), None
    if first is not None and own is None and (until := _between(rows, start, first)) is not None:
        first_s = np.where(until < took_s, until, 0.0)
    order = np.lexsort((turn, session))
    before, later = order[:-1], order[1:]
    known = (session[before] == session[later]) & (took_s[before] > 0)
    thought_s = np.maximum(came_s[later] - came_s[before] - took_s[before], 0.0)[known]
    return Times(
        _span(f"{start} to {end}" if own is None else own.name, took_s[took_s > 0]),
        None if first_s is None else _span(f"{start} to {first}", first_s[first_s > 0]),
        _span("an answer to the next turn", thought_s),
    )


def _alone(rows: Rows, aliases: Sequence[str]) -> str | None:
    """The first of these that there is, and that one field alone is called."""
    return next((names[0] for alias in aliases if len(names := matching(rows, alias)) == 1), None)


def _span(name: str, seconds: Floats) -> Span | None:
    return Span(name, float(seconds.mean()), float(np.quantile(seconds, 0.95))) if seconds.size else None


def _between(rows: Rows, start: str | None, end: str | None) -> Floats | None:
    """(n,) seconds between two fields, 0 where one says nothing; None where they have no common clock."""
    if start is None or end is None or start == end or unit_of(plain(start)) != unit_of(plain(end)):
        return None
    columns = [list(one.optional(name)) for one, name in (joined(rows, start), joined(rows, end))]
    known = np.array([not {*pair} & {*NOTHING} for pair in zip(*columns, strict=True)], np.bool_)
    at = np.flatnonzero(known)
    seconds = np.zeros(len(rows))
    if not at.size:
        return None
    typed = [rows.taken(at).timestamps(name) for name in (start, end)]
    if typed[0] is not None and typed[1] is not None:
        both = since_first(np.concatenate([typed[0][1], typed[1][1]]))
    else:
        values = [{start: column[row]} for column in columns for row in at]
        try:
            both = clock_of(
                Records(rows.path, values, list(range(len(values)))), start, None, unit_of(plain(start))
            ).seconds
        except InvalidInput:
            return None
    seconds[at] = np.maximum(both[at.size :] - both[: at.size], 0.0)
    return seconds if (seconds > 0).any() else None
