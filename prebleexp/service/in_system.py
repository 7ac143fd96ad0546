"""Whether the number of requests in the system grows: its least-squares slope over time, and quarter by quarter; how
fast they came."""

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
    return np.isfinite(made.due_s) & ~np.isin(made.state, (State.REFUSED, State.CANCELLED, State.LOST, State.FAILED))


def growth(workload: Workload, made: Outcome) -> float | None:
    """In the third and in the fourth quarter of the time of arrivals, as a share of those that arrived in it: the
    lesser; None where half of that time is shorter than the longest answer takes."""
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


def trend(workload: Workload, made: Outcome, warmup_s: float, nearly_all_s: float) -> float | None:
    """By how much the number in the system grows, as a share of those that come in that time; None if it cannot be
    said. Its window begins when an empty system has filled: after a tenth of the time of arrivals, and after as long as
    nearly all requests take (`nearly_all_s`); but it has half of that time at least."""
    taken = stayed(made)
    due_s = made.due_s[taken]
    if growth(workload, made) is None:
        return None
    end_s = min(float(due_s.max()), made.end_s)
    start_s = max(warmup_s, min(end_s / 2, max(end_s / 10, nearly_all_s)))
    come = int(((due_s >= start_s) & (due_s <= end_s)).sum())
    if start_s >= end_s or not come:
        return None
    return slope(due_s, made.finish_s[taken], start_s, end_s) * (end_s - start_s) / come


def offered(made: Outcome) -> tuple[float | None, float | None]:
    """Requests a second that were due, and seconds from the first to the last of them; None where there are none, or at
    one moment alone."""
    due_s = made.due_s[np.isfinite(made.due_s)]
    if not len(due_s):
        return None, None
    span_s = float(due_s.max() - due_s.min())
    return len(due_s) / span_s if span_s else None, span_s
