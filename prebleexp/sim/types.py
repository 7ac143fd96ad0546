"""What goes into a run and what comes out: equal-length arrays, one element a request."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from prebleexp.errors import InvalidInput

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


class State(IntEnum):
    """Where a request was when the run ended. Every request is in exactly one state."""

    UNROUTED = 0
    """the run ended before the router saw it"""
    QUEUED = 1
    """routed, waiting on its GPU (also: sent back there for want of memory)"""
    RUNNING = 2
    """in its GPU's batch"""
    FINISHED = 3
    REFUSED = 4
    """by the router, or because no GPU could ever serve it"""


def records(rows: int, dtype: np.dtype[Any]) -> Any:
    """Zeroed records: `rows[i].field`, `rows.field`."""
    return np.zeros(rows, dtype).view(np.recarray)


def _absent(value: float) -> Any:
    """A column that need not be given."""
    return field(default=None, metadata={"absent": value})


@dataclass(frozen=True)
class Workload:
    """A stream of n requests in order of arrival, and their prompts as runs of tokens (segments).

    A segment id stands for its whole path from the root of a prefix tree over all prompts: two prompts share
    exactly the tokens of their equal leading ids. Request i's segments are rows segment_offsets[i] to
    segment_offsets[i + 1] of segment_ids and segment_tokens (CSR).

    Raises InvalidInput if shapes, signs or the order of arrivals are wrong; names the column and the row.
    """

    arrival_s: Floats
    """(n,) seconds from the start of the run, never decreasing"""
    prompt_tokens: Ints
    """(n,) tokens of each prompt, the sum of its segments, at least 1"""
    output_tokens: Ints
    """(n,) tokens the model would generate if nothing cut it short, at least 1"""
    max_new_tokens: Ints
    """(n,) tokens after which generation is cut short, at least 1"""
    prefix_group: Ints
    """(n,) which shared prefix it has; -1 where that is not known"""
    segment_offsets: Longs
    """(n + 1,)"""
    segment_ids: Ints
    """(s,) not negative"""
    segment_tokens: Ints
    """(s,) at least 1"""
    predictions: Mapping[str, Floats] = field(default_factory=dict)
    """(n,) each: tokens that a predictor of this name expects the model to generate"""
    session: Ints = _absent(-1)  # noqa: RUF009
    """(n,) to which session it belongs; -1: to none"""
    turn: Ints = _absent(0)  # noqa: RUF009
    """(n,) in its session, from 0"""
    slo_ttft_s: Floats = _absent(math.nan)  # noqa: RUF009
    """(n,) the time to its first token that was promised; NaN: none was"""
    slo_tpot_s: Floats = _absent(math.nan)  # noqa: RUF009
    """(n,) the time per further token, likewise"""
    answer_segment: Ints = _absent(-1)  # noqa: RUF009
    """(n,) the segment id that its answer has in the prompts of later turns, so that they find what was generated in
    the cache; -1: none"""

    def __post_init__(self) -> None:
        kinds = {"arrival_s": np.float64, "segment_offsets": np.int64}
        for name, absent in OPTIONAL.items():
            given, kind = getattr(self, name), type(absent)
            column = np.full(len(self.arrival_s), absent) if given is None else given
            object.__setattr__(self, name, np.ascontiguousarray(column, np.int32 if kind is int else np.float64))
        for name in COLUMNS:
            column = np.ascontiguousarray(getattr(self, name), dtype=kinds.get(name, np.int32))
            if column.ndim != 1:
                raise InvalidInput(f"workload column {name} has {column.ndim} dimensions; it must have 1")
            object.__setattr__(self, name, column)
        self._check_lengths()
        self._check_values()

    def __len__(self) -> int:
        return len(self.arrival_s)

    def _check_lengths(self) -> None:
        n, s = len(self.arrival_s), len(self.segment_ids)
        expected = {"segment_offsets": n + 1, "segment_ids": s, "segment_tokens": s}
        for name in COLUMNS:
            length = len(getattr(self, name))
            if length != expected.get(name, n):
                raise InvalidInput(f"workload column {name} has {length} rows; {expected.get(name, n)} were expected")
        for name in OPTIONAL:
            if getattr(self, name).shape != (n,):
                raise InvalidInput(f"workload column {name} has shape {getattr(self, name).shape}; ({n},) was expected")
        for name, told in self.predictions.items():
            if told.shape != (n,):
                raise InvalidInput(f"predictions of {name} have shape {told.shape}; ({n},) was expected")

    def _check_values(self) -> None:
        _refuse("arrival_s", self.arrival_s, ~(np.isfinite(self.arrival_s) & (self.arrival_s >= 0)), "finite and >= 0")
        _refuse("arrival_s", self.arrival_s, np.diff(self.arrival_s, prepend=0) < 0, ">= the arrival before it")
        for name in ("prompt_tokens", "output_tokens", "max_new_tokens", "segment_tokens"):
            column = getattr(self, name)
            _refuse(name, column, column < 1, ">= 1")
        _refuse("segment_ids", self.segment_ids, self.segment_ids < 0, ">= 0")
        for name, told in self.predictions.items():
            _refuse(f"predictions of {name}", told, ~(np.isfinite(told) & (told > 0)), "finite and > 0")
        for name, least in (("session", -1), ("turn", 0), ("answer_segment", -1)):
            _refuse(name, getattr(self, name), getattr(self, name) < least, f">= {least}")
        for name in ("slo_ttft_s", "slo_tpot_s"):
            _refuse(name, getattr(self, name), ~(np.isnan(getattr(self, name)) | (getattr(self, name) > 0)), "> 0")
        sizes = np.diff(self.segment_offsets)
        _refuse("segment_offsets", self.segment_offsets[1:], sizes < 1, "greater than the offset before it")
        if self.segment_offsets[0] != 0 or self.segment_offsets[-1] != len(self.segment_ids):
            raise InvalidInput(
                f"workload column segment_offsets runs from {self.segment_offsets[0]} to {self.segment_offsets[-1]}; "
                f"it must run from 0 to {len(self.segment_ids)}, the number of segments"
            )
        if len(self):
            totals = np.add.reduceat(self.segment_tokens.astype(np.int64), self.segment_offsets[:-1])
            _refuse("prompt_tokens", self.prompt_tokens, totals != self.prompt_tokens, "the sum of its segment_tokens")
        self._check_paths()

    def _check_paths(self) -> None:
        """A segment id must always come behind the same id and have the same number of tokens."""
        ids = self.segment_ids
        before = np.empty_like(ids)
        before[1:] = ids[:-1]
        before[self.segment_offsets[:-1]] = -1
        self._check_answers(before)
        for name, column in (("segment_ids", before), ("segment_tokens", self.segment_tokens)):
            if not len(ids):
                return
            first = np.zeros(int(ids.max()) + 1, dtype=np.int32)
            first[ids] = column
            wrong = np.flatnonzero(first[ids] != column)
            if len(wrong):
                what = "comes behind another segment" if name == "segment_ids" else "has another number of tokens"
                raise InvalidInput(
                    f"workload column {name}, row {wrong[0]}: segment {ids[wrong[0]]} {what} than elsewhere; "
                    "an id must stand for one path from the root"
                )

    def _check_answers(self, before: Ints) -> None:
        """An answer's segment must come behind the last segment of its prompt, wherever it is part of another."""
        named = np.flatnonzero(self.answer_segment >= 0)
        behind = self.segment_ids[self.segment_offsets[1:][named] - 1]
        size = 1 + max(self.segment_ids.max(initial=-1), self.answer_segment.max(initial=-1))
        known = np.full(size, -2)
        known[self.segment_ids] = before
        answers = self.answer_segment[named]
        first = known.copy()
        first[answers[::-1]] = behind[::-1]
        wrong = (first[answers] != behind) | ((known[answers] != -2) & (known[answers] != behind))
        if wrong.any():
            row = int(named[np.flatnonzero(wrong)[0]])
            raise InvalidInput(
                f"workload column answer_segment, row {row}: segment {self.answer_segment[row]} comes behind another "
                "segment than elsewhere; an id must stand for one path from the root"
            )


COLUMNS = tuple(one.name for one in fields(Workload) if one.default is MISSING and one.default_factory is MISSING)
"""the arrays that make a stream"""
OPTIONAL = {one.name: one.metadata["absent"] for one in fields(Workload) if "absent" in one.metadata}
"""further ones, and what stands there if they are not given"""


def _refuse(name: str, column: npt.NDArray[Any], wrong: npt.NDArray[np.bool_], valid: str) -> None:
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InvalidInput(f"workload column {name}, row {row}: {column[row]} is not valid; it must be {valid}")


@dataclass(frozen=True)
class Setup:
    """What a plug may know when a run begins."""

    gpus: int
    seed: int
    requests: int
    """how many there will be"""
    kv_tokens: int
    """that fit on a GPU"""
    context_length: int
    workload: Workload
    """for engines: a router that looks into it is an oracle"""

    @property
    def segment_ids(self) -> int:
        """How many ids the segments of prompts have: all are less."""
        return 1 + int(self.workload.segment_ids.max(initial=-1))

    @property
    def rng(self) -> np.random.Generator:
        """The generator of the run's seed, from its beginning."""
        return np.random.default_rng(self.seed)


@dataclass(frozen=True)
class Outcome:
    """What became of every request (arrays of shape (n,)) and of every GPU (`gpu_…`, of shape (gpus,)).

    A column is declared here and nowhere else: kept requests and docs/tables.md are made from these lines.
    """

    gpu: Ints
    """where it was sent; -1: nowhere, since it was refused or the run ended first"""
    state: npt.NDArray[np.int8]
    """a `State`"""
    told_output: Floats
    """output tokens that the policy was told to expect; NaN if it does not read that, or there was no decision"""
    overhead_s: Floats
    """what its routing decision took; NaN if that is not counted, or if there was none"""
    router_wait_s: Floats
    """from its arrival until the router took it up; NaN likewise"""
    ttft_s: Floats
    """first token − arrival; NaN if there was none"""
    latency_s: Floats
    """last token − arrival; for unfinished requests as of their last report; NaN if there was none"""
    finish_s: Floats
    """when the last token came, in seconds from the start of the run; NaN if unfinished"""
    output_seen: Ints
    """output tokens as of the last report"""
    hit_tokens: Ints
    """prompt tokens found in the GPU's prefix cache when it was last admitted"""
    prefilled_tokens: Ints
    """prompt tokens computed then; 0 if it was never admitted"""
    gpu_hit_tokens: Longs
    """prompt tokens found in the prefix cache, over all prefills"""
    gpu_prefilled_tokens: Longs
    """prompt tokens computed, over all prefills"""
    gpu_forwarded_tokens: Longs
    """tokens computed: prefills and decode"""
    gpu_recomputed_tokens: Longs
    """prompt tokens of requests sent back to the queue for want of memory"""
    gpu_requests: Longs
    """requests routed to it"""
    gpu_evicted_tokens: Longs
    gpu_retracted: Longs
    """how often a request was sent back to the queue for want of memory"""
    gpu_peak_kv_tokens: Longs
    """most KV in use at any time"""
    end_s: float
    """when the run ended, in seconds from its start"""

    def __len__(self) -> int:
        return len(self.gpu)


OF_REQUESTS = tuple(one.name for one in fields(Outcome) if not one.name.startswith(("gpu_", "end_")))
"""the columns of an outcome with an element a request"""
