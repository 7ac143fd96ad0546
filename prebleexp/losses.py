"""Requests that runs did not serve, in words: averages are over the others, and whoever shows them says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prebleexp import offered, overload, warmed

Row = Mapping[str, Any]
"""a run's metrics, with its horizon and duration_s"""
LEFT_OUT = "means leave them out"
AS_REPORTED = "means have them as of their last report, or leave them out"


@dataclass(frozen=True)
class Loss:
    """A way of not being served."""

    metrics: tuple[str, ...]
    """that count it"""
    horizons: tuple[str, ...]
    what: str
    means: str

    def of(self, row: Row) -> int:
        if row.get("horizon", "drain") not in self.horizons or (self.metrics == NOT_DUE and by_users(row)):
            return 0
        return sum([int(row.get(name) or 0) for name in self.metrics])


NOT_DUE = ("n_not_due",)
BETWEEN = ("n_held", "n_reserved")
FOR_GOOD = (
    Loss(
        ("n_refused",),
        ("drain", "stop"),
        "refused (prompts or answers that no GPU can hold, or the gateway or router would not take them)",
        LEFT_OUT,
    ),
    Loss(
        ("n_cancelled",),
        ("drain", "stop"),
        "cancelled (they gave up, or come after others that were cancelled, refused, lost or failed)",
        LEFT_OUT,
    ),
    Loss(("n_expired",), ("drain", "stop"), "expired (they waited too long in the gateway)", LEFT_OUT),
    Loss(("n_lost",), ("drain", "stop"), "lost with their GPU, and not routed again", AS_REPORTED),
    Loss(("n_failed",), ("drain", "stop"), "failed by their GPU, since their KV did not arrive", AS_REPORTED),
    Loss(("n_unrouted",), ("drain",), "held at the router to the end", LEFT_OUT),
    Loss(BETWEEN, ("drain",), "left between two GPUs", AS_REPORTED),
    Loss(("n_queued",), ("drain",), "left waiting on a GPU for ever", AS_REPORTED),
    Loss(("n_running",), ("drain",), "left running at the end", AS_REPORTED),
)
STOPPED = Loss(
    ("n_unrouted", "n_queued", "n_running", "n_held", "n_reserved"), ("stop",), "unfinished at the end", AS_REPORTED
)
LATER = Loss(NOT_DUE, ("stop",), "not due by the end", LEFT_OUT)
NEVER = Loss(
    NOT_DUE,
    ("drain",),
    "never due (of sessions that begin after duration_s, or after others that were not served)",
    LEFT_OUT,
)


def by_users(row: Row) -> bool:
    """Whether so many users are the load: there are requests for as long as a run lasts, however fast they are served,
    so that most are never due."""
    return row.get("users") is not None or row.get("workload.load") == "population"


def requests(row: Row) -> int:
    """Those that were to be served."""
    return int(row.get("n_requests") or 0) - (int(row.get("n_not_due") or 0) if by_users(row) else 0)


def lost(rows: Sequence[Row]) -> int:
    """Requests that would not have been served however long one had waited."""
    return sum(loss.of(row) for row in rows for loss in FOR_GOOD)


def unserved(rows: Iterable[Row]) -> dict[str, int]:
    """Requests that were refused, cancelled, expired, lost or failed, and those unfinished or not due at the end."""
    gone = ("n_refused", "n_cancelled", "n_expired", "n_lost", "n_failed")
    kinds = {"refused": gone, "unfinished": (*STOPPED.metrics, *LATER.metrics)}
    every = list(rows)
    return {
        kind: sum(
            int(row.get(name) or 0) for row in every for name in names if name not in NOT_DUE or not by_users(row)
        )
        for kind, names in kinds.items()
    }


def sentences(cells: Sequence[tuple[str, Sequence[Row]]]) -> list[str]:
    """What caches held if they were warmed; one for each way in which requests of these cells were not served, one if
    they were too many, and one if they came more slowly than was asked for. A cell is a name and the runs of its seeds;
    of several, the one that lost the greatest share is named."""
    said = [_sentence(loss, cells) for loss in (*FOR_GOOD, STOPPED, LATER, NEVER)]
    lost_so = [one for one in said if one]
    return warmed.sentences(cells) + lost_so + overload.sentences(cells) + offered.sentences(cells)


def refused(cells: Sequence[tuple[str, Sequence[Row]]]) -> list[str]:
    """One sentence, if requests of these cells were refused."""
    return [one] if (one := _sentence(FOR_GOOD[0], cells)) else []


def as_text(said: Sequence[str]) -> str:
    """Sentences as one text for a page, each with a capital and a full stop."""
    return " ".join(f"{one[0].upper()}{one[1:]}." for one in said)


def _sentence(loss: Loss, cells: Sequence[tuple[str, Sequence[Row]]]) -> str:
    lost_of = ((sum(map(loss.of, rows)), rows, name) for name, rows in cells)
    counts = [(count, sum(map(requests, rows)), name) for count, rows, name in lost_of if count]
    if not counts:
        return ""
    count, of, name = max(counts, key=lambda one: one[0] / one[1])
    what = loss.what
    if loss in (STOPPED, LATER):
        ends = {f"{float(row['duration_s']):g} s" for _, rows in cells for row in rows if loss.of(row)}
        what += f" of {ends.pop() if len(ends) == 1 else 'their runs'}"
    if len(cells) == 1:
        return f"{count:,} of {of:,} requests {'was' if count == 1 else 'were'} {what}; {loss.means}"
    where = f"in {len(counts):,} of {len(cells):,} cells, at worst {count:,} of {of:,} ({name})"
    return f"requests were {what} {where}; {loss.means}"
