"""Rows of a log that are no requests of their own: events of other kinds, spans around others, parts of one answer,
sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prebleexp.sim.types import Longs
from prebleexp.workloads.columns import found, matching
from prebleexp.workloads.elsewhere import answered_elsewhere
from prebleexp.workloads.rows import NOTHING, Rows

KINDS = (
    *("type", "event", "event_type", "kind", "role", "span_kind", "path", "uri", "url", "endpoint", "route"),
    *("request_path", "request_uri", "operation", "operation_name", "operation.name", "call_type"),
)
SPANS = {
    "parent_span_id": ("span_id",),
    "parent_run_id": ("run_id", "id"),
    "parent_observation_id": ("observation_id", "id"),
    "parent_id": ("span_id",),
}
"""by the field that names who a span is within: those that name a span, as OpenTelemetry, LangSmith and Langfuse do"""
TRACES = "trace_id"
"""which rows have that are spans, though they are called `id`: Zipkin's"""
IDS = ("request_id", "message.id", "response.id", "generation_id", "completion_id", "call_id", "rid")
CHUNKS = ("id",)
"""also of parts of an answer, some of which have no counts"""
CHUNK = ".chunk"
"""with which the kind of OpenAI's objects ends that are parts of an answer"""
NUMBERS = ("_id", "eventId")
"""by which who keeps logs tells rows apart, whatever they say"""
STANDS_FOR = (
    *("requests", "num_requests", "n_requests", "request_count", "requests_count", "num_model_requests"),
    *("total_requests", "call_count", "invocations", "batch_size", "item_count"),
)
"""fields of a row that is a sum over several requests, as logs by the minute have"""
TALLIES = ("count", "calls", "hits")
"""likewise, where it is the row's own and no object's"""
ANSWERS = ("n", "num_choices", "num_return_sequences", "best_of")
"""fields of a request that asks for several answers, whose tokens are counted together"""
MOST_ANSWERS = 128
LEAST_SUMMED = 4
"""rows, of which one may be the sum of the others by chance, as 300 is of 100 and 200"""
MANY = 10
"""a doubt, if more than one of so many rows is there already"""


class Own(NamedTuple):
    rows: Longs
    """(m,) those that are requests of their own"""
    came: Longs
    """(m,) of each of them the first row with its id, as that of a request that came and was answered later"""
    left_out: tuple[str, ...]
    doubts: tuple[str, ...]


def own_requests(rows: Rows, counted: npt.NDArray[np.bool_], inputs: Longs, outputs: Longs) -> Own:
    """The rows that are requests of their own. `counted`: (n,) whether a row says how long a prompt or an answer was;
    `inputs`, `outputs`: (n,) how long these were, −1 where it does not."""
    said, doubts = list[str](), list[str]()
    kept = np.ones(len(rows), np.bool_)

    def leave(where: npt.NDArray[np.bool_], why: str) -> None:
        where = where & kept
        said.extend(rows.left_out(where, why))
        kept[where] = False

    if counted.any() and not counted.all() and (spans(rows)[0] or _of_other_kinds(rows, counted)):
        leave(~counted, "of other kinds, without tokens")
    leave(_parts(rows, counted), "without tokens, of which another row with the same id has them")
    leave((inputs == 0) & (outputs <= 0), "which say that neither prompt nor answer had tokens")
    leave(_around(rows, counted), "which are around others that have their tokens")
    repeats, several = _repeats(rows, kept, inputs, IDS)
    leave(repeats, "of which a later row has the same id and prompt")
    if _have_tokens_of_their_own(outputs, repeats, kept):
        doubts.append(
            f"the rows that are left out for a later one with their id have {int(outputs[repeats].sum()):,} tokens of "
            "answers, which do not grow: if these are parts of answers, add them up"
        )
    parts, _ = _repeats(rows, kept, inputs, CHUNKS)
    chunks = parts & _are_chunks(rows)
    leave(chunks, "which are parts of an answer, of which a later row has all")
    if (parts & ~chunks).any():
        doubts.append(
            f"{int((parts & ~chunks).sum()):,} rows have the id and the prompt of a later one, and each is taken for a "
            "request; if they are parts of one answer, call the field request_id"
        )
    leave(_sum_of_all(kept, inputs, outputs), "which is the sum of all others")
    if several:
        doubts.append(f"{several:,} rows have the id of another one, and another prompt: each is taken for a request")
    own = rows.taken(np.flatnonzero(kept))
    doubts += [*_several(own), *answered_elsewhere(own)]
    if alike := _alike(own):
        doubts.append(
            f"{alike:,} of {int(kept.sum()):,} rows say the same as one before, in all fields; if they were written "
            "twice, leave these out"
        )
    return Own(np.flatnonzero(kept), _came(rows, kept), tuple(said), tuple(doubts))


def _came(rows: Rows, kept: npt.NDArray[np.bool_]) -> Longs:
    own = np.flatnonzero(kept)
    name = found(rows, (*IDS, *CHUNKS))
    if name is None or kept.all():
        return own
    ids = rows.keys(name)
    first = dict[object, int]()
    many = dict[object, int]()
    for row, value in enumerate(ids):
        first.setdefault(value, row)
        many[value] = many.get(value, 0) + int(kept[row])
    alone = [value not in NOTHING and many[value] == 1 for value in (ids[row] for row in own.tolist())]
    return np.array([first[ids[row]] if one else row for row, one in zip(own.tolist(), alone, strict=True)], np.int64)


def _parts(rows: Rows, counted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """(n,) rows without counts, as of a log with a line a chunk, whose id is that of one with counts."""
    wrong = np.zeros(len(rows), np.bool_)
    name = found(rows, (*IDS, *CHUNKS))
    if name is None or counted.all():
        return wrong
    ids = rows.keys(name)
    whole = {value for value, one in zip(ids, counted, strict=True) if one and value not in NOTHING}
    return ~counted & np.array([value in whole for value in ids], np.bool_)


def _have_tokens_of_their_own(outputs: Longs, repeats: npt.NDArray[np.bool_], kept: npt.NDArray[np.bool_]) -> bool:
    """Whether rows of which a later one is taken are so many, and as long as that, that each may have its own part."""
    left, taken = np.maximum(outputs[repeats], 0), np.maximum(outputs[kept & ~repeats], 0)
    return len(left) > 2 * len(taken) and int(left.sum()) > 2 * int(taken.sum()) and left.max() <= taken.max()


def _are_chunks(rows: Rows) -> npt.NDArray[np.bool_]:
    name = next(iter(matching(rows, "object")), None)
    if name is None:
        return np.zeros(len(rows), np.bool_)
    return np.array([str(value).endswith(CHUNK) for value in rows.optional(name)], np.bool_)


def _sum_of_all(kept: npt.NDArray[np.bool_], inputs: Longs, outputs: Longs) -> npt.NDArray[np.bool_]:
    """(n,) the first or the last row, if its prompt and its answer are as long as those of all others together."""
    ends = np.zeros(len(kept), np.bool_)
    ends[np.flatnonzero(kept)[[0, -1]] if kept.any() else []] = True
    counts = [np.where(kept, np.maximum(one, 0), 0) for one in (inputs, outputs)]
    twice = [(one > 0) & (2 * one == one.sum()) for one in counts]
    found: npt.NDArray[np.bool_] = twice[0] & twice[1] & ends & (int(kept.sum()) > LEAST_SUMMED)
    return found


def _alike(rows: Rows) -> int:
    """How many rows are the same as an earlier one; 0 if they are too few to matter."""
    names = [name for name in rows.names if name not in NUMBERS]
    seen = {repr(one) for one in zip(*(rows.optional(name) for name in names), strict=True)}
    alike = len(rows) - len(seen)
    return alike if alike * MANY > len(rows) else 0


def _several(rows: Rows) -> list[str]:
    """Doubts about rows that seem to stand for several requests, or to have several answers."""
    doubts = []
    tallies = (one for one in _counting(rows, TALLIES) if "." not in one[0])
    for name, values in (*_counting(rows, STANDS_FOR), *tallies):
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


def spans(rows: Rows) -> tuple[str | None, str | None]:
    """The fields that name a span, and the one that it is within; None: there is none."""
    for parent, own in SPANS.items():
        above = found(rows, (parent,))
        if above is not None:
            name = found(rows, own) or (found(rows, ("id",)) if found(rows, (TRACES,)) else None)
            return name, above
    return found(rows, ("span_id",)), None


def _around(rows: Rows, counted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """(n,) spans with counts within which others have counts, whose sum theirs are."""
    wrong = np.zeros(len(rows), np.bool_)
    span, parent = spans(rows)
    if span is None or parent is None:
        return wrong
    row_of = {value: row for row, value in enumerate(rows.keys(span)) if value not in NOTHING}
    parents = rows.keys(parent)
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
    for row, value in enumerate(rows.keys(name)):
        if not kept[row] or value in NOTHING:
            continue
        before = last.get(value)
        if before is not None:
            wrong[before] = same = bool(inputs[before] == inputs[row])
            several += not same
        last[value] = row
    return wrong, several
