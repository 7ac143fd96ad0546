"""Rows of a log that are no requests of their own: events of other kinds, spans around others, parts of one answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prebleexp.sim.types import Longs
from prebleexp.workloads.columns import found, matching
from prebleexp.workloads.elsewhere import answered_elsewhere
from prebleexp.workloads.rows import NOTHING, Rows

KINDS = ("type", "event", "event_type", "kind", "role", "span_kind")
SPANS, PARENTS = ("span_id",), ("parent_span_id", "parent_id")
IDS = ("request_id", "message.id", "response.id", "generation_id", "completion_id", "call_id")
CHUNKS = ("id",)
"""also of parts of an answer, some of which have no counts"""
NUMBERS = ("_id", "eventId")
"""by which who keeps logs tells rows apart, whatever they say"""
STANDS_FOR = (
    *("requests", "num_requests", "n_requests", "request_count", "requests_count", "num_model_requests"),
    *("total_requests", "call_count", "invocations"),
)
"""fields of a row that is a sum over several requests, as logs by the minute have"""
ANSWERS = ("n", "num_choices", "num_return_sequences", "best_of")
"""fields of a request that asks for several answers, whose tokens are counted together"""
MOST_ANSWERS = 128
MANY = 10
"""a doubt, if more than one of so many rows is there already"""


class Own(NamedTuple):
    rows: Longs
    left_out: tuple[str, ...]
    doubts: tuple[str, ...]


def own_requests(rows: Rows, counted: npt.NDArray[np.bool_], inputs: Longs) -> Own:
    """The rows that are requests of their own. `counted`: (n,) whether a row says how long a prompt or an answer was;
    `inputs`: (n,) how long the prompt was."""
    said, doubts = list[str](), list[str]()
    kept = np.ones(len(rows), np.bool_)

    def leave(where: npt.NDArray[np.bool_], why: str) -> None:
        where = where & kept
        said.extend(rows.left_out(where, why))
        kept[where] = False

    if counted.any() and not counted.all() and (found(rows, SPANS) or _of_other_kinds(rows, counted)):
        leave(~counted, "of other kinds, without tokens")
    leave(_parts(rows, counted), "without tokens, of which another row with the same id has them")
    leave(_around(rows, counted), "which are around others that have their tokens")
    repeats, several = _repeats(rows, kept, inputs, IDS)
    leave(repeats, "of which a later row has the same id and prompt")
    parts, _ = _repeats(rows, kept, inputs, CHUNKS)
    if parts.any():
        doubts.append(
            f"{int(parts.sum()):,} rows have the id and the prompt of a later one, and each is taken for a request; if "
            "they are parts of one answer, call the field request_id"
        )
    if several:
        doubts.append(f"{several:,} rows have the id of another one, and another prompt: each is taken for a request")
    own = rows.taken(np.flatnonzero(kept))
    doubts += [*_several(own), *answered_elsewhere(own)]
    if alike := _alike(own):
        doubts.append(
            f"{alike:,} of {int(kept.sum()):,} rows say the same as one before, in all fields; if they were written "
            "twice, leave these out"
        )
    return Own(np.flatnonzero(kept), tuple(said), tuple(doubts))


def _parts(rows: Rows, counted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """(n,) rows without counts, as of a log with a line a chunk, whose id is that of one with counts."""
    wrong = np.zeros(len(rows), np.bool_)
    name = found(rows, (*IDS, *CHUNKS))
    if name is None or counted.all():
        return wrong
    ids = list(rows.optional(name))
    whole = {value for value, one in zip(ids, counted, strict=True) if one and value not in NOTHING}
    return ~counted & np.array([value in whole for value in ids], np.bool_)


def _alike(rows: Rows) -> int:
    """How many rows are the same as an earlier one; 0 if they are too few to matter."""
    names = [name for name in rows.names if name not in NUMBERS]
    seen = {repr(one) for one in zip(*(rows.optional(name) for name in names), strict=True)}
    alike = len(rows) - len(seen)
    return alike if alike * MANY > len(rows) else 0


def _several(rows: Rows) -> list[str]:
    """Doubts about rows that seem to stand for several requests, or to have several answers."""
    doubts = []
    for name, values in _counting(rows, STANDS_FOR):
        doubts.append(f"{name} is up to {max(values):,}, and a row is taken for one request; list requests one by one")
    for name, values in _counting(rows, ANSWERS):
        if max(values) <= MOST_ANSWERS and len(set(values)) * MANY <= max(len(rows), MANY):  # else it numbers rows
            doubts.append(
                f"{name} is up to {max(values):,}: where a request has several answers, all of their tokens are taken "
                "for one long answer"
            )
    return doubts


def _counting(rows: Rows, aliases: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    """The fields of these names that have integers from 0 on alone, some above 1, and these."""
    for name in (name for alias in aliases for name in matching(rows, alias)):
        values = [str(value) for value in rows.optional(name) if value not in NOTHING]
        if values and all(one.isdecimal() for one in values) and max(map(int, values)) > 1:
            yield name, [int(one) for one in values]


def _of_other_kinds(rows: Rows, counted: npt.NDArray[np.bool_]) -> bool:
    """Whether a field says that rows without counts are of kinds that none with counts is of."""
    for alias in KINDS:
        name = found(rows, (alias,))
        if name is not None:
            kinds = [str(value) for value in rows.optional(name)]
            has = {kind for kind, one in zip(kinds, counted, strict=True) if one}
            if not has & {kind for kind, one in zip(kinds, counted, strict=True) if not one}:
                return True
    return False


def _around(rows: Rows, counted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """(n,) spans with counts within which others have counts, whose sum theirs are."""
    wrong = np.zeros(len(rows), np.bool_)
    span, parent = found(rows, SPANS), found(rows, PARENTS)
    if span is None or parent is None:
        return wrong
    row_of = {value: row for row, value in enumerate(rows.optional(span)) if value not in NOTHING}
    parents = list(rows.optional(parent))
    for row in np.flatnonzero(counted).tolist():
        above, seen = row_of.get(parents[row]), {row}
        while above is not None and above not in seen:
            wrong[above] = True
            seen.add(above)
            above = row_of.get(parents[above])
    return wrong & counted


def _repeats(
    rows: Rows, kept: npt.NDArray[np.bool_], inputs: Longs, ids: Sequence[str]
) -> tuple[npt.NDArray[np.bool_], int]:
    """(n,) rows of which a later one has the same id and the same prompt, as parts of an answer that is streamed have;
    and how many have the id of one with another prompt."""
    wrong, several = np.zeros(len(rows), np.bool_), 0
    name = found(rows, ids)
    if name is None:
        return wrong, several
    last: dict[object, int] = {}
    for row, value in enumerate(rows.optional(name)):
        if not kept[row] or value in NOTHING:
            continue
        before = last.get(value)
        if before is not None:
            wrong[before] = same = bool(inputs[before] == inputs[row])
            several += not same
        last[value] = row
    return wrong, several
