"""A list of prefixes that caches hold when a run begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from prebleexp.errors import InvalidInput, unreadable
from prebleexp.sim.types import Ints, Longs, Workload
from prebleexp.sim.warmth import Before
from prebleexp.warm.base import Warm
from prebleexp.workloads import files
from prebleexp.workloads.documents import rows_of
from prebleexp.workloads.rows import MOST, Rows

MOST_PREFIXES = 20_000
"""of more the last count: no cluster's caches hold as many"""
REQUEST, GROUP, TOKENS, GPU, FINISH = "request", "prefix_group", "tokens", "gpu", "finish_s"
SAME = {"arrival_s": 1e-9, "prompt_tokens": 0.0, "output_tokens": 0.0}
"""columns by which kept requests are known to be those of a stream, and how far they may differ"""


class Prefix(NamedTuple):
    """What one row of a list says."""

    request: int
    """of whose prompt it is the beginning; -1: of none"""
    segments: int
    """that it has of that prompt; 0: it is of no prompt, and has tokens alone"""
    tokens: int
    gpu: int
    """-1: where the router sends it"""


@dataclass(frozen=True)
class Prefixes(Warm):
    """Of a file, JSON lines, CSV or Parquet, a row each, from the one that was used longest ago to the latest. Each is
    sent as a request of one output token, when the one before it has ended.

    `request`: the beginning of the prompt of that request of the stream, counted from 0 as in the table `requests`; or
    `prefix_group`: what all prompts of that group begin with. `tokens`: so many of it, in whole segments of the stream
    (blocks, of a trace); without it, all. A row of `tokens` alone, or of a group of which the stream has fewer than two
    requests, is KV that no request finds. `gpu`: the replica that holds it; without it, or where it is -1, the run's
    router says.

    The kept requests of a run (its .parquet in the cache) are such a list: in order of their ends, where they were
    served. If they are those of this very stream they are whole prompts, else what their prefix_group is. Raises
    InvalidInput, naming the file and the row, for what is not there.
    """

    path: str | None = None
    """relative to the current folder"""

    changes_nothing: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise InvalidInput(
                f"warm.path={self.path} is not valid; warm=prefixes needs warm.path=FILE, with a prefix in each row"
            )

    def identity(self) -> dict[str, object]:
        """The file's contents stand for its path."""
        self._check_there()
        return {"sha256": files.digest(self.path)}

    def _check_there(self) -> None:
        try:
            Path(str(self.path)).expanduser().open("rb").close()
        except (OSError, ValueError) as error:
            raise unreadable(f"warm.path={self.path}", self.path, error) from None

    def before(self, stream: Workload) -> Before:
        self._check_there()
        listed = _listed(rows_of(self.path), stream)
        last = {(one.request, one.segments, one.tokens, one.gpu): i for i, one in enumerate(listed) if one.segments}
        kept = [
            one
            for i, one in enumerate(listed)
            if not one.segments or last[one.request, one.segments, one.tokens, one.gpu] == i
        ]
        kept = kept[-MOST_PREFIXES:]
        if not kept:
            raise InvalidInput(
                f"{self.path}: no row is a prefix of this load; rows have request=, prefix_group= or tokens="
            )
        return Before(_requests(kept, stream), np.array([one.gpu for one in kept], np.int32), one_by_one=True)


def _listed(rows: Rows, stream: Workload) -> list[Prefix]:
    n = len(rows)
    gpus = _column(rows, GPU, -1)
    if FINISH in rows:  # kept requests
        ended = np.array([np.nan if one is None else one for one in rows.optional(FINISH)], np.float64)
        order = np.argsort(ended, kind="stable")
        order = order[: int(np.isfinite(ended).sum())]
        names = np.arange(n) if _are_those_of(rows, stream) else np.full(n, -1)
    else:
        order, names = np.arange(n), _column(rows, REQUEST, -1)
    if not {REQUEST, GROUP, TOKENS} & {*rows.names}:
        raise InvalidInput(
            f"{rows.path}: rows have neither {REQUEST}, {GROUP} nor {TOKENS}, one of which says what is cached"
        )
    groups, tokens = _column(rows, GROUP, -1), _column(rows, TOKENS, 0)
    shared = _Shared(stream)
    found = []
    for row in order.tolist():
        request, asked, gpu = int(names[row]), int(tokens[row]), int(gpus[row])
        if request >= len(stream):
            raise rows.wrong(row, f"{REQUEST}={request} is not valid; the load has requests 0 to {len(stream) - 1}")
        segments = 0
        if request >= 0:
            segments = int(stream.segment_offsets[request + 1] - stream.segment_offsets[request])
        elif groups[row] >= 0:
            request, segments = shared.of(int(groups[row]))
        sizes = _sizes(stream, request, segments)
        if asked and segments:
            segments = int(np.searchsorted(np.cumsum(sizes), asked, side="right"))
        if segments:
            found.append(Prefix(request, segments, int(sizes[:segments].sum()), gpu))
        elif asked:
            found.append(Prefix(-1, 0, asked, gpu))
    return found


def _column(rows: Rows, name: str, least: int) -> Longs:
    """(n,) integers, `least` where nothing is said."""
    if name not in rows:
        return np.full(len(rows), least, np.int64)
    given = rows.optional(name)
    for row, one in enumerate(given):
        value = least if one is None else one
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float | np.integer)
            or not (least <= value <= MOST and value == int(value))
        ):
            raise rows.invalid(row, name, one, f"an integer from {least} to {MOST}")
    return np.array([least if one is None else int(one) for one in given], np.int64)


def _are_those_of(rows: Rows, stream: Workload) -> bool:
    """Whether kept requests are those of this stream."""
    if len(rows) != len(stream) or not all(name in rows for name in SAME):
        return False
    return all(np.allclose(rows.numbers(name), getattr(stream, name), 0.0, far) for name, far in SAME.items())


def _sizes(stream: Workload, request: int, segments: int) -> Ints:
    first = int(stream.segment_offsets[request]) if segments else 0
    return stream.segment_tokens[first : first + segments]


class _Shared:
    """What the prompts of each group begin with."""

    def __init__(self, stream: Workload) -> None:
        self._stream = stream
        self._found: dict[int, tuple[int, int]] = {}

    @cached_property
    def _members(self) -> tuple[Longs, Longs]:
        order = np.argsort(self._stream.prefix_group, kind="stable")
        return order, self._stream.prefix_group[order].astype(np.int64)

    def of(self, group: int) -> tuple[int, int]:
        """A request of it, and how many segments of its prompt all have; (-1, 0): it has fewer than two."""
        if group not in self._found:
            order, groups = self._members
            rows = order[np.searchsorted(groups, group) : np.searchsorted(groups, group, side="right")]
            self._found[group] = self._common(rows) if len(rows) > 1 else (-1, 0)
        return self._found[group]

    def _common(self, rows: Longs) -> tuple[int, int]:
        offsets, ids = self._stream.segment_offsets, self._stream.segment_ids
        counts = offsets[rows + 1] - offsets[rows]
        common = 0
        while common < counts.min() and (ids[offsets[rows] + common] == ids[offsets[rows[0]] + common]).all():
            common += 1
        return (int(rows[0]), common) if common else (-1, 0)


def _requests(prefixes: Sequence[Prefix], stream: Workload) -> Workload:
    """A request each; what is of no prompt is of an id that no other has."""
    free = 1 + int(stream.segment_ids.max(initial=-1))
    ids, sizes, groups = list[Ints](), list[Ints](), list[int]()
    for i, one in enumerate(prefixes):
        if one.segments:
            first = int(stream.segment_offsets[one.request])
            ids.append(stream.segment_ids[first : first + one.segments])
            sizes.append(_sizes(stream, one.request, one.segments))
            groups.append(int(stream.prefix_group[one.request]))
        else:
            ids.append(np.array([free + i], np.int32))
            sizes.append(np.array([one.tokens], np.int32))
            groups.append(-1)
    ones = np.ones(len(prefixes), np.int32)
    return Workload(
        arrival_s=np.zeros(len(prefixes)),
        prompt_tokens=np.array([one.tokens for one in prefixes], np.int32),
        output_tokens=ones,
        max_new_tokens=ones,
        prefix_group=np.array(groups, np.int32),
        segment_offsets=np.concatenate([[0], np.cumsum([len(one) for one in ids])]),
        segment_ids=np.concatenate(ids),
        segment_tokens=np.concatenate(sizes),
    )
