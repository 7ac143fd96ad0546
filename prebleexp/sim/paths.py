"""Segment ids of a workload stand for paths from the root, the same wherever they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.errors import InvalidInput

DIFFERS = {
    "segment_ids": "comes after another segment",
    "segment_tokens": "has another number of tokens",
    "adapter": "has another adapter",
}


def check_paths(workload: Any) -> None:
    """A segment id must always come behind the same id and have the same number of tokens."""
    ids = workload.segment_ids
    before = np.empty_like(ids)
    before[1:] = ids[:-1]
    before[workload.segment_offsets[:-1]] = -1
    _check_answers(workload, before)
    columns = {"segment_ids": before, "segment_tokens": workload.segment_tokens}
    if workload.adapter.any():
        columns["adapter"] = np.repeat(workload.adapter, np.diff(workload.segment_offsets))
    for name, column in columns.items():
        if not len(ids):
            return
        first = np.zeros(int(ids.max()) + 1, dtype=np.int32)
        first[ids] = column
        wrong = np.flatnonzero(first[ids] != column)
        if len(wrong):
            what = DIFFERS[name]
            raise InvalidInput(
                f"workload column {name}, row {wrong[0]}: segment {ids[wrong[0]]} {what} than elsewhere; "
                "an id must stand for one path from the root"
            )


def _check_answers(workload: Any, before: Any) -> None:
    """An answer's segment must come behind the last segment of its prompt, wherever it is part of another."""
    named = np.flatnonzero(workload.answer_segment >= 0)
    behind = workload.segment_ids[workload.segment_offsets[1:][named] - 1]
    size = 1 + max(workload.segment_ids.max(initial=-1), workload.answer_segment.max(initial=-1))
    known = np.full(size, -2)
    known[workload.segment_ids] = before
    answers = workload.answer_segment[named]
    first = known.copy()
    first[answers[::-1]] = behind[::-1]
    wrong = (first[answers] != behind) | ((known[answers] != -2) & (known[answers] != behind))
    if wrong.any():
        row = int(named[np.flatnonzero(wrong)[0]])
        raise InvalidInput(
            f"workload column answer_segment, row {row}: segment {workload.answer_segment[row]} comes after another "
            "segment than elsewhere; an id must stand for one path from the root"
        )
