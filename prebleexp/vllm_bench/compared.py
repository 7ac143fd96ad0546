"""A measured result of `vllm bench serve`, or of SGLang's `bench_serving` with each request: the benchmark that it was,
and its numbers beside simulated ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from prebleexp.checks import is_number
from prebleexp.errors import InvalidInput
from prebleexp.vllm_bench.result import METRICS, Wanted
from prebleexp.workloads.vllm_datasets import result

COUNTS = ("completed", "failed", "total_input_tokens", "total_output_tokens")
NEEDED = ("completed", "total_input_tokens", "total_output_tokens", "duration", "request_throughput")
OVER_ALL = (
    "duration",
    *COUNTS,
    *("request_throughput", "input_throughput", "output_throughput", "total_throughput", "total_token_throughput"),
    "concurrency",
    *("max_output_tokens_per_s", "max_concurrent_requests"),
)
OF_A_METRIC = re.compile(r"(mean|median|std|p(\d+(?:\.\d+)?))_([a-z0-9_]+)_ms")


class Measured(NamedTuple):
    path: str
    fields: Mapping[str, Any]
    settings: Mapping[str, Any]
    """of the same benchmark, as workload=vllm_bench has them"""
    wanted: Wanted
    says: tuple[str, ...]
    """what its load was taken for, and what is not known"""
    workload: str = "vllm_bench"
    """that has these settings"""


class Row(NamedTuple):
    field: str
    measured: float
    of_seeds: tuple[float, ...]
    """simulated, one a seed"""

    @property
    def simulated(self) -> float:
        """Mean over seeds."""
        return sum(self.of_seeds) / len(self.of_seeds)

    @property
    def ratio(self) -> float | None:
        """Simulated over measured; None if nothing was measured."""
        return self.simulated / self.measured if self.measured else None


def read(path: str) -> Measured:
    """The last result of a file. Raises InvalidInput, naming it, if it has none, or nothing was served."""
    fields = result(path)
    for name in NEEDED:
        if not is_number(fields.get(name)):
            raise InvalidInput(
                f"{path}: {name}={fields.get(name)!r} is not valid; it must be a number, as vllm bench serve "
                "--save-result writes it"
            )
    completed = int(fields["completed"])
    if completed < 1:
        raise InvalidInput(f"{path}: completed={completed}: nothing was served, so that there is nothing to compare")
    settings, says = _load(path, fields, completed)
    return Measured(path, fields, settings, _wanted(fields), tuple(says))


def rows(measured: Mapping[str, Any], simulated: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Numbers that both have, in the measured file's order, simulated one a seed; a median once, not as p50 too."""
    found = []
    for name, value in measured.items():
        compared = name in OVER_ALL or OF_A_METRIC.fullmatch(name)
        is_again = name.startswith("p50_") and f"median_{name.removeprefix('p50_')}" in measured
        values = [one[name] for one in simulated if is_number(one.get(name))]
        if compared and not is_again and is_number(value) and len(values) == len(simulated):
            found.append(Row(name, float(value), tuple(float(one) for one in values)))
    return found


def _load(path: str, fields: Mapping[str, Any], completed: int) -> tuple[dict[str, Any], list[str]]:
    settings: dict[str, Any] = {"num_prompts": completed}
    detailed = all(isinstance(fields.get(name), list) for name in ("input_lens", "output_lens"))
    rate, most = fields.get("request_rate", "inf"), fields.get("max_concurrency")
    timed = detailed and isinstance(fields.get("start_times"), list)
    timed = timed and (most is None or isinstance(fields.get("queue_times"), list))
    settings["max_concurrency"] = most
    if detailed:
        settings |= {"dataset_name": "bench_log", "dataset_path": path}
        says = ["lengths are the measured ones, a request each; prompts share nothing, as the file says nothing of it"]
    else:
        inputs, outputs = (round(fields[f"total_{one}_tokens"] / completed) for one in ("input", "output"))
        settings |= {"random_input_len": max(inputs, 1), "random_output_len": max(outputs, 1)}
        says = [
            f"all prompts have {inputs:,} tokens and all answers {outputs:,}, the measured means, and share nothing: "
            "with --save-detailed the file has their lengths (aiperf: take profile_export.jsonl)"
        ]
    if timed:
        settings["self_timed"] = True
        says.append("requests come when they came to the measuring client")
    elif fields.get("ramp_up_strategy") is not None:
        settings |= {name: fields.get(name) for name in ("ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps")}
        says.append("requests come by the same ramp, with gaps that are drawn anew")
    else:
        settings |= {"request_rate": rate, "burstiness": fields.get("burstiness", 1.0)}
        drawn = "" if rate == "inf" else ", with gaps that are drawn anew"
        says.append(f"requests come at request_rate={rate}{drawn}")
    failed = fields.get("failed", 0)
    if failed:
        says.append(f"{failed:,} requests that failed are left out")
    says.append("warm-ups are not in the file, and caches are empty at the beginning")
    if fields.get("request_goodput") is not None:
        says.append("request_goodput is left out: the file does not say what it demanded")
    return {f"workload.{name}": value for name, value in settings.items()}, says


def _wanted(fields: Mapping[str, Any]) -> Wanted:
    found = [one for one in map(OF_A_METRIC.fullmatch, fields) if one]
    metrics = dict.fromkeys(one[3] for one in found if one[3] in METRICS)
    percentiles = dict.fromkeys(float(one[2]) for one in found if one[2] is not None and float(one[2]) <= 100)
    return Wanted(metrics=tuple(metrics), percentiles=tuple(percentiles))
