"""What became of a load that came in stages: a row for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from prebleexp.averages import STATISTICS, statistics
from prebleexp.sim.states import State

TIMES = ("ttft_s", "tpot_s", "latency_s")
NEEDS = ("stage", "state", "due_s", "finish_s", *TIMES, "output_seen")


@dataclass(frozen=True)
class Stage:
    """Times are in seconds, and None where there is nothing to average. The view `stages` of docs/tables.md has the
    same columns."""

    stage: int
    """its number, from 0 on; a warm-up is none"""
    n_requests: int
    n_finished: int
    offered_rps: float | None
    """requests that were due, over the time from the first to the last"""
    output_tokens_per_s: float | None
    """tokens of all its requests, over the time from its first arrival to its last finish"""
    ttft_mean_s: float | None
    ttft_p90_s: float | None
    tpot_mean_s: float | None
    latency_mean_s: float | None


def of_requests(requests: Mapping[str, Any]) -> list[Stage]:
    """`requests`: the columns that are kept of a run's requests, NaN where there is nothing. Of a load that does not
    come in stages there are none."""
    columns = {name: np.asarray(requests[name], np.float64) for name in NEEDS}
    numbers = np.unique(columns["stage"])
    return [_of(columns, int(one)) for one in numbers if one >= 0] if len(numbers) > 1 else []


def whole(requests: Mapping[str, Any]) -> Stage:
    """The numbers of a whole run as if it were one stage."""
    columns = {name: np.asarray(requests[name], np.float64) for name in NEEDS}
    return _of(columns | {"stage": np.zeros(len(columns["stage"]))}, 0)


def _of(columns: Mapping[str, Any], number: int) -> Stage:
    of = {name: column[columns["stage"] == number] for name, column in columns.items()}
    due_s, finish_s = (of[name][~np.isnan(of[name])] for name in ("due_s", "finish_s"))
    offered = _ratio(len(due_s) - 1, float(np.ptp(due_s))) if len(due_s) else None
    last_s = finish_s.max() - due_s.min() if len(finish_s) else 0.0
    ttft, tpot, latency = (dict(zip(STATISTICS, statistics(of[name]), strict=True)) for name in TIMES)
    return Stage(
        number,
        len(of["stage"]),
        int((of["state"] == State.FINISHED).sum()),
        offered,
        _ratio(float(of["output_seen"].sum()), float(last_s)),
        ttft["mean"],
        ttft["p90"],
        tpot["mean"],
        latency["mean"],
    )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
