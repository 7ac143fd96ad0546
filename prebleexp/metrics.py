"""Outcome arrays to one flat row: the numbers that tables, figures and comparisons are made of.

Definitions are those of the released simulator (spec: e2-as-released, Q9): averages are over every request that
reported, unfinished ones as of their last report (of latency itself, the release averages only what finished by the
duration). `n_finished` and its neighbours say how many there are of each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from prebleexp.sim.types import Floats, Outcome, State, Workload

Metric = int | float | None

QUANTITIES = ("ttft", "tpot", "latency", "norm_latency")
STATISTICS = ("mean", "p50", "p90", "p99")
METRICS = (
    "n_requests",
    "n_finished",
    "n_running",
    "n_queued",
    "n_unrouted",
    *(f"{quantity}_{statistic}_s" for quantity in QUANTITIES for statistic in STATISTICS),
    *(f"overhead_{statistic}_s" for statistic in STATISTICS),
    "router_wait_mean_s",
    "hit_ratio",
    "output_tokens_per_s",
    "requests_per_s",
    "output_tokens_mean",
    "output_tokens_variance",
    "told_error_tokens",
    "told_rank_correlation",
    "evicted_tokens",
    "retracted",
    "peak_kv_tokens",
    "requests_max_over_mean",
    "end_s",
)
"""the names of a row's metrics, in order"""


def per_request(outcome: Outcome) -> dict[str, Floats]:
    """TPOT = (latency − TTFT)/(output − 1) and normalised latency = latency/output in seconds; NaN where there is
    none."""
    output = outcome.output_seen.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(output > 1, (outcome.latency_s - outcome.ttft_s) / (output - 1), np.nan)
        norm_latency = np.where(output > 0, outcome.latency_s / output, np.nan)
    return {"tpot_s": tpot, "norm_latency_s": norm_latency}


def measure(workload: Workload, outcome: Outcome) -> dict[str, Metric]:
    """One row: `METRICS` by name, seconds and tokens; None where there is nothing to average."""
    states = np.bincount(outcome.state, minlength=len(State))
    row: dict[str, Metric] = {"n_requests": len(outcome)}
    for state in (State.FINISHED, State.RUNNING, State.QUEUED, State.UNROUTED):
        row[f"n_{state.name.lower()}"] = int(states[state])
    derived = per_request(outcome)
    columns = (outcome.ttft_s, derived["tpot_s"], outcome.latency_s, derived["norm_latency_s"])
    for quantity, column in zip(QUANTITIES, columns, strict=True):
        for statistic, value in zip(STATISTICS, _statistics(column), strict=True):
            row[f"{quantity}_{statistic}_s"] = value
    for statistic, value in zip(STATISTICS, _statistics(outcome.overhead_s), strict=True):
        row[f"overhead_{statistic}_s"] = value
    row["router_wait_mean_s"] = _statistics(outcome.router_wait_s)[0]
    lengths = np.minimum(workload.output_tokens, workload.max_new_tokens)
    # Every admitted prompt token was either found or computed; the rest of what was forwarded is decoding.
    hit, looked_up = (
        int(outcome.gpu_hit_tokens.sum()),
        int((outcome.gpu_hit_tokens + outcome.gpu_prefilled_tokens).sum()),
    )
    routed = outcome.gpu_requests
    row |= {
        "hit_ratio": _ratio(hit, looked_up),
        "output_tokens_per_s": _ratio(int(outcome.output_seen.sum()), outcome.end_s),
        "requests_per_s": _ratio(int(states[State.FINISHED]), outcome.end_s),
        "output_tokens_mean": float(lengths.mean()) if len(lengths) else None,
        "output_tokens_variance": float(lengths.var()) if len(lengths) else None,
        **_told(outcome.told_output, lengths),
        "evicted_tokens": int(outcome.gpu_evicted_tokens.sum()),
        "retracted": int(outcome.gpu_retracted.sum()),
        "peak_kv_tokens": int(outcome.gpu_peak_kv_tokens.max()),
        "requests_max_over_mean": _ratio(int(routed.max()) * len(routed), int(routed.sum())),
        "end_s": outcome.end_s,
    }
    return row


def _told(told: Floats, lengths: npt.NDArray[np.integer]) -> dict[str, Metric]:
    """How good what the policy was told of output lengths is: mean absolute error, and Spearman's rank correlation,
    which is 0 where all were told the same."""
    heard = ~np.isnan(told)
    if not heard.any():
        return dict.fromkeys(("told_error_tokens", "told_rank_correlation"))
    told, lengths = told[heard], lengths[heard]
    error = float(np.abs(told - lengths).mean())
    if told.min() == told.max():
        return {"told_error_tokens": error, "told_rank_correlation": 0.0}
    ranks = [_ranks(side) for side in (told, lengths)]
    spread = float(ranks[0].std() * ranks[1].std())
    covariance = float(((ranks[0] - ranks[0].mean()) * (ranks[1] - ranks[1].mean())).mean())
    return {"told_error_tokens": error, "told_rank_correlation": covariance / spread if spread else 0.0}


def _ranks(values: npt.NDArray[Any]) -> Floats:
    """The mean rank of those that are equal."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[place], np.float64)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _statistics(column: Floats) -> tuple[float | None, ...]:
    """Mean and percentiles (linear interpolation, rounded as np.percentile does) of what is not NaN, from one sort."""
    values = np.sort(column)  # NaN last
    values = values[: len(values) - int(np.isnan(values).sum())]
    if not len(values):
        return (None,) * len(STATISTICS)
    positions = np.array([0.5, 0.9, 0.99]) * (len(values) - 1)
    low = positions.astype(np.int64)
    below, above = values[low], values[np.minimum(low + 1, len(values) - 1)]
    share, step = positions - low, above - below
    percentiles = np.where(share < 0.5, below + step * share, above - step * (1 - share))
    return float(values.mean()), *map(float, percentiles)
