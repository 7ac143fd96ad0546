"""What goes into a run: equal-length arrays, one element a request."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from prebleexp.errors import InvalidInput
from prebleexp.sim.arrays import Floats as Floats
from prebleexp.sim.arrays import Ints as Ints
from prebleexp.sim.arrays import Longs as Longs
from prebleexp.sim.arrays import records as records
from prebleexp.sim.outcomes import OF_REQUESTS as OF_REQUESTS
from prebleexp.sim.outcomes import Outcome as Outcome
from prebleexp.sim.outcomes import lacking as lacking
from prebleexp.sim.paths import check_paths
from prebleexp.sim.setup import CHUNKED as CHUNKED
from prebleexp.sim.setup import FULL as FULL
from prebleexp.sim.setup import ONE_TABLE as ONE_TABLE
from prebleexp.sim.setup import SLIDING as SLIDING
from prebleexp.sim.setup import Layers as Layers
from prebleexp.sim.setup import Room as Room
from prebleexp.sim.setup import Setup as Setup
from prebleexp.sim.setup import Steps as Steps
from prebleexp.sim.setup import Tables as Tables
from prebleexp.sim.states import State as State


def _absent(value: float) -> Any:
    """A column that need not be given."""
    return field(default=None, metadata={"absent": value})


@dataclass(frozen=True)
class Workload:
    """A stream of n requests in order of arrival, and their prompts as runs of tokens (segments).

    A request that comes `after` others is due `delay_s` seconds behind the last of their ends, whenever that is: a next
    turn, a fan-out, a join. Those it waits for stand before it. It is a session's, and so are they, or of the session's
    parent or one of its children.

    A request that comes `after_ends` is due when so many requests have ended, whichever, and not before it arrives: as
    a client sends them that has so many at a time, and a queue for the others.

    A load may come in stages. Requests of all but the first `stage` are due `delay_s` behind the last end of the stage
    before, when all of that has ended; one that comes after others too waits for both. Of a load whose stages overlap
    the stage is no more than a name: all come as if there were none.

    A segment id stands for its whole path from the root of a prefix tree over all prompts: two prompts share
    exactly the tokens of their equal leading ids. Request i's segments are rows segment_offsets[i] to
    segment_offsets[i + 1] of segment_ids and segment_tokens (CSR).

    Raises InvalidInput if shapes, signs or the order of arrivals are wrong; names the column and the row.
    """

    arrival_s: Floats
    """(n,) seconds from the start of the run, never decreasing; of a request that comes after others, or of a later
    stage, it says nothing"""
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
    priority: Ints = _absent(0)  # noqa: RUF009
    """(n,) lower is served first, where the engine looks at it"""
    slo_ttft_s: Floats = _absent(math.nan)  # noqa: RUF009
    """(n,) the time to its first token that was promised; NaN: none was"""
    slo_tpot_s: Floats = _absent(math.nan)  # noqa: RUF009
    """(n,) the time per further token, likewise"""
    answer_segment: Ints = _absent(-1)  # noqa: RUF009
    """(n,) the segment id of its answer in the prompts of later turns, which find it in the cache; -1: none"""
    after_offsets: Longs = field(default=None)  # type: ignore[arg-type]
    """(n + 1,) request i comes after rows after_offsets[i] to after_offsets[i + 1] of after_ids (CSR)"""
    after_ids: Ints = field(default=None)  # type: ignore[arg-type]
    """(a,) requests, each before the one that comes after it"""
    after_ends: Ints = _absent(0)  # noqa: RUF009
    """(n,) how many requests, whichever, must have ended before it is due; at most as many as stand before it"""
    delay_s: Floats = _absent(0.0)  # noqa: RUF009
    """(n,) from the last end of those that it comes after, or of the stage before, until it is due"""
    parent_session: Ints = _absent(-1)  # noqa: RUF009
    """(n,) the session that started its session, as an agent does a sub-agent's; -1: none"""
    patience_s: Floats = _absent(math.nan)  # noqa: RUF009
    """(n,) without its first token after so long it is cancelled; NaN: never"""
    client: Ints = _absent(-1)  # noqa: RUF009
    """(n,) whose it is, where clients are served in turn; -1: not known, as if all of these were one client's"""
    adapter: Ints = _absent(0)  # noqa: RUF009
    """(n,) the LoRA adapter with which it is computed; 0: none. A segment id is of one adapter: with another its KV is
    another"""
    goes_on: Ints = _absent(0)  # noqa: RUF009
    """(n,) 1: if it is cancelled or refused, it has ended then; 0: those that come after it are cancelled, and so on"""
    stage: Ints = _absent(0)  # noqa: RUF009
    """(n,) never decreasing, and one more for each stage that begins when all of the one before has ended; from 0 on,
    or from -1, which is a warm-up that averages leave out"""
    overlaps: Ints = _absent(0)  # noqa: RUF009
    """(n,) all 1: stages do not wait for each other, each request comes when it comes, and `stage` is any number from
    -1 on; all 0: they wait"""

    def __post_init__(self) -> None:
        kinds = {"arrival_s": np.float64, "segment_offsets": np.int64, "after_offsets": np.int64}
        alike = {repr(x): _all(x, len(self)) for x in OPTIONAL.values()}
        for name, absent in OPTIONAL.items():  # what says nothing is one column: of a million requests, megabytes
            given, nothing = getattr(self, name), alike[repr(absent)]
            object.__setattr__(self, name, np.ascontiguousarray(nothing if given is None else given, nothing.dtype))
        for name, rows in zip(LINKS, (len(self) + 1, 0), strict=True):
            if getattr(self, name) is None:
                object.__setattr__(self, name, np.zeros(rows, np.int64))
        for name in (*COLUMNS, *LINKS):
            column = np.ascontiguousarray(getattr(self, name), dtype=kinds.get(name, np.int32))
            if column.ndim != 1:
                raise InvalidInput(f"workload column {name} has {column.ndim} dimensions; it must have 1")
            object.__setattr__(self, name, column)
        self._check_lengths()
        self._check_values()

    def changed(self, **columns: Any) -> Workload:
        """With other columns, of their types, that follow from these: nothing is checked again, which takes a while."""
        made = object.__new__(Workload)
        for one in fields(Workload):
            object.__setattr__(made, one.name, columns.get(one.name, getattr(self, one.name)))
        return made

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def waits(self) -> Ints:
        """(n,) for how many others each request waits: those of which it comes after."""
        return np.diff(self.after_offsets).astype(np.int32) if len(self.after_ids) else np.zeros(len(self), np.int32)

    @property
    def staged(self) -> bool:
        """Whether there are several stages, each of which waits for the one before."""
        return len(self) > 0 and bool(self.stage[0] != self.stage[-1]) and not self.overlaps[0]

    @property
    def is_capped(self) -> bool:
        """Whether anybody waits for a number of ends."""
        return bool(self.after_ends.any())

    @property
    def is_open(self) -> bool:
        """Whether all come when they come: nobody after others, and in one stage."""
        return not len(self.after_ids) and not self.staged and not self.is_capped

    @property
    def dated(self) -> npt.NDArray[np.bool_]:
        """(n,) whether it is known before the run when a request comes."""
        known: npt.NDArray[np.bool_] = self.arrives & (self.after_ends == 0)
        return known

    @property
    def arrives(self) -> npt.NDArray[np.bool_]:
        """(n,) whether its arrival says something: it comes after no other, and in the first stage."""
        known: npt.NDArray[np.bool_] = self.waits == 0
        if self.staged:
            known &= self.stage == self.stage[:1]
        return known

    def _check_lengths(self) -> None:
        n, s = len(self.arrival_s), len(self.segment_ids)
        expected = {"segment_offsets": n + 1, "segment_ids": s, "segment_tokens": s}
        expected |= {"after_offsets": n + 1, "after_ids": len(self.after_ids)}
        for name in (*COLUMNS, *LINKS):
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
        self._check_links()
        first = self.arrives
        early = np.zeros(len(self), np.bool_)
        early[first] = np.diff(self.arrival_s[first], prepend=0) < 0
        _refuse("arrival_s", self.arrival_s, early, ">= the arrival before it")
        for name in ("prompt_tokens", "output_tokens", "max_new_tokens", "segment_tokens"):
            column = getattr(self, name)
            _refuse(name, column, column < 1, ">= 1")
        _refuse("segment_ids", self.segment_ids, self.segment_ids < 0, ">= 0")
        for name, told in self.predictions.items():
            _refuse(f"predictions of {name}", told, ~(np.isfinite(told) & (told > 0)), "finite and > 0")
        for name in ("turn", "adapter"):
            _refuse(name, getattr(self, name), getattr(self, name) < 0, ">= 0")
        for name in ("session", "client", "answer_segment", "parent_session"):
            _refuse(name, getattr(self, name), getattr(self, name) < -1, ">= -1")
        for name in ("slo_ttft_s", "slo_tpot_s", "patience_s"):
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
        check_paths(self)

    def _check_links(self) -> None:
        """Who comes after whom: no request waits for itself, and sessions wait for their own."""
        _refuse("delay_s", self.delay_s, ~(np.isfinite(self.delay_s) & (self.delay_s >= 0)), "finite and >= 0")
        _refuse("goes_on", self.goes_on, (self.goes_on < 0) | (self.goes_on > 1), "0 or 1")
        if self.overlaps.any():
            _refuse("overlaps", self.overlaps, self.overlaps != 1, "0 for all, or 1 for all")
            _refuse("stage", self.stage, self.stage < -1, ">= -1")
        else:
            steps = np.diff(self.stage, prepend=self.stage[:1])
            wrong = (steps < 0) | (steps > 1)
            wrong[:1] = ~np.isin(self.stage[:1], (-1, 0))
            _refuse("stage", self.stage, wrong, "that of the request before it or one more, and 0 or -1 for the first")
        if self.is_capped:
            wrong = (self.after_ends < 0) | (self.after_ends > np.arange(len(self)))
            _refuse("after_ends", self.after_ends, wrong, "from 0 to the number of requests before it")
        offsets = self.after_offsets
        _refuse("after_offsets", offsets[1:], self.waits < 0, "at least the offset before it")
        if offsets[0] != 0 or offsets[-1] != len(self.after_ids):
            raise InvalidInput(
                f"workload column after_offsets runs from {offsets[0]} to {offsets[-1]}; it must run from 0 to "
                f"{len(self.after_ids)}, the length of after_ids"
            )
        if not len(self.after_ids):
            return
        if (self.parent_session >= 0).any():
            _, first, of = np.unique(self.session, return_index=True, return_inverse=True)
            parent = self.parent_session[first][of]
            _refuse("parent_session", self.parent_session, parent != self.parent_session, "that of its whole session")
        before, later = self.after_ids, np.repeat(np.arange(len(self)), self.waits)
        for wrong, valid in (
            ((before < 0) | (before >= later), "a request before it, from 0 on: none waits for itself"),
            (~self._related(before, later), "of a session, and of the same, of its parent's or of a child's"),
        ):
            if wrong.any():
                at = int(np.flatnonzero(wrong)[0])
                raise InvalidInput(
                    f"workload column after_ids, row {later[at]}: {before[at]} is not valid; it must be {valid}"
                )

    def _related(self, before: Ints, later: Longs) -> npt.NDArray[np.bool_]:
        """Whether requests may wait for others: by session."""
        in_range = np.clip(before, 0, len(self) - 1)
        mine, theirs = self.session[later], self.session[in_range]
        parent, child = self.parent_session[later], self.parent_session[in_range]
        known: npt.NDArray[np.bool_] = (mine >= 0) & (theirs >= 0)
        return known & ((mine == theirs) | (parent == theirs) | (mine == child))


COLUMNS = tuple(one.name for one in fields(Workload) if one.default is MISSING and one.default_factory is MISSING)
"""the arrays that make a stream"""
OPTIONAL = {one.name: one.metadata["absent"] for one in fields(Workload) if "absent" in one.metadata}
"""further ones, and what stands there if they are not given"""
LINKS = ("after_offsets", "after_ids")
"""who comes after whom; if they are not given, nobody does"""


def _all(value: float, rows: int) -> npt.NDArray[Any]:
    """A column of nothing else; of zeros no memory is touched."""
    kind = np.int32 if type(value) is int else np.float64
    return np.zeros(rows, kind) if value == 0 else np.full(rows, value, kind)


def _refuse(name: str, column: npt.NDArray[Any], wrong: npt.NDArray[np.bool_], valid: str) -> None:
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InvalidInput(f"workload column {name}, row {row}: {column[row]} is not valid; it must be {valid}")
