"""Outcome arrays to one flat row: the numbers that tables, figures and comparisons are made of.

Each metric is declared here and nowhere else: rows, comparisons, the words of reports and docs/metrics.md are made from
the declaration. Definitions are those of the released simulator (spec: e2-as-released, Q9): averages are over every
request that reported, unfinished ones as of their last report (of latency itself, the release averages only what
finished by the duration). `n_finished` and its neighbours say how many there are of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from prebleexp.sim.types import Floats, Ints, Outcome, State, Workload

Number = int | float | None
LOWER, HIGHER, NEITHER = "lower", "higher", "neither"
"""what is better"""
STATISTICS = {"mean": "Mean", "p50": "Median", "p90": "90th percentile", "p99": "99th percentile"}
CALLED = {"mean": "average", "p50": "median"}
"""the others are called what they are named"""


@dataclass(frozen=True)
class Quantity:
    """Something that each request has one of, or none (NaN): its `STATISTICS` are metrics. `meaning` begins with its
    words, before a colon."""

    name: str
    of: Callable[[Outcome], Floats]
    unit: str
    meaning: str

    @property
    def words(self) -> str:
        return self.meaning.partition(":")[0]


@dataclass(frozen=True)
class Metric:
    """A number of a run. `words` say it in a sentence or at an axis."""

    name: str
    words: str
    of: Callable[[Served], Number]
    unit: str
    better: str
    meaning: str


@dataclass(frozen=True)
class Served:
    """A run, and what several metrics need of it."""

    workload: Workload
    made: Outcome

    @cached_property
    def states(self) -> list[int]:
        """Requests by `State`."""
        return [int(count) for count in np.bincount(self.made.state, minlength=len(State))]

    def total(self, *names: str) -> int:
        """Over all GPUs."""
        return sum(int(getattr(self.made, f"gpu_{name}").sum()) for name in names)

    @cached_property
    def lengths(self) -> Ints:
        """Output tokens of each request when it is finished."""
        return np.minimum(self.workload.output_tokens, self.workload.max_new_tokens)

    @cached_property
    def statistics(self) -> dict[str, tuple[float | None, ...]]:
        return {one.name: _statistics(one.of(self.made)) for one in QUANTITIES}

    @cached_property
    def told(self) -> tuple[float | None, float | None]:
        """How good what the policy was told of output lengths is: mean absolute error, and Spearman's rank correlation,
        which is 0 where all were told the same."""
        heard = ~np.isnan(self.made.told_output)
        if not heard.any():
            return None, None
        told, lengths = self.made.told_output[heard], self.lengths[heard]
        error = float(np.abs(told - lengths).mean())
        if told.min() == told.max():
            return error, 0.0
        ranks = [_ranks(side) for side in (told, lengths)]
        spread = float(ranks[0].std() * ranks[1].std())
        covariance = float(((ranks[0] - ranks[0].mean()) * (ranks[1] - ranks[1].mean())).mean())
        return error, covariance / spread if spread else 0.0


def _each(seconds: Floats, tokens: Ints) -> Floats:
    """Seconds a token; NaN where there is none."""
    found: Floats = np.divide(seconds, tokens, out=np.full(len(tokens), np.nan), where=tokens > 0)
    return found


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _count(state: State, better: str, meaning: str) -> Metric:
    name = state.name.lower()
    return Metric(f"n_{name}", f"{name} requests", lambda run: run.states[state], "requests", better, meaning)


def _statistic(one: Quantity, i: int, name: str) -> Metric:
    in_unit = "in seconds per token" if one.unit == "s/token" else "in seconds"
    meaning = f"{STATISTICS[name]} over the requests that have one, {in_unit}, of the {one.meaning}."
    words = f"{CALLED.get(name, name)} {one.words}"
    return Metric(f"{one.name}_{name}_s", words, lambda run: run.statistics[one.name][i], one.unit, LOWER, meaning)


# fmt: off
QUANTITIES = (
    Quantity("ttft", lambda made: made.ttft_s, "s", "time to first token: first token − arrival"),
    Quantity("tpot", lambda made: _each(made.latency_s - made.ttft_s, made.output_seen - 1), "s/token",
             "time per output token: (latency − time to first token) / (output tokens − 1)"),
    Quantity("latency", lambda made: made.latency_s, "s",
             "latency: last token − arrival; of unfinished requests as of their last report"),
    Quantity("norm_latency", lambda made: _each(made.latency_s, made.output_seen), "s/token",
             "normalised latency: latency / output tokens"),
    Quantity("overhead", lambda made: made.overhead_s, "s",
             "scheduling overhead: time that the routing decision took, by the overhead model; nothing with "
             "overhead=none"),
)
_METRICS = (
    Metric("n_requests", "requests", lambda run: len(run.made), "requests", NEITHER, "Requests that arrived."),
    _count(State.FINISHED, HIGHER, "Requests whose last token came."),
    _count(State.RUNNING, LOWER, "Requests that were in a batch when the run ended."),
    _count(State.QUEUED, LOWER, "Requests that waited on a GPU when the run ended."),
    _count(State.UNROUTED, LOWER, "Requests that no GPU had been chosen for when the run ended."),
    _count(State.REFUSED, LOWER, "Requests that were refused: by the router, or since no GPU can hold them."),
    *(_statistic(one, i, name) for one in QUANTITIES for i, name in enumerate(STATISTICS)),
    Metric("router_wait_mean_s", "average wait for the router", lambda run: _statistics(run.made.router_wait_s)[0], "s",
           LOWER, "Mean time from a request's arrival until the router took it up, in seconds; above zero only where "
           "one router serves decisions in turn (overhead=serial)."),
    # every admitted prompt token was either found or computed; the rest of what was forwarded is decoding
    Metric("hit_ratio", "hit ratio",
           lambda run: _ratio(run.total("hit_tokens"), run.total("hit_tokens", "prefilled_tokens")), "share", HIGHER,
           "Prompt tokens found in a GPU's prefix cache over all prompt tokens of all prefills, from 0 to 1."),
    Metric("output_tokens_per_s", "output token rate",
           lambda run: _ratio(int(run.made.output_seen.sum()), run.made.end_s), "tokens/s", HIGHER,
           "Output tokens reported, over the length of the run."),
    Metric("requests_per_s", "rate of finished requests",
           lambda run: _ratio(run.states[State.FINISHED], run.made.end_s), "requests/s", HIGHER,
           "Finished requests over the length of the run."),
    Metric("output_tokens_mean", "average output length",
           lambda run: float(run.lengths.mean()) if len(run.lengths) else None, "tokens", NEITHER,
           "Mean of the output lengths that requests have, whether or not they were served."),
    Metric("output_tokens_variance", "variance of output lengths",
           lambda run: float(run.lengths.var()) if len(run.lengths) else None, "tokens²", NEITHER,
           "Their variance, in tokens²."),
    Metric("told_error_tokens", "average error of told output lengths", lambda run: run.told[0], "tokens", LOWER,
           "Mean absolute difference of the output length that the policy was told and the true one, in tokens; of "
           "policies that read lengths alone."),
    Metric("told_rank_correlation", "rank correlation of told and true output lengths", lambda run: run.told[1],
           "−1 to 1", HIGHER,
           "Spearman's rank correlation of the two: 1 for an oracle, 0 where all were told the same."),
    Metric("evicted_tokens", "evicted tokens", lambda run: run.total("evicted_tokens"), "tokens", LOWER,
           "Tokens of KV that prefix caches dropped for want of memory."),
    Metric("retracted", "retractions", lambda run: run.total("retracted"), "times", LOWER,
           "How often a running request was sent back to its queue for want of memory."),
    Metric("peak_kv_tokens", "peak of KV tokens", lambda run: int(run.made.gpu_peak_kv_tokens.max()), "tokens", NEITHER,
           "The most tokens of KV that any GPU held at a time."),
    Metric("requests_max_over_mean", "requests of the busiest GPU over the mean",
           lambda run: _ratio(int(run.made.gpu_requests.max()) * len(run.made.gpu_requests), run.total("requests")),
           "ratio", LOWER, "Requests sent to the busiest GPU over the mean of all GPUs: 1 is perfect balance."),
    Metric("end_s", "end of the run", lambda run: run.made.end_s, "s", LOWER,
           "When the run ended, in simulated seconds from its start."),
)
# fmt: on
DECLARED = {one.name: one for one in _METRICS}
METRICS = tuple(DECLARED)
"""the names of a row's metrics, in order"""


def measure(workload: Workload, outcome: Outcome) -> dict[str, Number]:
    """One row: `METRICS` by name, seconds and tokens; None where there is nothing to average."""
    run = Served(workload, outcome)
    return {name: one.of(run) for name, one in DECLARED.items()}


def per_request(outcome: Outcome) -> dict[str, Floats]:
    """Each of `QUANTITIES` as a column, in seconds; NaN where there is none."""
    return {f"{one.name}_s": one.of(outcome) for one in QUANTITIES}


def _ranks(values: npt.NDArray[Any]) -> Floats:
    """The mean rank of those that are equal."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[place], np.float64)


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
