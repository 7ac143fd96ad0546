"""The first part of a stream warms the caches for the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from prebleexp.checks import positive
from prebleexp.errors import InvalidInput
from prebleexp.sim.arrays import ragged
from prebleexp.sim.types import COLUMNS, OPTIONAL, Longs, Workload
from prebleexp.sim.warmth import Before
from prebleexp.warm.base import Warm

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class First(Warm):
    """What arrives in the first `first_s` seconds of the stream is served before the run, with all that follows:
    sessions that begin then go on to their end. When all of it has ended, the run begins with what arrives later.

    A made-up stream is drawn for `first_s` longer, so that the run lasts as long as it is to. Raises InvalidInput if
    nothing is left, or nothing comes first.
    """

    first_s: float = 300.0
    """seconds of the stream"""

    changes_nothing: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive("warm.first_s", self.first_s, "a number of seconds > 0")

    @property
    def takes_s(self) -> float:
        return self.first_s

    def rest(self, stream: Workload) -> Workload:
        rest = taken(stream, np.flatnonzero(~self._first(stream)))
        later = rest.arrives
        return rest.changed(arrival_s=np.where(later, rest.arrival_s - self.first_s, rest.arrival_s))

    def before(self, stream: Workload) -> Before:
        return Before(taken(stream, np.flatnonzero(self._first(stream))))

    def _first(self, stream: Workload) -> Mask:
        """(n,) which requests come first."""
        if stream.staged:
            raise InvalidInput(
                "warm=first is not valid where a load comes in stages that wait for each other; take warm=prefixes, or "
                "the workload's own warm-up"
            )
        found: Mask = stream.arrives & (stream.arrival_s < self.first_s)
        before, later = stream.after_ids, np.repeat(np.arange(len(stream)), stream.waits)
        count = -1
        while count != (count := int(found.sum())):  # whoever comes after them, or together with them before another
            found[later[found[before]]] = True
            found[before[found[later]]] = True
        if not 0 < count < len(stream):
            some = "nothing" if count == 0 else "all of it, with what follows upon that,"
            raise InvalidInput(
                f"warm.first_s={self.first_s:g} is not valid: {some} comes in these seconds of a load of "
                f"{len(stream):,} requests; "
                "take another number, or slo.warmup_s=, which counts later requests alone"
            )
        return found


def taken(stream: Workload, rows: Longs) -> Workload:
    """Some requests of a stream, in its order; none of them comes after others of it."""
    made: dict[str, Any] = {
        name: getattr(stream, name)[rows] for name in (*COLUMNS, *OPTIONAL) if "segment_" not in name
    }
    made["segment_offsets"], at = ragged(stream.segment_offsets, rows)
    made |= {name: getattr(stream, name)[at] for name in ("segment_ids", "segment_tokens")}
    made["after_offsets"], links = ragged(stream.after_offsets, rows)
    number = np.full(len(stream), -1)
    number[rows] = np.arange(len(rows))
    made["after_ids"] = number[stream.after_ids[links]]
    if stream.is_capped:  # so many ends as before it were let go
        done = np.concatenate([[0], np.cumsum(np.isin(np.arange(len(stream)), rows))])
        made["after_ends"] = done[stream.after_ends[rows]].astype(np.int32)
    made["predictions"] = {name: column[rows] for name, column in stream.predictions.items()}
    return stream.changed(**made)
