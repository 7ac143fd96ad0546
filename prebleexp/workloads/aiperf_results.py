"""Results of aiperf (0.13) with the names of `vllm bench serve`: profile_export.jsonl, which has each request, and
profile_export_aiperf.json, which has numbers over all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from prebleexp.checks import is_number
from prebleexp.errors import InvalidInput

TIMES = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",
    "itl": "inter_chunk_latency",
    "e2el": "request_latency",
}
"""vLLM's names, and aiperf's; its inter-token latency is a mean over a request"""
PERCENTILES = (90, 95, 99)
MEASURED = "profiling"
"""the phase that is no warm-up"""


def records(text: str) -> list[Mapping[str, Any]]:
    """The lines of profile_export.jsonl; none if the text is something else."""
    head = text.partition("\n")[0]
    if '"metadata"' not in head or '"metrics"' not in head:
        return []
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return []


def of_records(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """As --save-detailed has them, but for what failed and for warm-ups."""
    phase = [one for one in lines if one["metadata"].get("benchmark_phase", MEASURED) == MEASURED]
    served = [one for one in phase if not one.get("error") and _value(one, "output_sequence_length")]
    starts = [one["metadata"]["request_start_ns"] / 1e9 for one in served]
    ends = [one["metadata"]["request_end_ns"] / 1e9 for one in served]
    inputs, outputs = ([int(_value(one, f"{of}_sequence_length")) for one in served] for of in ("input", "output"))
    latencies = np.array([_value(one, TIMES["e2el"]) for one in served], float) / 1e3
    # without a stream an answer comes whole
    firsts = np.array([_value(one, TIMES["ttft"]) or _value(one, TIMES["e2el"]) for one in served], float) / 1e3
    gaps = [
        _gaps(one, output, float(latency - first))
        for one, output, latency, first in zip(served, outputs, latencies, firsts, strict=True)
    ]
    means = np.array([np.mean(one) for one in gaps if len(one)], float)
    seconds = {"ttft": firsts, "tpot": means, "itl": np.concatenate([*gaps, np.zeros(0)]), "e2el": latencies}
    found = {f"{head}_{name}_ms": value * 1e3 for name, times in seconds.items() for head, value in _numbers(times)}
    duration = max(ends, default=0.0) - min(starts, default=0.0)
    lists = {"ttfts": firsts.tolist(), "itls": [one.tolist() for one in gaps], "start_times": starts}
    totals = _totals(len(served), sum(inputs), sum(outputs), duration)
    return {
        "failed": len(phase) - len(served),
        **totals,
        **found,
        "input_lens": inputs,
        "output_lens": outputs,
        **lists,
    }


def of_summary(path: str | None, found: Mapping[str, Any]) -> dict[str, Any] | None:
    """As a result without details has them; None for what is no summary of aiperf's. Raises InvalidInput where it does
    not say how requests came."""
    if not all(isinstance(found.get(name), dict) for name in ("request_count", "benchmark_duration", TIMES["e2el"])):
        return None
    config = found.get("input_config")
    rate, most = (_within(config, name) for name in ("request_rate", "concurrency"))
    if rate is None and most is None:
        raise InvalidInput(
            f"{path}: this summary of aiperf names neither request_rate nor concurrency in input_config; take "
            "profile_export.jsonl beside it, which has each request"
        )
    models = _named(config, "model_names")
    many, seconds = (_mean(found, name) for name in ("request_count", "benchmark_duration"))
    inputs = _mean(found, "total_isl") or many * _mean(found, "input_sequence_length")
    outputs = _mean(found, "total_osl") or many * _mean(found, "output_sequence_length")
    times: dict[str, float] = {}
    for name, own in TIMES.items():
        given = found.get(own) or {}
        heads = {"mean": "avg", "median": "p50", "std": "std", **{f"p{one}": f"p{one}" for one in PERCENTILES}}
        times |= {f"{head}_{name}_ms": given[key] for head, key in heads.items() if is_number(given.get(key))}
    return {
        "model_id": models[0] if isinstance(models, list) and models else None,
        "failed": int(_mean(found, "error_request_count")),
        "request_rate": "inf" if rate is None else rate,
        "max_concurrency": most if most is None else int(most),
        **_totals(int(many), round(inputs), round(outputs), seconds),
        **times,
    }


def _mean(found: Mapping[str, Any], name: str) -> float:
    value = (found.get(name) or {}).get("avg")
    return value if is_number(value) else 0.0


def _totals(served: int, inputs: int, outputs: int, seconds: float) -> dict[str, Any]:
    rates = {"request": served, "output": outputs, "total_token": inputs + outputs}
    each = {f"{name}_throughput": count / seconds if seconds else 0.0 for name, count in rates.items()}
    totals = {"completed": served, "total_input_tokens": inputs, "total_output_tokens": outputs}
    return {"duration": seconds, **totals, **each}


def _numbers(times: Any) -> Iterator[tuple[str, float]]:
    if len(times):
        yield from (("mean", float(times.mean())), ("median", float(np.median(times))), ("std", float(times.std())))
        yield from ((f"p{one}", float(np.percentile(times, one))) for one in PERCENTILES)


def _gaps(record: Mapping[str, Any], output: int, decode_s: float) -> Any:
    """A gap for each token after the first: as they came where a chunk had a token, else all alike."""
    given = _value(record, TIMES["itl"])
    if isinstance(given, list) and len(given) == output - 1:
        return np.array(given, float) / 1e3
    return np.full(max(output - 1, 0), decode_s / max(output - 1, 1))


def _value(record: Mapping[str, Any], name: str) -> Any:
    return (record.get("metrics") or {}).get(name, {}).get("value")


def _within(node: Any, name: str) -> float | None:
    """A number of that name, wherever it is: where settings are differs from version to version."""
    found = _named(node, name)
    return found if is_number(found) else None


def _named(node: Any, name: str) -> Any:
    if not isinstance(node, (dict, list)):
        return None
    if isinstance(node, dict) and node.get(name) is not None:
        return node[name]
    inner = node.values() if isinstance(node, dict) else node
    return next((one for one in (_named(each, name) for each in inner) if one is not None), None)
