"""A measured result of SGLang's `bench_serving`: the benchmark that it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prebleexp.vllm_bench import compared
from prebleexp.vllm_bench.compared import Measured

DRAWN = ("random", "random-ids")
"""data sets of which the file says all"""
LENGTHS = ("random_input_len", "random_output_len", "random_range_ratio")


def is_meant(fields: Mapping[str, Any]) -> bool:
    """Whether a result is of this tool, and not of vLLM's."""
    return "input_throughput" in fields and "total_throughput" in fields


def read(path: str) -> Measured:
    """The last result of a file, of this tool or of vLLM's. Raises InvalidInput, naming it, if it has none, or nothing
    was served."""
    found = compared.read(path)
    fields = found.fields
    if not is_meant(fields) or "input_lens" in fields or fields.get("dataset_name") not in DRAWN:
        return found
    own = {f"workload.{name}": fields[name] for name in LENGTHS if fields.get(name) is not None}
    settings = {
        "workload.dataset_name": fields["dataset_name"],
        "workload.num_prompts": int(fields["completed"]),
        "workload.request_rate": fields.get("request_rate", "inf"),
        "workload.max_concurrency": fields.get("max_concurrency"),
        **own,
    }
    says = (
        "lengths are drawn anew, as the tool draws them; with --output-details the file has each",
        f"requests come at request_rate={fields.get('request_rate', 'inf')}, with gaps that are drawn anew",
        "before them comes one warm-up, the tool's default: the file does not say how many there were",
    )
    return found._replace(settings=settings, says=says, workload="sglang_bench")
