"""What goes into a run and what comes out: equal-length arrays, one element a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, NamedTuple

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

    def __post_init__(self) -> None:
        kinds = {"arrival_s": np.float64, "segment_offsets": np.int64}
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


COLUMNS = tuple(one.name for one in fields(Workload) if one.name != "predictions")
"""the arrays that make a stream"""


def _refuse(name: str, column: npt.NDArray[Any], wrong: npt.NDArray[np.bool_], valid: str) -> None:
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InvalidInput(f"workload column {name}, row {row}: {column[row]} is not valid; it must be {valid}")


class StepCost(NamedTuple):
    """Coefficients of a model step's cost, milliseconds and tokens; see `prebleexp.hardware.model.Hardware` for
    their meaning."""

    linear: Any
    """(k, 4): from this many tokens, constant, per token, per token²; in descending order of the first"""
    attention_flat_tokens: float
    attention_flat: float
    attention_constant: float
    attention_per_token: float
    shared_unique_per_request: float
    shared_unique_times_requests: float
    request_from: float
    request_constant: float
    request_per_new: float
    request_per_length: float
    request_per_product: float
    prefill_batch: float
    """1 if a prefill pays the batch's linear layers and attention, 0 if the sum over requests is all of it"""
    efficiency: float


@dataclass(frozen=True)
class Outcome:
    """What became of every request (arrays of shape (n,)) and of every GPU (shape (gpus,))."""

    gpu: Ints
    """the GPU it was sent to; -1 if the run ended first"""
    state: npt.NDArray[np.int8]
    """a `State`"""
    told_output: Floats
    """(n,) output tokens that the policy was told to expect; NaN if it does not read that, or there was no decision"""
    overhead_s: Floats
    """what the decision took; NaN if that is not counted, or if there was none"""
    router_wait_s: Floats
    """from arrival until the router took it up; likewise"""
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
    """when the run ended: the largest clock of all GPUs"""

    def __len__(self) -> int:
        return len(self.gpu)
