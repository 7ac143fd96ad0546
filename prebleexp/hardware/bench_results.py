"""What the load generators of vLLM and SGLang report of a benchmark: read from files, and told apart by what came."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prebleexp.checks import is_number
from prebleexp.errors import InvalidInput

SUFFIXES = (".json", ".jsonl")
HELD_BACK = 0.9
"""a rate of which so small a share or less was served was held back by the cap on requests at a time"""
BUSY = 0.5
"""so many of a fixed number of clients have a request at least, on average over a benchmark with its ends"""
MEANS = ("mean_ttft_ms", "mean_tpot_ms", "total_output_tokens", "completed")
Result = tuple[str, Mapping[str, Any]]
"""where it is, and what it says"""


def are_results(path: Path) -> bool:
    """Whether it is a file of results, or a folder of such files."""
    return bool(files(path)) if path.is_dir() else path.suffix in SUFFIXES


def files(folder: Path) -> list[Path]:
    """Of a folder, in the order of their names."""
    return sorted(one for one in folder.iterdir() if one.is_file() and one.suffix in SUFFIXES)


def read(path: Path) -> list[Result]:
    """All of a JSON file, of one with a result a line, or of a folder of them. Raises InvalidInput, naming the file,
    for what is not JSON or no result."""
    if path.is_dir():
        return [one for file in files(path) for one in read(file)]
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    lines = [one for one in text.splitlines() if one.strip()]
    try:
        parts = [json.loads(text)] if path.suffix == ".json" else [json.loads(one) for one in lines]
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not JSON: {error}") from None
    found = [one for part in parts for one in (part if isinstance(part, list) else [part])]
    return [(f"{path}, result {i}", _mapping(f"{path}, result {i}", one)) for i, one in enumerate(found, 1)]


def at_rates(results: Sequence[Result]) -> bool:
    """Whether requests of any of them came at a rate, or all at once: what closed loops of clients do not say."""
    return any(clients(result) is None and not _says_nothing(result) for _, result in results)


def clients(result: Mapping[str, Any]) -> float | None:
    """How many there were, each of whom waited for an answer; None: requests came at a rate, or all at once."""
    cap, at = result.get("max_concurrency"), rate(result)
    if not is_number(cap):
        return None
    served, there = result.get("request_throughput"), busy(result)
    few = there is not None and there < BUSY * cap  # what was lacking is then the benchmark's end
    return cap if at is None or (is_number(served) and served < HELD_BACK * at and not few) else None


def rate(result: Mapping[str, Any]) -> float | None:
    """Requests/s at which they were sent; None: as fast as could be."""
    value = result.get("request_rate")
    return value if is_number(value) else None


def number(at: str, result: Mapping[str, Any], name: str) -> float:
    """Raises InvalidInput, naming the result, for what is no number above 0."""
    value = result.get(name)
    if not is_number(value) or not value > 0:
        raise InvalidInput(f"{at}: {name}={value} is not valid; it must be a number above 0")
    return float(value)


def requests(at: str, result: Mapping[str, Any]) -> float:
    """How many requests of a benchmark were answered."""
    return number(at, result, "completed" if "completed" in result else "num_prompts")


def busy(result: Mapping[str, Any]) -> float | None:
    """Requests that were there at a time, on average; None where nothing says it."""
    said, served = result.get("concurrency"), result.get("request_throughput")
    if said is None and is_number(served):
        latency = latency_s(result)
        if latency is None and all(is_number(result.get(one)) for one in MEANS) and result.get("completed"):
            output = result["total_output_tokens"] / result["completed"]
            latency = (result["mean_ttft_ms"] + (output - 1) * result["mean_tpot_ms"]) / 1e3
        return None if latency is None else served * latency
    return said if is_number(said) else None


def latency_s(result: Mapping[str, Any]) -> float | None:
    """The mean, under whichever name it has."""
    found = next(
        (result[name] for name in ("mean_e2el_ms", "mean_e2e_latency_ms") if is_number(result.get(name))), None
    )
    return None if found is None else float(found) / 1e3


def _says_nothing(result: Mapping[str, Any]) -> bool:
    return result.get("request_rate") is None and result.get("max_concurrency") is None


def _mapping(at: str, result: Any) -> Mapping[str, Any]:
    if not isinstance(result, Mapping):
        raise InvalidInput(f"{at}: it is no result of bench_serving, which has mean_tpot_ms")
    return result
