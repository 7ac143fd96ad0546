"""What becomes of a run when a GPU is lost: how late first tokens come then, and how long that is worse than before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from prebleexp.averages import statistics
from prebleexp.sim.types import Floats, Outcome

MINUTE_S = 60.0
"""that is looked at behind the first loss, and before it"""
WINDOW_S = 10.0
"""over which a mean moves"""
WORSE = 1.25
"""times the worst window before, from which on one is worse than usual"""


def first_loss_s(made: Outcome) -> float | None:
    """When the first GPU was lost, in seconds from the start of the run; None if none was."""
    return None if np.isnan(made.gpu_lost_s).all() else float(np.nanmin(made.gpu_lost_s))


def after_loss(made: Outcome) -> Floats:
    """Times to first token, in seconds, of the requests that were due in the minute behind the first loss and have
    one; none where no GPU was lost."""
    found: Floats = made.ttft_s[due_after_loss(made) & np.isfinite(made.ttft_s)]
    return found


def due_after_loss(made: Outcome) -> npt.NDArray[np.bool_]:
    """(n,) whether each request was due in the minute after the first loss."""
    lost_s = first_loss_s(made)
    if lost_s is None:
        return np.zeros(len(made.due_s), bool)
    found: npt.NDArray[np.bool_] = (made.due_s >= lost_s) & (made.due_s < lost_s + MINUTE_S)
    return found


def recovery_s(made: Outcome) -> float | None:
    """Seconds from the first loss until the mean time to first token is for good what it was.

    The mean is that of the requests due in the last `WINDOW_S` before each request's due time. It is worse than usual
    above `WORSE` times the worst of these means in the minute before the loss, in which only requests count that had
    their first token by then. 0 where it never is; if it still is at the last request, the time until that is due, the
    least that it can take. None where no GPU was lost, or nothing came before or after.
    """
    lost_s = first_loss_s(made)
    if lost_s is None:
        return None
    order = np.argsort(made.due_s, kind="stable")
    order = order[np.isfinite(made.ttft_s[order])]
    due_s, ttft_s = made.due_s[order], made.ttft_s[order]
    before = (due_s >= lost_s - MINUTE_S) & (due_s + ttft_s <= lost_s)
    means = _moving(due_s[before], ttft_s[before])
    later = due_s > lost_s
    if not len(means) or not later.any():
        return None
    worse = due_s[later][_moving(due_s, ttft_s)[later] > WORSE * means.max()]
    return float(worse[-1] - lost_s) if len(worse) else 0.0


def _moving(due_s: Floats, values: Floats) -> Floats:
    """Of each request, the mean of those that were due in the `WINDOW_S` up to it; `due_s` ascends."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    first = np.searchsorted(due_s, due_s - WINDOW_S, side="right")
    last = np.searchsorted(due_s, due_s, side="right")
    means: Floats = (sums[last] - sums[first]) / (last - first)
    return means


METRICS: tuple[tuple[str, str, Callable[[Any], float | None], str, str, str], ...] = (
    ("after_loss_ttft_p99_s", "p99 time to first token after a loss",
     lambda run: statistics(after_loss(run.made))[-1], "s", "lower",
     f"99th percentile, in seconds, of the time to first token of the requests that were due in the {MINUTE_S:g} s "
     "after the first GPU was lost (faults) and have one; nothing where none was lost."),
    ("recovery_s", "time to recover", lambda run: recovery_s(run.made), "s", "lower",
     f"From when the first GPU was lost until the average time to first token of the requests due in the last "
     f"{WINDOW_S:g} s is no more, and stays so, than {WORSE:g} times its worst in the {MINUTE_S:g} s before, in "
     "seconds. If it does not come back, the time until the last request was due. It cannot tell less than a "
     "window from nothing, and a router that was bad before has little to recover."),
)  # fmt: skip
