"""What Prometheus reads of a simulated GPU: vLLM's names, labels and edges of buckets (0.32), or SGLang's names."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from prebleexp.live.mock.cluster import Cluster
from prebleexp.live.mock.tickets import Ticket
from prebleexp.sim.types import State

FIRST = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0),
    *(80.0, 160.0, 640.0, 2560.0),
)
BETWEEN = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
WHOLE = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0),
    *(960.0, 1920.0, 7680.0),
)
A_STEP = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
REASONS = ("stop", "length", "abort", "error", "repetition")


def by_125(most: int) -> tuple[int, ...]:
    """1, 2, 5, 10, … up to the longest context."""
    edges = (digit * 10**power for power in range(12) for digit in (1, 2, 5))
    return tuple(one for one in edges if one <= most)


class Histogram:
    """A histogram of Prometheus: counts below each edge."""

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges, self.counts, self.total = edges, [0] * (len(edges) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.edges, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str) -> Iterable[str]:
        below = 0
        for edge, count in zip((*self.edges, math.inf), self.counts, strict=True):
            below += count
            at = "+Inf" if edge == math.inf else repr(float(edge))
            yield f'{name}_bucket{{{labels},le="{at}"}} {below}'
        yield f"{name}_sum{{{labels}}} {self.total!r}"
        yield f"{name}_count{{{labels}}} {below}"


class Said(NamedTuple):
    """A histogram's name, and what it is of."""

    name: str
    meaning: str
    of: Histogram


class Counts:
    """Of one GPU, what requests have been."""

    def __init__(self, context_length: int) -> None:
        lengths = by_125(context_length)
        self.first, self.between, self.per_token = Histogram(FIRST), Histogram(BETWEEN), Histogram(BETWEEN)
        self.whole, self.queue, self.prefill = Histogram(WHOLE), Histogram(WHOLE), Histogram(WHOLE)
        self.decode, self.inference = Histogram(WHOLE), Histogram(WHOLE)
        self.step, self.prompt, self.made = Histogram(A_STEP), Histogram(lengths), Histogram(lengths)
        self.reasons = dict.fromkeys(REASONS, 0)
        self.generated = self.asked_tokens = 0

    def scheduled(self, ticket: Ticket) -> None:
        self.asked_tokens += len(ticket.prompt)

    def token(self, ticket: Ticket, at_s: float) -> None:
        self.generated += 1
        if ticket.made == 1:
            self.first.add(at_s - ticket.at_s)
        else:
            self.between.add(at_s - ticket.last_s)

    def ended(self, ticket: Ticket, state: State, at_s: float) -> None:
        """As vLLM counts (v1/metrics/stats.py): the whole from when the frontend had it, as to the first token; its
        time in the queue from when the engine itself had it until it was first scheduled."""
        if state != State.FINISHED:
            if state == State.CANCELLED:
                self.reasons["abort"] += 1
            return
        self.reasons[ticket.reason] += 1
        self.whole.add(at_s - ticket.at_s)
        self.queue.add(ticket.scheduled_s - ticket.queued_s)
        self.prefill.add(ticket.first_s - ticket.scheduled_s)
        self.decode.add(at_s - ticket.first_s)
        self.inference.add(at_s - ticket.scheduled_s)
        if ticket.made > 1:
            self.per_token.add((at_s - ticket.first_s) / (ticket.made - 1))
        self.prompt.add(len(ticket.prompt))
        self.made.add(ticket.made)

    @property
    def histograms(self) -> tuple[Said, ...]:
        spent = "time per output token of a request in seconds"
        return (
            Said("time_to_first_token_seconds", "time to first token in seconds", self.first),
            Said("inter_token_latency_seconds", "inter-token latency in seconds", self.between),
            Said("request_time_per_output_token_seconds", spent, self.per_token),
            Said("e2e_request_latency_seconds", "end to end request latency in seconds", self.whole),
            Said("request_queue_time_seconds", "time spent in WAITING phase", self.queue),
            Said("request_prefill_time_seconds", "time spent in PREFILL phase", self.prefill),
            Said("request_decode_time_seconds", "time spent in DECODE phase", self.decode),
            Said("request_inference_time_seconds", "time spent in RUNNING phase", self.inference),
            Said("iteration_tokens_total", "number of tokens per engine step", self.step),
            Said("request_prompt_tokens", "number of prefill tokens processed", self.prompt),
            Said("request_generation_tokens", "number of generation tokens processed", self.made),
        )


class Metrics:
    """Of all GPUs; who watches a cluster (`tickets.Watching`)."""

    def __init__(self, cluster: Cluster, model: str) -> None:
        self._cluster, self._model = cluster, _escaped(model)
        self.of = [Counts(cluster.context_length) for _ in range(cluster.gpus)]

    def scheduled(self, ticket: Ticket) -> None:
        self.of[ticket.gpu].scheduled(ticket)

    def stepped(self, gpu: int, tokens: int) -> None:
        self.of[gpu].step.add(tokens)

    def token(self, ticket: Ticket, at_s: float) -> None:
        self.of[ticket.gpu].token(ticket, at_s)

    def ended(self, ticket: Ticket, state: State, at_s: float) -> None:
        self.of[ticket.gpu].ended(ticket, state, at_s)

    # ------------------------------------------------------------ what is read
    def vllm(self, gpu: int) -> bytes:
        cluster, counts = self._cluster, self.of[gpu]
        world = cluster.run.world
        live, total = world.live[gpu], world.totals[gpu]
        labels = f'engine="0",model_name="{self._model}"'
        lines: list[str] = []

        def say(kind: str, name: str, meaning: str, *rows: tuple[str, float]) -> None:
            lines.append(f"# HELP vllm:{name.removesuffix('_total') if kind == 'counter' else name} {meaning}.")
            lines.append(f"# TYPE vllm:{name.removesuffix('_total') if kind == 'counter' else name} {kind}")
            lines.extend(f"vllm:{name}{{{labels}{more}}} {float(value)!r}" for more, value in rows)

        say("gauge", "num_requests_running", "Number of requests in model execution batches", ("", live.running))
        say("gauge", "num_requests_waiting", "Number of requests waiting to be processed", ("", live.queued))
        reasons = ((',reason="capacity"', live.queued), (',reason="deferred"', 0))
        say("gauge", "num_requests_waiting_by_reason", "Number of waiting requests by reason", *reasons)
        say("gauge", "kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage", ("", usage(live)))
        hits, prompts = int(total.hit_tokens), counts.asked_tokens
        say("counter", "prefix_cache_queries_total", "Prefix cache queries, in number of tokens", ("", prompts))
        say("counter", "prefix_cache_hits_total", "Prefix cache hits, in number of cached tokens", ("", hits))
        say("counter", "prompt_tokens_total", "Number of prefill tokens processed", ("", prompts))
        say("counter", "prompt_tokens_cached_total", "Number of cached prompt tokens", ("", hits))
        say("counter", "generation_tokens_total", "Number of generation tokens processed", ("", counts.generated))
        say("counter", "num_preemptions_total", "Cumulative number of preemptions", ("", total.retracted))
        ends = [(f',finished_reason="{reason}"', count) for reason, count in counts.reasons.items()]
        say("counter", "request_success_total", "Count of successfully processed requests", *ends)
        for name, meaning, of in counts.histograms:
            lines += (f"# HELP vllm:{name} Histogram of {meaning}.", f"# TYPE vllm:{name} histogram")
            lines += of.lines(f"vllm:{name}", labels)
        blocks = cluster.kv_tokens // cluster.block
        lines += (
            "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig",
            "# TYPE vllm:cache_config_info gauge",
        )
        about = f'block_size="{cluster.block}",engine="0",num_gpu_blocks="{blocks}"'
        lines.append(f"vllm:cache_config_info{{{about}}} 1.0")
        return ("\n".join(lines) + "\n").encode()

    def sglang(self, gpu: int) -> bytes:
        cluster, counts = self._cluster, self.of[gpu]
        world = cluster.run.world
        live, total = world.live[gpu], world.totals[gpu]
        labels = f'model_name="{self._model}"'
        lines: list[str] = []
        for kind, name, value in (
            ("gauge", "num_running_reqs", live.running),
            ("gauge", "num_queue_reqs", live.queued),
            ("gauge", "num_used_tokens", live.kv_tokens - live.kv_free - live.evictable),
            ("gauge", "token_usage", usage(live)),
            ("gauge", "max_total_num_tokens", cluster.kv_tokens),
            ("gauge", "cache_hit_rate", total.hit_tokens / max(1, counts.asked_tokens)),
            ("counter", "prompt_tokens_total", counts.asked_tokens),
            ("counter", "cached_tokens_total", total.hit_tokens),
            ("counter", "generation_tokens_total", counts.generated),
            ("counter", "num_requests_total", sum(counts.reasons.values())),
        ):
            lines += (f"# TYPE sglang:{name} {kind}", f"sglang:{name}{{{labels}}} {float(value)!r}")
        for name, of in (
            ("time_to_first_token_seconds", counts.first),
            ("inter_token_latency_seconds", counts.between),
            ("e2e_request_latency_seconds", counts.whole),
            ("queue_time_seconds", counts.queue),
        ):
            lines += (f"# TYPE sglang:{name} histogram", *of.lines(f"sglang:{name}", labels))
        return ("\n".join(lines) + "\n").encode()


def usage(live: object) -> float:
    """Share of KV that requests hold: what only the cache holds counts as free."""
    free = live.kv_free + live.evictable  # type: ignore[attr-defined]
    return float(1 - free / live.kv_tokens)  # type: ignore[attr-defined]


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
