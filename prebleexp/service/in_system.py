"""Whether the number of requests in the system grows: by its least-squares slope, and from quarter to quarter."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from prebleexp.sim.types import Floats, Outcome, State, Workload


def slope(come_s: Floats, gone_s: Floats, start_s: float, end_s: float) -> float:
    """Of the number of requests that have come and are not gone, from `start_s` to `end_s`, a second. NaN in `gone_s`:
    not gone by then.

    The number is a step function; its slope is ∫(t − m)N dt / ∫(t − m)² dt, m the middle, of which each request has
    its share.
    """
    length, middle = end_s - start_s, (start_s + end_s) / 2
    begin = np.clip(come_s, start_s, end_s) - middle
    end = np.clip(np.where(np.isnan(gone_s), end_s, gone_s), start_s, end_s) - middle
    return float((end * end - begin * begin).sum()) / 2 / (length**3 / 12)


def stayed(made: Outcome) -> npt.NDArray[np.bool_]:
    """Those that came, and were not sent away and did not go: they leave when they are finished."""
    return np.isfinite(made.due_s) & ~np.isin(made.state, (State.REFUSED, State.CANCELLED, State.LOST))


def growth(workload: Workload, made: Outcome) -> float | None:
    """The metric unfinished_growth."""
    taken = stayed(made)
    arrived, finished = np.sort(made.due_s[taken]), made.finish_s[taken]
    longer = made.output_seen > 1
    if not len(arrived) or np.isnan(made.ttft_s).all():
        return None
    paces = (made.latency_s[longer] - made.ttft_s[longer]) / (made.output_seen[longer] - 1)
    longest = int(np.minimum(workload.output_tokens, workload.max_new_tokens).max()) - 1
    if arrived[-1] / 2 < float(np.nanmin(made.ttft_s)) + float(paces.min(initial=np.inf if longest else 0.0)) * longest:
        return None
    ends = arrived[-1] * np.array([0.5, 0.75, 1.0])
    come = np.searchsorted(arrived, ends, side="right")
    left = come - np.searchsorted(np.sort(finished), ends, side="right")  # NaN, of the unfinished, is last
    return float((np.diff(left) / np.diff(come)).min()) if np.diff(come).all() else None
