"""What a router tells of itself, in Prometheus's text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from prebleexp.live.router.deciding import Deciding
from prebleexp.live.router.upstreams import Stage, Upstream

WINDOW_S = 30.0
"""over which hits of a prefix cache are looked at"""
EDGES_S = (5e-6, 1e-5, 2e-5, 3e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3, 2e-2, 0.1)


class Counts:
    """Counts of what became of all requests."""

    def __init__(self) -> None:
        self.answered = self.left = self.cut = self.retried = 0
        self.refused = Counter[str]()
        self.buckets = [0] * (len(EDGES_S) + 1)
        self.seconds = 0.0

    def decided(self, seconds: float) -> None:
        """From a whole body to a server."""
        self.buckets[bisect_left(EDGES_S, seconds)] += 1
        self.seconds += seconds


def metrics(counts: Counts, upstreams: Sequence[Upstream], deciding: Deciding, held: int) -> str:
    rows: list[str] = []

    def add(name: str, kind: str, meaning: str, values: Sequence[tuple[str, float]]) -> None:
        rows.extend((f"# HELP prebleexp:{name} {meaning}", f"# TYPE prebleexp:{name} {kind}"))
        rows.extend(f"prebleexp:{name}{labels} {value:.12g}" for labels, value in values)

    refused = [(f'{{outcome="refused",reason="{name}"}}', float(count)) for name, count in counts.refused.items()]
    outcomes = [("answered", counts.answered), ("left", counts.left), ("cut", counts.cut)]
    ended = [(f'{{outcome="{name}"}}', float(count)) for name, count in outcomes]
    add("requests_total", "counter", "Requests that have ended", [*ended, *refused])
    add("retries_total", "counter", "Requests that went to another server", [("", counts.retried)])
    add("held", "gauge", "Requests that wait for a server", [("", held)])
    add("laps_total", "counter", "How often the policy began anew, its room being used up", [("", deciding.host.lap)])
    if deciding.recording is not None:
        words = "Whether what the policy is asked and told is recorded: 0 when the disk has refused (record=)"
        add("recording", "gauge", words, [("", float(not deciding.recording.stopped))])
    if deciding.held is not None:
        words = "Prompts that came as text, of which KV events say nothing"
        add("kv_unmatched_total", "counter", words, [("", deciding.unmatched)])
        words = "Of prompts whose server says what it had cached: tokens that were to be"
        add("kv_predicted_tokens_total", "counter", words, [("", deciding.predicted_tokens)])
        add("kv_cached_tokens_total", "counter", "And tokens that were", [("", deciding.cached_tokens)])
        words = "Blocks that were stored behind something unknown, or of another size, or with more than tokens"
        add("kv_passed_over_total", "counter", words, [("", deciding.held.passed_over)])
        blocks = [(f'{{gpu="{one.number}"}}', float(deciding.held.blocks(one.number))) for one in upstreams]
        add("kv_blocks", "gauge", "That it holds, by its events", blocks)
    add("bytes_per_token", "gauge", "Of prompts, as learned from usage", [("", deciding.bytes_per_token)])
    for name, meaning in (("sent", "sent there"), ("finished", "answered there"), ("lost", "not answered there")):
        values = [(f'{{gpu="{one.number}"}}', float(getattr(one, name))) for one in upstreams]
        add(f"upstream_{name}_total", "counter", f"Requests {meaning}", values)
    flying = [(f'{{gpu="{one.number}"}}', float(len(one.flying))) for one in upstreams]
    add("upstream_outstanding", "gauge", "Requests under way there", flying)
    up = [(f'{{gpu="{one.number}"}}', float(one.stage is Stage.UP)) for one in upstreams]
    add("upstream_up", "gauge", "Whether it may get requests", up)
    total, values = 0, []
    for edge, count in zip((*EDGES_S, float("inf")), counts.buckets, strict=True):
        total += count
        values.append((f'_bucket{{le="{"+Inf" if edge == float("inf") else f"{edge:g}"}"}}', float(total)))
    values += [("_sum", counts.seconds), ("_count", float(total))]
    add("decision_seconds", "histogram", "From a whole body to a server", values)
    return "\n".join(rows) + "\n"
