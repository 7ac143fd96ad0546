"""What the tool says of a benchmark: its table, and the fields of its JSON, in its order (SGLang 0.5.23, read)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from prebleexp.sglang_bench.flags import Pasted
from prebleexp.sim.types import Floats
from prebleexp.vllm_bench.result import WIDE, Result, line, peaks, per_token
from prebleexp.vllm_bench.served import Served
from prebleexp.workloads.sglang_bench import SglangBench

PERCENTILES = (90, 95, 99)
HEADINGS = {
    "e2e_latency": ("E2E Latency", "End-to-End Latency"),
    "ttft": ("TTFT", "Time to First Token"),
    "tpot": ("TPOT", "Time per Output Token (excl. 1st token)"),
    "itl": ("ITL", "Inter-Token Latency"),
}
"""what rows of each are called, and their heading"""
DETAILS = ("input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors")
"""fields that are written with --output-details alone"""


def result(of: Served, source: SglangBench, pasted: Pasted) -> Result:
    """Fields of the JSON, and lines of the table."""
    head = {
        "tag": pasted.tag,
        "backend": pasted.backend,
        "dataset_name": source.dataset_name,
        "request_rate": source.rate,
        "max_concurrency": source.max_concurrency,
        "sharegpt_output_len": source.sharegpt_output_len,
        "random_input_len": source.random_input_len,
        "random_output_len": source.random_output_len,
        "random_range_ratio": source.random_range_ratio,
        "server_info": None,
    }
    times = _times(of)
    fields = head | numbers(of)
    fields |= _goodput(of, pasted.goodput_ms) if pasted.goodput_ms else {}
    fields |= {
        "input_lens": of.input_lens.tolist(),
        "output_lens": of.output_lens.tolist(),
        "ttfts": of.ttft_s.tolist(),
        "itls": [one.tolist() for one in of.gaps_s],
        "generated_texts": [""] * len(of.ok),
        "errors": list(of.errors),
    }
    return Result(fields, _lines(fields, times, source, pasted))


def numbers(of: Served) -> dict[str, Any]:
    """Fields of the JSON that the benchmark's client counted and timed."""
    tokens, requests = peaks(of)
    latencies = {name: value for name, value in _times(of).items() if name != "max_itl_ms"}
    concurrency = float(of.latency_s[of.ok].sum()) / of.duration_s if of.duration_s > 0 else 0.0
    own = {"concurrency": concurrency, "accept_length": None}
    return _counts(of) | latencies | own | {"max_output_tokens_per_s": tokens, "max_concurrent_requests": requests}


def _counts(of: Served) -> dict[str, Any]:
    inputs, outputs, completed = int(of.input_lens[of.ok].sum()), int(of.output_lens.sum()), int(of.ok.sum())
    per_s = 1 / of.duration_s if of.duration_s > 0 else 0.0
    return {
        "duration": of.duration_s,
        "completed": completed,
        "total_input_tokens": inputs,
        "total_input_text_tokens": inputs,
        "total_input_vision_tokens": 0,
        "total_output_tokens": outputs,
        "total_output_tokens_retokenized": outputs,
        "request_throughput": completed * per_s,
        "input_throughput": inputs * per_s,
        "output_throughput": outputs * per_s,
        "total_throughput": (inputs + outputs) * per_s,
    }


def _times(of: Served) -> dict[str, float]:
    """Milliseconds, each metric's one after the other."""
    ok = of.ok
    gaps = np.concatenate(of.gaps_s) if len(of.gaps_s) else np.zeros(0)
    values: dict[str, Floats] = {
        "e2e_latency": of.latency_s[ok],
        "ttft": of.ttft_s[ok],
        "tpot": per_token(of)[ok & (of.output_lens > 1)],
        "itl": gaps,
    }
    found: dict[str, float] = {}
    for name, seconds in values.items():
        given = seconds if len(seconds) else np.zeros(1)
        said = {"mean": np.mean(given), "median": np.median(given), "std": np.std(given)}
        said |= {f"p{p}": np.percentile(given, p) for p in PERCENTILES}
        said |= {"max": np.max(given)} if name == "itl" else {}
        found |= {f"{of_them}_{name}_ms": float(value) * 1000 for of_them, value in said.items()}
    return found


def _goodput(of: Served, goals_ms: Mapping[str, float]) -> dict[str, Any]:
    values = {"ttft": of.ttft_s, "tpot": per_token(of), "e2el": of.latency_s}
    met = {name: of.ok & (values[name] * 1000 <= goal_ms) for name, goal_ms in goals_ms.items()}
    good, n = np.logical_and.reduce(list(met.values())), max(len(of.ok), 1)
    return {
        "goodput_slos_ms": dict(goals_ms),
        "request_goodput": int(good.sum()) / of.duration_s if of.duration_s > 0 else 0.0,
        "slo_attainment": int(good.sum()) / n,
        "slo_attainment_by_metric": {name: int(one.sum()) / n for name, one in met.items()},
    }


def _lines(fields: Mapping[str, Any], times: Mapping[str, float], source: SglangBench, pasted: Pasted) -> list[str]:
    def text(name: str, value: object) -> str:
        return f"{name:<40} {value!s:<10}"

    most = source.max_concurrency
    found = [
        f"{' Serving Benchmark Result ':=^{WIDE}}",
        text("Backend:", pasted.backend),
        text("Traffic request rate:", source.rate),
        text("Max request concurrency:", "not set" if most is None else most),
        line("Successful requests:", fields["completed"]),
        line("Benchmark duration (s):", fields["duration"]),
        line("Total input tokens:", fields["total_input_tokens"]),
        line("Total input text tokens:", fields["total_input_text_tokens"]),
        line("Total generated tokens:", fields["total_output_tokens"]),
        line("Total generated tokens (retokenized):", fields["total_output_tokens_retokenized"]),
        line("Request throughput (req/s):", fields["request_throughput"]),
        line("Input token throughput (tok/s):", fields["input_throughput"]),
        line("Output token throughput (tok/s):", fields["output_throughput"]),
        line("Peak output token throughput (tok/s):", fields["max_output_tokens_per_s"]),
        line("Peak concurrent requests:", fields["max_concurrent_requests"]),
        line("Total token throughput (tok/s):", fields["total_throughput"]),
        line("Concurrency:", fields["concurrency"]),
    ]
    if "request_goodput" in fields:
        goals = " ".join(f"{name}:{goal:g}" for name, goal in fields["goodput_slos_ms"].items())
        found += [f"{'Goodput':-^{WIDE}}", text("SLOs (ms):", goals)]
        found.append(line("Request goodput (req/s):", fields["request_goodput"]))
        found.append(line("SLO attainment (%):", fields["slo_attainment"] * 100))
        for name, share in fields["slo_attainment_by_metric"].items():
            found.append(line(f"{name.upper()} SLO attainment (%):", share * 100))
    for name, (short, heading) in HEADINGS.items():
        found.append(f"{heading:-^{WIDE}}")
        for said in ("mean", "median", *(f"p{p}" for p in PERCENTILES), *(["max"] if name == "itl" else [])):
            found.append(line(f"{said[0].upper()}{said[1:]} {short} (ms):", times[f"{said}_{name}_ms"]))
    return [*found, "=" * WIDE]
