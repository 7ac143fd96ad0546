"""Files of formats of their own: Mooncake's, Azure's, BurstGPT's, results of benchmarks, spans of OpenTelemetry."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from prebleexp.workloads.azure import Azure
from prebleexp.workloads.bench_log import BenchLog
from prebleexp.workloads.burstgpt import BurstGPT
from prebleexp.workloads.mooncake import Mooncake
from tests.support.odd_files.shapes import as_lines, table
from tests.support.odd_files.times import moment
from tests.support.odd_files.truth import EPOCH_S, UNITS, Row, Truth

Made = tuple[str, str]
"""a file's text, and what it is called in a failure"""


def of_mooncake(of: Truth, rng: np.random.Generator) -> Made:
    of.kind = Mooncake
    unit, block = str(rng.choice(["ms", "ms", "s", "ns"])), int(rng.choice([512, 512, 64, 16, 128, 1024]))
    base = int(rng.choice([0, 0, EPOCH_S]))
    of.untold = unit != "ms" and not base
    of.wrong = "its unit" if unit == "ns" and not base else ""
    kind = str(rng.choice(["numbers", "numbers", "texts", "64 bits"]))
    rows: list[Row] = []
    for i, (start, prompt, output) in enumerate(zip(of.start_s, of.prompt, of.output, strict=True)):
        hashes: list[Any] = [0, *range(1000 * i + 1, 1000 * i - (-prompt // block))]
        if kind != "numbers":
            hashes = [f"{one:016x}" if kind == "texts" else 2**63 + one for one in hashes]
        row = {"timestamp": (base + start) * UNITS[unit], "input_length": prompt, "output_length": output}
        rows.append(row | {"hash_ids": hashes})
    if rng.random() < 0.3:
        rows = [rows[i] for i in rng.permutation(len(rows))]
    if rng.random() < 0.15:
        rows[1] = rows[1] | {"hash_ids": rows[1]["hash_ids"][1:]}
        of.wrong = "hashes"
    return as_lines(rows, of, rng), f"mooncake {unit} {block} {base} {kind}"


def of_a_format(of: Truth, rng: np.random.Generator) -> Made:
    of.kind = Azure if rng.random() < 0.5 else BurstGPT
    names = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
    unit = str(rng.choice(["s", "ms"]))
    of.untold = unit == "ms"
    if of.kind is BurstGPT:
        names = ("Timestamp", "Request tokens", "Response tokens")

    def write(at: float) -> Any:
        return at * UNITS[unit] if of.kind is BurstGPT else str(moment(at))[:26]

    counts = zip(of.start_s, of.prompt, of.output, strict=True)
    rows = [dict(zip(names, (write(at), prompt, output), strict=True)) for at, prompt, output in counts]
    return table(rows, str(rng.choice([",", ";"]))), f"{of.kind.__name__} {unit}"


def of_bench(of: Truth, rng: np.random.Generator) -> Made:
    """With starts under some name and in some unit, or without: at a rate, by clients, or all at once."""
    of.kind, n = BenchLog, len(of.prompt)
    log: Row = {"backend": "vllm", "input_lens": of.prompt, "output_lens": of.output, "errors": [""] * n}
    way = str(rng.choice(["starts", "starts", "rate", "clients", "at once", "cap not reached"]))
    if way == "starts":
        base, unit = int(rng.choice([0, EPOCH_S])), str(rng.choice(["s", "s", "ms", "ns"]))
        name = str(rng.choice(["start_times", "start_timestamps", "arrival_times"]))
        log |= {"request_rate": "inf", name: [(base + at) * UNITS[unit] for at in of.start_s]}
        of.untold = unit != "s" and not base
        of.wrong = "its unit" if of.untold else ""
    elif way in ("rate", "cap not reached"):
        rate = n / (of.start_s[-1] - of.start_s[0])
        cap = {"max_concurrency": 256, "request_throughput": 0.97 * rate} if way != "rate" else {}
        log |= {"request_rate": rate, "burstiness": 1e6} | cap
    else:
        log |= {"request_rate": "inf", "max_concurrency": max(1, n // 4) if way == "clients" else None}
        of.start_s = [0.0] * n
    if rng.random() < 0.2:
        log["input_lens"] = of.prompt[1:]
        of.wrong = "lists of two lengths"
    return json.dumps(log, indent=int(rng.integers(0, 2)) or None), f"bench {way}"


def of_spans(of: Truth, rng: np.random.Generator) -> Made:
    """As OTLP has them in JSON: a span a call, it may be within one of an agent that sums them up."""
    spans = []
    for i, (start, prompt, output) in enumerate(zip(of.start_s, of.prompt, of.output, strict=True)):
        counts = {"gen_ai.usage.input_tokens": prompt, "gen_ai.usage.output_tokens": output}
        start_ns = round((EPOCH_S + start) * 1e9)
        span = _span(f"{i:016x}", start_ns, start_ns + 10**9, counts)
        spans.append(span | {"parentSpanId": "f" * 16})
    whole = {"gen_ai.usage.input_tokens": sum(of.prompt), "gen_ai.usage.output_tokens": sum(of.output)}
    summed = rng.random() < 0.5
    around = _span("f" * 16, round(EPOCH_S * 1e9), round((EPOCH_S + 10**4) * 1e9), whole if summed else {})
    found = [*spans, around, _span("e" * 16, round(EPOCH_S * 1e9), round((EPOCH_S + 1) * 1e9), {})]
    text = json.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": found}]}]})
    return text, f"spans {summed}"


def _span(name: str, start_ns: int, end_ns: int, counts: dict[str, int]) -> Row:
    attributes = [{"key": key, "value": {"intValue": str(value)}} for key, value in counts.items()]
    times = {"startTimeUnixNano": str(start_ns), "endTimeUnixNano": str(end_ns)}
    return {"traceId": "a" * 32, "spanId": name, "name": "chat", "kind": 3, "attributes": attributes} | times
