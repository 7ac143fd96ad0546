"""Outcome arrays to one flat row: the numbers that tables, figures and comparisons are made of.

Each metric is declared here and nowhere else: rows, comparisons, the words of reports and docs/metrics.md are made from
the declaration. Definitions are those of the released simulator (spec: e2-as-released, Q9): averages are over every
request that reported, unfinished ones as of their last report (of latency itself, the release averages only what
finished by the duration), but not over those that were due during a warm-up. `n_finished` and its neighbours say how
many there are of each. How well promises were kept is over all requests that were due (prebleexp.service.attainment).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from prebleexp import itl, prefill_metrics, recovery, scaling_metrics, slo_metrics, step_metrics, warmed
from prebleexp.averages import CALLED, STATISTICS, statistics
from prebleexp.service import in_system
from prebleexp.service.attainment import Attained, Unloaded
from prebleexp.service.level import NONE, ServiceLevel
from prebleexp.sim.types import Floats, Ints, Outcome, State, Workload
from prebleexp.told import agreement

Number = int | float | None
LOWER, HIGHER, NEITHER = "lower", "higher", "neither"
"""what is better"""


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
    of_all: bool = False
    """whether requests that were not served count in it as such, so that to lose them does not flatter"""


@dataclass(frozen=True)
class Served:
    """A run, and what several metrics need of it."""

    workload: Workload
    made: Outcome
    level: ServiceLevel = NONE
    unloaded: Unloaded | None = None
    replica_gpus: Sequence[int] | None = None

    @cached_property
    def each(self) -> Floats:
        """(replicas,) how many GPUs each takes."""
        return np.ones(len(self.made.gpu_on_s)) if self.replica_gpus is None else np.array(self.replica_gpus, float)

    @cached_property
    def attained(self) -> Attained:
        gpus, after_loss = int(self.each.sum()), recovery.due_after_loss(self.made)
        return Attained.of(self.workload, self.made, self.level, self.unloaded, gpus, after_loss)

    def of_gpus(self, of_replicas: Floats) -> float:
        """The mean over GPUs of a number that each replica has, (replicas,)."""
        return float((of_replicas * self.each).sum() / self.each.sum())

    @cached_property
    def states(self) -> list[int]:
        """How many requests ended in each `State`, in its order."""
        return [int(count) for count in np.bincount(self.made.state, minlength=len(State))]

    def total(self, *names: str) -> int:
        """The sum over all GPUs of the outcome's arrays gpu_NAME."""
        return sum(int(getattr(self.made, f"gpu_{name}").sum()) for name in names)

    @cached_property
    def lengths(self) -> Ints:
        """Output tokens of each request when it is finished."""
        return np.minimum(self.workload.output_tokens, self.workload.max_new_tokens)

    @cached_property
    def counted(self) -> slice | npt.NDArray[np.bool_]:
        """Requests that averages are over: all, or those that were due after the warm-up."""
        warm_s, is_stage = self.level.warmup_s, self.workload.stage >= 0
        return (self.made.due_s >= warm_s) & is_stage if warm_s or not is_stage.all() else slice(None)  # of NaN: False

    @cached_property
    def statistics(self) -> dict[str, tuple[float | None, ...]]:
        return {one.name: statistics(one.of(self.made)[self.counted]) for one in QUANTITIES}

    @cached_property
    def computed_tokens(self) -> dict[str, float | None]:
        return prefill_metrics.computed_tokens(self)

    @cached_property
    def told(self) -> tuple[float | None, float | None]:
        """Of output lengths that the policy was told: mean absolute error, and rank correlation (0: all told alike)."""
        return agreement(self.made.told_output, self.lengths)


def _each(seconds: Floats, tokens: Ints) -> Floats:
    """Seconds a token; NaN where there is none."""
    found: Floats = np.divide(seconds, tokens, out=np.full(len(tokens), np.nan), where=tokens > 0)
    return found


def _trend(run: Served) -> float | None:
    return in_system.trend(run.workload, run.made, run.level.warmup_s, run.statistics["latency"][-1] or 0.0)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _count(state: State, better: str, meaning: str) -> Metric:
    words = f"{state.name.lower().replace('_', ' ')} requests"
    return Metric(f"n_{state.name.lower()}", words, lambda run: run.states[state], "requests", better, meaning)


def _found(name: str, words: str, where: str, *parts: str) -> Metric:
    meaning = f"Prompt tokens {where} over all prompt tokens of all prefills, from 0 to 1."
    whole = [f"{part}_tokens" for part in ("hit", "host", "disk", "shared", "peer", "prefilled")]
    of = [f"{part}_tokens" for part in parts]
    return Metric(name, words, lambda run: _ratio(run.total(*of), run.total(*whole)), "share", HIGHER, meaning)


def _of_limits(name: str, words: str, unit: str, meaning: str, better: str = HIGHER) -> Metric:
    return Metric(name, words, lambda run: run.attained.of_limits[name], unit, better, meaning, of_all=True)


def _slowdown(of: str, i: int, name: str) -> Metric:
    words = {"ttft": "time to first token", "latency": "latency"}[of]
    return Metric(
        f"{of}_slowdown_{name}",
        f"{CALLED.get(name, name)} slowdown in {words}",
        lambda run: statistics(run.attained.taken[f"{of}_slowdown"][run.counted])[i] if run.unloaded else None,
        "ratio",
        LOWER,
        f"{STATISTICS[name]} of the {words} over that of the same request alone on one idle GPU with an empty prefix "
        "cache, by the run's own engine and costs; where the service level (slo) asks for it.",
    )


def _session_time(i: int, name: str) -> Metric:
    return Metric(
        f"session_{name}_s",
        f"{CALLED.get(name, name)} time to finish a session",
        lambda run: statistics(run.attained.session_s)[i],
        "s",
        LOWER,
        f"{STATISTICS[name]}, over the sessions that came to their end, of the time from when a session's first "
        "request was due to its last token, in seconds.",
    )


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
             "scheduling overhead: time that the routing decision took, by the overhead model, if there is one"),
)
_METRICS = (
    Metric("n_requests", "requests", lambda run: len(run.made), "requests", NEITHER, "Requests of the stream."),
    Metric("offered_per_s", "rate of requests that came", lambda run: in_system.offered(run.made)[0], "requests/s",
           NEITHER, "Requests that were due, over the time from the first to the last; nothing if they came at once."),
    Metric("offered_s", "time in which requests came", lambda run: in_system.offered(run.made)[1], "s", NEITHER,
           "From when the first request was due until the last one was, in seconds."),
    _count(State.FINISHED, HIGHER, "Requests whose last token came."),
    _count(State.RUNNING, LOWER, "Requests that were in a batch when the run ended."),
    _count(State.QUEUED, LOWER, "Requests that waited on a GPU when the run ended."),
    _count(State.UNROUTED, LOWER, "Requests that no GPU had been chosen for when the run ended."),
    _count(State.REFUSED, LOWER, "Requests that were refused: by the router, or since no GPU can hold them."),
    _count(State.NOT_DUE, LOWER, "Requests that were to come, but the run ended first: after others that had not "
           "ended, or later, or in a session that was not to begin after duration_s. Where no request comes after "
           "another, they are in n_unrouted."),
    _count(State.CANCELLED, LOWER, "Requests that had no first token within their patience, or never came since they "
           "come after one that was cancelled, refused, lost or failed."),
    _count(State.LOST, LOWER, "Requests that were lost with their GPU, and not routed again."),
    _count(State.HELD, LOWER, "Requests whose prompt was computed when the run ended, and whose output's GPU had taken "
           "no room for it (only where prompts have GPUs of their own)."),
    _count(State.RESERVED, LOWER, "Requests whose KV was under way between GPUs when the run ended (likewise)."),
    _count(State.EXPIRED, LOWER, "Requests that waited too long in the gateway's queue (gateway.ttl_queue_s)."),
    _count(State.FAILED, LOWER, "Requests whose KV did not arrive, which ended them with an error "
           "(engine.kv_load_failure_policy=fail), and that were not routed again."),
    Metric("retries", "retries", lambda run: int(run.made.retries.sum()), "times", LOWER,
           "Attempts after requests' first that the gateway allowed (gateway.retries)."),
    Metric("refused_admission", "requests not admitted", lambda run: int(np.isin(run.made.refused_by, (1, 3, 4, 5))
           .sum()), "requests", LOWER, "Refused requests that the gateway did not let in, but for a full queue."),
    Metric("refused_full", "requests that found the queue full", lambda run: int((run.made.refused_by == 2).sum()),
           "requests", LOWER, "Refused requests that found the gateway's queue full (gateway.queue_limit)."),
    *(_statistic(one, i, name) for one in QUANTITIES for i, name in enumerate(STATISTICS)),
    *(Metric(*one) for one in itl.METRICS),
    Metric("prefill_end_mean_s", "average end of the prompt's computation",
           lambda run: statistics(run.made.prefill_end_s[run.counted])[0], "s", LOWER,
           "Mean time from when a request was due until its prompt was computed, in seconds: where one GPU does all of "
           "it, that is its first token; where prompts have GPUs of their own, its first token comes later."),
    Metric("transferred_tokens", "tokens sent between GPUs", lambda run: int(run.made.transferred_tokens.sum()),
           "tokens", LOWER, "Tokens of prompts whose KV another GPU read to make the output, in whole blocks."),
    Metric("router_wait_mean_s", "average wait for the router",
           lambda run: statistics(run.made.router_wait_s[run.counted])[0], "s", LOWER, "Mean time from a request's "
           "arrival until the router took it up, in seconds; above zero only with overhead=serial."),
    _found("hit_ratio", "hit ratio", "found in a GPU's prefix cache", "hit"),
    _found("host_hit_ratio", "hit ratio of host memory", "loaded from host memory (cluster.host)", "host"),
    _found("disk_hit_ratio", "hit ratio of disks", "loaded from disks (cluster.disk)", "disk"),
    _found("shared_hit_ratio", "hit ratio of the shared store", "loaded from the store (cluster.shared)", "shared"),
    _found("peer_hit_ratio", "hit ratio of other GPUs", "fetched from other GPUs (cluster.peers)", "peer"),
    _found("found_ratio", "hit ratio of all tiers", "found in any of these", "hit", "host", "disk", "shared", "peer"),
    *(Metric(*one) for one in prefill_metrics.METRICS),
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
           lambda run: float(run.lengths.var()) if len(run.lengths) else None, "tokens²", NEITHER, "Their variance."),
    Metric("told_error_tokens", "average error of told output lengths", lambda run: run.told[0], "tokens", LOWER,
           "Mean absolute difference of the output length that the policy was told and the true one, in tokens; of "
           "policies that read lengths alone."),
    Metric("told_rank_correlation", "rank correlation of told and true output lengths", lambda run: run.told[1],
           "−1 to 1", HIGHER, "Spearman's rank correlation of the two: 1 for an oracle, 0 where all were told alike."),
    Metric("evicted_tokens", "evicted tokens", lambda run: run.total("evicted_tokens"), "tokens", LOWER,
           "Tokens of KV that prefix caches dropped for want of memory."),
    Metric("retracted", "retractions", lambda run: run.total("retracted"), "times", LOWER,
           "How often a running request was sent back to its queue for want of memory."),
    Metric("moves", "moves of requests", lambda run: int(run.made.moves.sum()), "times", NEITHER,
           "How often a request was moved from one GPU to another (cluster.migration)."),
    Metric("moves_aborted", "aborted moves", lambda run: int(run.made.moves_aborted.sum()), "times", LOWER,
           "How often that began and came to nothing: no room, too many stages, or an end, a preemption or a loss."),
    Metric("stopped_mean_s", "average time stopped by moves",
           lambda run: statistics(run.made.stopped_s[run.made.stopped_s > 0])[0], "s", LOWER, "Mean, over those that "
           "were, of the time that requests were in no batch for the last stage of moves, in seconds."),
    Metric("losses", "losses", lambda run: int(run.made.losses.sum()), "times", LOWER,
           "How often a request was lost with its GPU (faults), or its KV did not arrive: it was routed again, unless "
           "it ended so."),
    Metric("availability", "availability of GPUs",
           lambda run: 1.0 - run.of_gpus(run.made.gpu_down_s) / run.made.end_s if run.made.end_s else None, "share",
           HIGHER, "The share of the run's time in which GPUs were not down, mean of all."),
    Metric("gpu_hours", "GPU-hours", lambda run: float((run.made.gpu_on_s * run.each).sum()) / 3600, "hours",
           LOWER, "Hours of all GPUs, of a replica with tensor parallelism of each of its own, in which they were paid "
           "for: all of the run, but not while one was down, or drained and empty. While it was started it was paid "
           "for."),
    *(Metric(*one) for one in (*recovery.METRICS, *scaling_metrics.METRICS, *warmed.METRICS, *step_metrics.METRICS)),
    Metric("peak_kv_tokens", "peak of KV tokens", lambda run: int(run.made.gpu_peak_kv_tokens.max()), "tokens", NEITHER,
           "The most tokens of KV that any GPU held at a time."),
    Metric("prompt_tokens_max", "longest prompt",
           lambda run: int(run.workload.prompt_tokens[run.made.gpu >= 0].max(initial=0)), "tokens", NEITHER,
           "Tokens of the longest prompt that was sent to a GPU."),
    Metric("peak_running", "most requests of a decode step", lambda run: int(run.made.gpu_peak_running.max()),
           "requests", NEITHER, "The most requests that a step of any GPU made a token of."),
    Metric("peak_context_tokens", "longest context of a decode step",
           lambda run: int(run.made.gpu_peak_context_tokens.max()), "tokens", NEITHER,
           "The most tokens that the requests of such a step are long, all together. What they share counts for each: "
           "kernels of attention go through all of it."),
    Metric("requests_max_over_mean", "requests of the busiest GPU over the mean",
           lambda run: _ratio(int(run.made.gpu_requests.max()) * len(run.made.gpu_requests), run.total("requests")),
           "ratio", LOWER, "Requests sent to the busiest GPU over the mean of all GPUs: 1 is perfect balance."),
    Metric("unfinished_growth", "growth of unfinished requests",
           lambda run: in_system.growth(run.workload, run.made), "share", LOWER,
           "By how much the requests that had arrived and were not finished grew in the third and in the fourth "
           "quarter of the time of arrivals, as a share of those that arrived in it; the lesser of the two. About 0 "
           "where the cluster keeps up, 1 − capacity/load where it does not; nothing where half that time is shorter "
           "than the longest answer takes at the least pace of the run."),
    Metric("in_system_trend", "trend of requests in the system", _trend, "share", LOWER,
           "By how much the number of requests that were due and not finished grows over the time of arrivals, by "
           "least squares, as a share of those that arrive in it: about 0 where the cluster keeps up. From warm-up on, "
           "or when the system has filled: after a tenth of the time, and the p99 of latency, but not after half. "
           "Nothing where unfinished_growth is nothing."),
    Metric("due_requests", "requests that count", lambda run: run.attained.count, "requests", NEITHER,
           "Requests that were due, after slo.warmup_s: those that attainment is of."),
    *(_of_limits(*one) for one in slo_metrics.METRICS),
    *(_session_time(i, name) for i, name in enumerate(STATISTICS)),
    *(_slowdown(of, i, name) for of in ("ttft", "latency") for i, name in enumerate(STATISTICS) if name != "mean"),
    Metric("end_s", "end of the run", lambda run: run.made.end_s, "s", LOWER,
           "When the run ended, in simulated seconds from its start."),
)
# fmt: on
DECLARED = {one.name: one for one in _METRICS}
METRICS = tuple(DECLARED)
"""the names of a row's metrics, in order"""
FIRST = (
    *("n_requests", "n_finished", "ttft_mean_s", "ttft_p99_s", "tpot_mean_s", "latency_mean_s", "latency_p99_s"),
    *("norm_latency_mean_s", "hit_ratio", "output_tokens_per_s", "requests_per_s", "requests_max_over_mean"),
)
"""those that people look at first"""


def measure(
    workload: Workload,
    outcome: Outcome,
    level: ServiceLevel = NONE,
    unloaded: Unloaded | None = None,
    replica_gpus: Sequence[int] | None = None,
) -> dict[str, Number]:
    """One row: `METRICS` by name, seconds and tokens; None: nothing to average. `unloaded`: if the level needs it.
    `replica_gpus`: (replicas,) how many GPUs each takes; None: one."""
    run = Served(workload, outcome, level, unloaded, replica_gpus)
    return {name: one.of(run) for name, one in DECLARED.items()}


def per_request(outcome: Outcome) -> dict[str, Floats]:
    """Each of `QUANTITIES` as a column, in seconds; NaN where there is none."""
    return {f"{one.name}_s": one.of(outcome) for one in QUANTITIES}
