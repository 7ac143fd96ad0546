"""Two thousand logs, right, odd and wrong, whose truth is known: nothing is off by a factor in silence."""

from __future__ import annotations

import csv
import datetime
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prebleexp.errors import InvalidInput
from prebleexp.workloads.azure import Azure
from prebleexp.workloads.bench_log import BenchLog
from prebleexp.workloads.burstgpt import BurstGPT
from prebleexp.workloads.mooncake import Mooncake
from prebleexp.workloads.replayed import Replayed
from prebleexp.workloads.request_log import RequestLog
from tests.support.sampled import sampled

FILES = 2000
FACTOR = 1.5
EPOCH_S = 1_764_000_000
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
Row = dict[str, Any]


@dataclass
class Truth:
    """Of n requests in order of arrival."""

    start_s: list[float]
    prompt: list[int]
    output: list[int]
    cached: list[int]
    wrong: str = ""
    """what of the file cannot be read as it is meant: it has to be refused, or said"""
    untold: bool = False
    """whether nothing in it says in which unit its times are: what was taken has to be said"""
    kind: type[Replayed] = RequestLog
    settings: Row = field(default_factory=dict)


def truth(rng: np.random.Generator) -> Truth:
    n = int(rng.integers(3, 30))
    gaps = rng.exponential(10.0 ** rng.uniform(-1.5, 1.2), n)
    prompt = rng.integers(200, 20_000, n)
    cached = (prompt * rng.choice([0.0, 0.3, 0.95], n)).astype(int) // 16 * 16
    output = rng.integers(1, 900, n)
    return Truth(np.cumsum(gaps).round(3).tolist(), prompt.tolist(), output.tolist(), cached.tolist())


# ---------------------------------------------------------------- times
def named_unit(rng: np.random.Generator) -> tuple[str, Callable[[float], Any]]:
    unit = str(rng.choice(list(UNITS)))
    stem = str(rng.choice(["arrival_time", "start_time", "ts", "timestamp", "created"]))
    base = int(rng.choice([0, EPOCH_S]))
    return f"{stem}_{unit}", lambda at: round((base + at) * UNITS[unit]) if unit != "s" else base + at


def epoch(rng: np.random.Generator) -> tuple[str, Callable[[float], Any]]:
    unit, text = str(rng.choice(list(UNITS))), rng.random() < 0.2
    name = str(rng.choice(["timestamp", "time", "created_at", "startTime", "arrived_at"]))

    def write(at: float) -> Any:
        value = EPOCH_S + at if unit == "s" else round((EPOCH_S + at) * UNITS[unit])
        return str(value) if text else value

    return name, write


def dated(rng: np.random.Generator) -> tuple[str, Callable[[float], Any]]:
    zone = str(rng.choice(["", "Z", "+00:00", "+05:30"]))
    between = str(rng.choice(["T", " "]))

    def write(at: float) -> str:
        moment = datetime.datetime.fromtimestamp(EPOCH_S + at, datetime.UTC)
        return moment.strftime(f"%Y-%m-%d{between}%H:%M:%S.%f") + zone

    return str(rng.choice(["timestamp", "start_time", "datetime", "@timestamp"])), write


def relative(rng: np.random.Generator) -> tuple[str, Callable[[float], Any]]:
    """A number that says nothing of its unit."""
    unit = str(rng.choice(["s", "s", "ms", "us"]))
    return str(rng.choice(["timestamp", "time", "arrival"])), lambda at: at if unit == "s" else round(at * UNITS[unit])


# ---------------------------------------------------------------- usage
def openai(prompt: int, output: int, cached: int) -> Row:
    details = {"prompt_tokens_details": {"cached_tokens": cached}, "total_tokens": prompt + output}
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": output} | details}


def anthropic(prompt: int, output: int, cached: int) -> Row:
    wrote = (prompt - cached) // 3
    parts = {"cache_read_input_tokens": cached, "cache_creation_input_tokens": wrote}
    return {"response": {"usage": {"input_tokens": prompt - cached - wrote, "output_tokens": output} | parts}}


def bedrock(prompt: int, output: int, cached: int) -> Row:
    counts = {"inputTokens": prompt - cached, "outputTokens": output, "totalTokens": prompt + output}
    return {"usage": counts | {"cacheReadInputTokens": cached, "cacheWriteInputTokens": 0}}


def gemini(prompt: int, output: int, cached: int) -> Row:
    counts = {"promptTokenCount": prompt, "cachedContentTokenCount": cached, "totalTokenCount": prompt + output}
    return {"usageMetadata": counts | {"candidatesTokenCount": output - output // 2, "thoughtsTokenCount": output // 2}}


def apart_under_openais_names(prompt: int, output: int, cached: int) -> Row:
    return {"prompt_tokens": prompt - cached, "completion_tokens": output, "cache_read_input_tokens": cached}


def otel(prompt: int, output: int, cached: int) -> Row:
    names = ("input_tokens", "output_tokens", "cache_read.input_tokens")
    return {f"gen_ai.usage.{name}": value for name, value in zip(names, (prompt, output, cached), strict=True)}


def plain(a: str, b: str) -> Callable[[int, int, int], Row]:
    return lambda prompt, output, cached: {a: prompt, b: output}


USAGES = (
    *(openai, anthropic, bedrock, gemini, apart_under_openais_names, otel),
    *(plain("prompt_tokens", "completion_tokens"), plain("num_prefill_tokens", "num_decode_tokens")),
    *(plain("input_toks", "output_toks"), plain("ISL", "OSL"), plain("prompt_size", "token_size")),
    *(plain("ContextTokens", "GeneratedTokens"), plain("Request tokens", "Response tokens")),
)


# ---------------------------------------------------------------- files
def as_lines(rows: list[Row], rng: np.random.Generator) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_array(rows: list[Row], rng: np.random.Generator) -> str:
    return json.dumps(rows, indent=int(rng.integers(0, 3)) or None)


def as_wrapped(rows: list[Row], rng: np.random.Generator) -> str:
    return json.dumps({str(rng.choice(["data", "logs", "results"])): rows}, indent=1)


def as_csv(rows: list[Row], rng: np.random.Generator) -> str:
    flat = [{k: json.dumps(v) if isinstance(v, dict) else v for k, v in row.items()} for row in rows]
    file = io.StringIO()
    names = list(dict.fromkeys(name for row in flat for name in row))
    writer = csv.DictWriter(file, names, delimiter=str(rng.choice([",", ";", "\t"])))
    writer.writeheader()
    writer.writerows(flat)
    return file.getvalue()


# ---------------------------------------------------------------- what is odd, and what is wrong
def shuffled(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    return [rows[i] for i in rng.permutation(len(rows))]


def with_failures(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    ways: list[Row] = [{"status": 429}, {"error": "timeout"}, {"status": "failed"}]
    failed = {name: rows[-1][name]} | ways[int(rng.integers(3))]
    good = [row | {"status": 200} for row in rows] if "status" in failed and failed["status"] == 429 else rows
    return [*good[:1], failed, *good[1:]]


def with_decoys(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    decoys = {"max_tokens": 4096, "latency_ms": 1234.5, "duration": 3.2, "temperature": 0.7, "total_cost": 0.01}
    return [row | decoys | {"request_time": 0.35, "model": "m"} for row in rows]


def of_two_units(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    at = rows[-1][name]
    if isinstance(at, str) or at < 1e9:
        return rows
    of.wrong = "units"
    return [*rows[:-1], rows[-1] | {name: at * 1000}]


def without_a_time(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    of.wrong = "time"
    return [*rows[:1], {key: value for key, value in rows[1].items() if key != name}, *rows[2:]]


def without_lengths(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    of.wrong = "lengths"
    return [{name: row[name]} for row in rows]


def with_a_bad_length(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    key = next((key for key, value in rows[1].items() if key != name and isinstance(value, int)), None)
    if key is None:
        return rows
    of.wrong = "a length"
    bad = [-5, 1.5, "many", True, None, 10**12][int(rng.integers(6))]
    return [rows[0], rows[1] | {key: bad}, *rows[2:]]


def as_they_are(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    return rows


ODD = (
    *(as_they_are, as_they_are, shuffled, with_failures, with_decoys),
    *(of_two_units, without_a_time, without_lengths, with_a_bad_length),
)


def made(seed: int) -> tuple[str, Truth, str]:
    """A file's text, its truth, and what it is called in a failure."""
    rng = np.random.default_rng([31, seed])
    of = truth(rng)
    kind = rng.random()
    if kind < 0.15:
        return of_mooncake(of, rng)
    if kind < 0.25:
        return of_a_format(of, rng)
    if kind < 0.35:
        return of_bench(of, rng)
    time = (named_unit, epoch, dated, relative)[int(rng.integers(4))]
    usage = USAGES[int(rng.integers(len(USAGES)))]
    write = (as_lines, as_lines, as_array, as_wrapped, as_csv)[int(rng.integers(5))]
    odd = ODD[int(rng.integers(len(ODD)))]
    of.untold = time is relative
    name, at = time(rng)
    counts = zip(of.prompt, of.output, of.cached, strict=True)
    rows = [{name: at(start)} | usage(*one) for start, one in zip(of.start_s, counts, strict=True)]
    rows = odd(rows, name, of, rng)
    return write(rows, rng), of, " ".join(getattr(one, "__name__", "?") for one in (time, usage, write, odd))


def of_mooncake(of: Truth, rng: np.random.Generator) -> tuple[str, Truth, str]:
    of.kind = Mooncake
    unit, block = str(rng.choice(["ms", "ms", "s", "ns"])), int(rng.choice([512, 512, 64, 16]))
    base = int(rng.choice([0, 0, EPOCH_S]))
    of.untold = unit != "ms" and not base
    of.wrong = "its unit" if unit == "ns" and not base else ""
    rows: list[Row] = []
    for i, (start, prompt, output) in enumerate(zip(of.start_s, of.prompt, of.output, strict=True)):
        hashes = [0, *range(1000 * i + 1, 1000 * i - (-prompt // block))]
        row = {"timestamp": (base + start) * UNITS[unit], "input_length": prompt, "output_length": output}
        rows.append(row | {"hash_ids": hashes})
    if rng.random() < 0.3:
        rows = [rows[i] for i in rng.permutation(len(rows))]
    if rng.random() < 0.15:
        rows[1] = rows[1] | {"hash_ids": rows[1]["hash_ids"][1:]}
        of.wrong = "hashes"
    return as_lines(rows, rng), of, f"mooncake {unit} {block} {base}"


def of_a_format(of: Truth, rng: np.random.Generator) -> tuple[str, Truth, str]:
    of.kind = Azure if rng.random() < 0.5 else BurstGPT
    names = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
    unit = str(rng.choice(["s", "ms"]))
    of.untold = unit == "ms"
    if of.kind is BurstGPT:
        names = ("Timestamp", "Request tokens", "Response tokens")

    def write(at: float) -> Any:
        moment = datetime.datetime.fromtimestamp(EPOCH_S + at, datetime.UTC)
        return at * UNITS[unit] if of.kind is BurstGPT else str(moment)[:26]

    rows = [
        dict(zip(names, (write(at), prompt, output), strict=True))
        for at, prompt, output in zip(of.start_s, of.prompt, of.output, strict=True)
    ]
    return as_csv(rows, np.random.default_rng(0)), of, f"{of.kind.__name__} {unit}"


def of_bench(of: Truth, rng: np.random.Generator) -> tuple[str, Truth, str]:
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
    return json.dumps(log, indent=int(rng.integers(0, 2)) or None), of, f"bench {way}"


def off(trace: Any, of: Truth) -> str:
    """What is off by a factor: of the span, of prompts or of answers; or how many there are."""
    if abs(len(trace) - len(of.prompt)) > 0:
        return "count"
    span = of.start_s[-1] - of.start_s[0]
    pairs = {
        "time": (trace.span_s, span),
        "prompts": (trace.prompt_tokens.sum(), sum(of.prompt)),
        "answers": (trace.output_tokens.sum(), sum(of.output)),
    }
    for name, (found, true) in pairs.items():
        if not 1 / FACTOR <= (found + 1e-9) / (true + 1e-9) <= FACTOR:
            return name
    return ""


@pytest.mark.parametrize("seed", sampled(range(FILES), 10))
def test_nothing_is_off_by_a_factor_in_silence(seed: int, tmp_path: Path) -> None:
    text, of, called = made(seed)
    path = tmp_path / "log"
    path.write_text(text)
    source = of.kind(str(path), load="recorded", **of.settings)
    try:
        trace = source.whole
    except InvalidInput as error:
        said = str(error)
        assert said.startswith(str(path)), said
        assert "\n" not in said
        assert of.wrong, f"{called}: {said}"
        assert any(word in said for word in ("row", "workload.", "field", "_lens")), said
        return
    wrong, understood = off(trace, of), source.understood
    if not of.wrong and not of.untold:
        assert not wrong, f"{called}: {wrong}"
    elif wrong == "time":
        assert understood.doubts or ", as the format has them" in understood.line or "assumed" in understood.line, (
            called
        )
    elif wrong:
        assert understood.doubts or trace.reading.left_out, f"{called}: {wrong}"
