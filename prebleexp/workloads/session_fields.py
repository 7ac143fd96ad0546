"""Which requests of a log are of one session, where a field says it: its name, or the request that came before."""

from __future__ import annotations

import numpy as np

from prebleexp.sim.types import Ints, Longs
from prebleexp.workloads.columns import Columns, found, matching, set_column
from prebleexp.workloads.inferred import chains
from prebleexp.workloads.rows import NOTHING, Rows
from prebleexp.workloads.trace import told

SESSIONS = (
    *("session_id", "conversation_id", "conversation.id", "session.id", "chat_id", "thread_id", "x_correlation_id"),
    "session",
)
HEADERS = ("x_", "http_x_", "http_")
"""what gateways put before a session's name where it came as a header: x-session-id, and http_x_session_id in nginx"""
NAMED = (*SESSIONS, *(before + one for before in HEADERS for one in SESSIONS))
TURNS = ("turn_index", "turn", "round_index", "turn_id")
OF_LANGSMITH = "parent_run_id"
"""where it is, session_id is a project"""
THREAD = "thread_id"
"""where it is a number, it is one of the operating system"""
BEFORE = {
    "previous_response_id": ("response_id", "response.id", "id"),
    "parent_chat_id": ("chat_id",),
    "parent_message_id": ("message_id", "id"),
    "parent_request_id": ("request_id", "id"),
}
"""by the field that names the request before: those that name a request, as OpenAI, Bailian and others do"""

Sessions = tuple[str | None, tuple[Ints, Ints] | None]
"""the field, and of n requests sessions and turns; None: nothing says it"""


def read(rows: Rows, columns: Columns) -> Sessions:
    """Of rows in order of arrival. Where requests name those before them, sessions are what hangs together so."""
    name = set_column(rows, columns, "session")
    if name is None and (linked := _linked(rows)) is not None:
        return linked
    if name is None:
        no_sessions: tuple[str, ...] = ("session_id",) if found(rows, (OF_LANGSMITH,)) else ()
        no_sessions += (THREAD,) if _are_numbers(rows, THREAD) else ()
        name = found(rows, [one for one in NAMED if one not in no_sessions])
    return (None, None) if name is None else (name, _named(rows, name))


def _are_numbers(rows: Rows, alias: str) -> bool:
    return any(isinstance(value, int) for name in matching(rows, alias) for value in rows.optional(name))


def _linked(rows: Rows) -> Sessions | None:
    for before, own in BEFORE.items():
        above, name = found(rows, (before,)), found(rows, own)
        if above is not None and name is not None:
            parent = _parents(rows.keys(name), rows.keys(above))
            if (parent >= 0).any():
                return above, chains(parent)
    return None


def _parents(ids: list[object], above: list[object]) -> Longs:
    """(n,) the earlier row that each one names; −1: none."""
    row_of, found_rows = dict[object, int](), np.full(len(ids), -1, np.int64)
    for row, (value, before) in enumerate(zip(ids, above, strict=True)):
        if before not in NOTHING:
            found_rows[row] = row_of.get(before, -1)
        row_of[value] = row
    return found_rows


def _named(rows: Rows, name: str) -> tuple[Ints, Ints]:
    """A turn that is not after the one before it begins another session."""
    codes = rows.codes(name)
    turn = found(rows, TURNS)
    if turn is not None:
        last: dict[int, tuple[int, int]] = {}
        codes = codes.copy()
        fresh = int(codes.max(initial=-1)) + 1
        for row, (code, number) in enumerate(zip(codes.tolist(), rows.counts(turn).tolist(), strict=True)):
            now, before = last.get(code, (code, -1))
            if number >= 0 and number <= before and code >= 0:
                now, fresh = fresh, fresh + 1
            last[code] = (now, number)
            codes[row] = now if code >= 0 else code
    return told(codes)
