"""What every metric of a run means, for the methods of a report and the documentation."""

from __future__ import annotations

from prebleexp.metrics import METRICS, QUANTITIES, STATISTICS

QUANTITY = {
    "ttft": "time to first token: first token − arrival",
    "tpot": "time per output token: (latency − time to first token) / (output tokens − 1)",
    "latency": "latency: last token − arrival; of unfinished requests as of their last report",
    "norm_latency": "normalised latency: latency / output tokens",
    "overhead": "time that the routing decision took, by the overhead model; nothing with overhead=none",
}
STATISTIC = {"mean": "Mean", "p50": "Median", "p90": "90th percentile", "p99": "99th percentile"}
OTHERS = {
    "n_requests": "Requests that arrived.",
    "n_finished": "Requests whose last token came.",
    "n_running": "Requests that were in a batch when the run ended.",
    "n_queued": "Requests that waited on a GPU when the run ended.",
    "n_unrouted": "Requests that no GPU had been chosen for when the run ended.",
    "router_wait_mean_s": "Mean time from a request's arrival until the router took it up, in seconds; above zero only "
    "where one router serves decisions in turn (overhead=serial).",
    "hit_ratio": "Prompt tokens found in a GPU's prefix cache over all prompt tokens of all prefills, from 0 to 1.",
    "output_tokens_per_s": "Output tokens reported, over the length of the run.",
    "requests_per_s": "Finished requests over the length of the run.",
    "output_tokens_mean": "Mean of the output lengths that requests have, whether or not they were served.",
    "output_tokens_variance": "Their variance, in tokens².",
    "told_error_tokens": "Mean absolute difference of the output length that the policy was told and the true one, in "
    "tokens; of policies that read lengths alone.",
    "told_rank_correlation": "Spearman's rank correlation of the two: 1 for an oracle, 0 where all were told the same.",
    "evicted_tokens": "Tokens of KV that prefix caches dropped for want of memory.",
    "retracted": "How often a running request was sent back to its queue for want of memory.",
    "peak_kv_tokens": "The most tokens of KV that any GPU held at a time.",
    "requests_max_over_mean": "Requests sent to the busiest GPU over the mean of all GPUs: 1 is perfect balance.",
    "end_s": "When the run ended, in simulated seconds from its start.",
    "seconds": "How long it took to compute, in seconds of the machine that did.",
}


def _unit(quantity: str) -> str:
    return "seconds per token" if quantity in ("tpot", "norm_latency") else "seconds"


def meanings() -> dict[str, str]:
    """A sentence for every metric, in the order of a row."""
    made = {
        f"{quantity}_{statistic}_s": f"{STATISTIC[statistic]} over the requests that have one, in {_unit(quantity)}, "
        f"of the {QUANTITY[quantity]}."
        for quantity in (*QUANTITIES, "overhead")
        for statistic in STATISTICS
    } | OTHERS
    return {name: made[name] for name in (*METRICS, "seconds")}
