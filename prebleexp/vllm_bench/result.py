"""What the tool says of a benchmark: its table, and the fields of its JSON, in its order (vLLM 0.32.0, read)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

from prebleexp.sim.types import Floats
from prebleexp.vllm_bench.served import Served
from prebleexp.workloads.vllm_bench import VllmBench

METRICS = {
    "ttft": ("TTFT", "Time to First Token"),
    "tpot": ("TPOT", "Time per Output Token (excl. 1st token)"),
    "itl": ("ITL", "Inter-token Latency"),
    "e2el": ("E2EL", "End-to-end Latency"),
    "client_queue_time": ("Client Queue Time", "Client-side Queueing"),
    "e2el_including_client_queue": ("E2EL incl. Client Queue", "Queue-inclusive End-to-end Latency"),
}
"""what percentiles there can be of, what their rows are called, and their heading"""
OF_TOKENS = ("ttft", "tpot", "itl")
WIDE = 50
DETAILS = ("input_lens", "output_lens", "start_times", "ttfts", "itls", "generated_texts", "errors")
"""fields that are written with --save-detailed alone"""


@dataclass(frozen=True)
class Wanted:
    """What is to be said of a benchmark."""

    metrics: tuple[str, ...] = OF_TOKENS
    """those of `METRICS`"""
    percentiles: tuple[float, ...] = (99.0,)
    goodput_ms: Mapping[str, float] = field(default_factory=dict)
    """a request is good that is within each of these: of ttft, tpot, e2el"""
    counts_tokens: bool = True
    """false: there is no tokenizer, and the table says nothing of tokens"""


class Result(NamedTuple):
    fields: dict[str, Any]
    """of the JSON, from duration on"""
    lines: list[str]
    """of the table"""


def result(of: Served, source: VllmBench, wanted: Wanted, date: datetime) -> Result:
    """Of a benchmark that began at this date, or would have."""
    fields = _fields(of, wanted)
    most, rate = source.max_concurrency, source.rate
    lines = [
        f"{' Serving Benchmark Result ':=^{WIDE}}",
        line("Successful requests:", fields["completed"]),
        line("Failed requests:", fields["failed"]),
        *([] if most is None else [line("Maximum request concurrency:", most)]),
        *([] if math.isinf(rate) else [line("Request rate configured (RPS):", rate)]),
        line("Benchmark duration (s):", fields["duration"]),
        line("Total input tokens:", fields["total_input_tokens"]),
    ]
    counts = wanted.counts_tokens
    lines += [line("Total generated tokens:", fields["total_output_tokens"])] if counts else []
    lines.append(line("Request throughput (req/s):", fields["request_throughput"]))
    lines += [line("Request goodput (req/s):", fields["request_goodput"])] if wanted.goodput_ms else []
    if counts:
        lines.append(line("Output token throughput (tok/s):", fields["output_throughput"]))
        lines.append(line("Peak output token throughput (tok/s):", fields["max_output_tokens_per_s"]))
    lines.append(line("Peak concurrent requests:", float(fields["max_concurrent_requests"])))
    lines += [line("Total token throughput (tok/s):", fields["total_token_throughput"])] if counts else []
    if source.ramp_up_strategy is not None:
        fields["rps_change_events"] = _rate_changes(of, source, date)
    for name, values in _times(of, source, wanted).items():
        short, heading = METRICS[name]
        lines.append(f"{heading:-^{WIDE}}")
        said = {"mean": np.mean(values or 0), "median": np.median(values or 0), "std": np.std(values or 0)}
        said |= {f"p{_plain(p)}": np.percentile(values or 0, p) for p in wanted.percentiles}
        for of_them, seconds in said.items():
            milliseconds = float(seconds) * 1000
            fields[f"{of_them}_{name}_ms"] = milliseconds
            if of_them != "std":
                lines.append(line(f"{of_them[0].upper()}{of_them[1:]} {short} (ms):", milliseconds))
    return Result(fields, [*lines, "=" * WIDE])


def line(name: str, value: float) -> str:
    """A line of the table that `vllm bench serve` prints: name and value in 40 and 10 columns."""
    return f"{name:<40} {value:<10}" if isinstance(value, int) else f"{name:<40} {value:<10.2f}"


def _plain(percentile: float) -> str:
    return str(int(percentile)) if int(percentile) == percentile else str(percentile)


def _fields(of: Served, wanted: Wanted) -> dict[str, Any]:
    completed = int(of.ok.sum())
    inputs, outputs = int(of.input_lens[of.ok].sum()), int(of.output_lens.sum())
    per_s = 1 / of.duration_s if of.duration_s > 0 else 0.0
    tokens, requests = peaks(of)
    return {
        "duration": of.duration_s,
        "completed": completed,
        "failed": len(of.ok) - completed,
        "total_input_tokens": inputs,
        "total_output_tokens": outputs,
        "request_throughput": completed * per_s,
        "request_goodput": _good(of, wanted.goodput_ms) * per_s if wanted.goodput_ms else None,
        "output_throughput": outputs * per_s,
        "total_token_throughput": (inputs + outputs) * per_s,
        "input_lens": of.input_lens.tolist(),
        "output_lens": of.output_lens.tolist(),
        "ttfts": of.ttft_s.tolist(),
        "itls": [one.tolist() for one in of.gaps_s],
        "latencies": of.latency_s.tolist(),
        "start_times": of.start_s.tolist(),
        "queue_times": of.waited_s.tolist(),
        "generated_texts": [""] * len(of.ok),
        "errors": list(of.errors),
        "max_output_tokens_per_s": tokens,
        "max_concurrent_requests": requests,
        "rtfx": 0.0,
    }


def per_token(of: Served) -> Floats:
    """(n,) a token after the first; 0 where there is none."""
    further = np.maximum(of.output_lens - 1, 1)
    per_token: Floats = np.where(of.output_lens > 1, (of.latency_s - of.ttft_s) / further, 0.0)
    return per_token


def _good(of: Served, goals_ms: Mapping[str, float]) -> int:
    values = {"ttft": of.ttft_s, "tpot": per_token(of), "e2el": of.latency_s}
    good = of.ok.copy()
    for name, goal_ms in goals_ms.items():
        good &= values[name] <= goal_ms / 1000
    return int(good.sum())


def _times(of: Served, source: VllmBench, wanted: Wanted) -> dict[str, list[float]]:
    """Seconds of each metric that is wanted and there, in the table's order."""
    ok = of.ok
    found = {}
    if wanted.counts_tokens:
        found["ttft"] = of.ttft_s[ok].tolist()
        found["tpot"] = per_token(of)[ok & (of.output_lens > 1)].tolist()
        found["itl"] = [gap for one in of.gaps_s for gap in one.tolist()]
    found["e2el"] = of.latency_s[ok].tolist()
    if source.max_concurrency is not None:
        found["client_queue_time"] = of.waited_s[ok].tolist()
        if not math.isinf(source.rate):
            found["e2el_including_client_queue"] = (of.latency_s + of.waited_s)[ok].tolist()
    return {name: values for name, values in found.items() if name in wanted.metrics}


def peaks(of: Served) -> tuple[float, int]:
    """Tokens of the fullest second from the first start on, and the most requests that were there in one."""
    if not of.ok.any():
        return 0.0, 0
    rows = np.flatnonzero(of.ok)
    starts = of.start_s[rows] - of.start_s[rows].min()
    seconds = math.ceil((starts + of.latency_s[rows]).max()) + 2
    tokens, there = np.zeros(seconds), np.zeros(seconds + 1, np.int64)
    for row, start in zip(rows.tolist(), starts.tolist(), strict=True):
        times = start + of.ttft_s[row] + np.concatenate([[0.0], np.cumsum(of.gaps_s[row])])
        np.add.at(tokens, times.astype(np.int64), 1)
        there[int(start)] += 1
        there[int(start + of.latency_s[row]) + 1] -= 1
    return float(tokens.max()), int(np.cumsum(there).max())


def _rate_changes(of: Served, source: VllmBench, date: datetime) -> list[dict[str, Any]]:
    """When the rate of a ramp first was each whole number."""
    came_s = of.start_s - of.waited_s - of.begun_s
    last = int(source.ramp_up_start_rps or 0)
    events = [{"rps": last, "timestamp": date.isoformat()}]
    for seconds, rate in zip(came_s.tolist(), source.ramped(len(came_s)).tolist(), strict=True):
        reached: Sequence[int] = range(last + 1, int(rate) + 1)
        timestamp = (date + timedelta(seconds=seconds)).isoformat()
        events += [{"rps": one, "timestamp": timestamp} for one in reached]
        last = max(last, int(rate))
    return events
