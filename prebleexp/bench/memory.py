"""`prebleexp bench memory`: what a million requests on 256 GPUs take, with routers that remember prompts."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.bench.alone import run_alone
from prebleexp.bench.case import SERVED
from prebleexp.bench.million import MILLION
from prebleexp.bench.table import LESS, Row, Table

REMEMBERING = (
    *("lor", "lor_tokens", "least_work", "e2", "e2_released", "sglang_cache_aware", "vllm_cache_aware"),
    *("production_stack_prefixaware", "aibrix_prefix_cache", "aibrix_prefix_cache_preble", "dynamo_kv", "llmd"),
    *("blis_weighted", "lmetric", "least_prefill_work", "mooncake", "lbgr", "dualmap"),
)
"""one that remembers nothing, and those that remember prompts"""


def memory(policies: Sequence[str] | None = None) -> list[Row]:
    """The most memory that a run takes, each in a process that does nothing else."""
    return [run_alone(*SERVED, *MILLION, f"policy={policy}") for policy in policies or REMEMBERING]


TABLE = Table(memory, {"cpu_seconds": LESS, "peak_gib": LESS})
