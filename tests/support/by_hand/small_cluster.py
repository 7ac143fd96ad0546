"""One small GPU whose policy watches, and requests that share nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prebleexp.engines.continuous import Continuous
from prebleexp.overhead.model import Overhead
from prebleexp.sim.types import Workload
from tests.support.policies.watcher import Watcher
from tests.support.strategies.clusters import FINE
from tests.support.strategies.conversations import workload_of


def cluster_of(**given: Any) -> dict[str, Any]:
    """One small GPU."""
    kv_tokens, context_length = given.pop("kv_tokens", 1000), given.pop("context_length", 32768)
    small = replace(FINE, kv_tokens=kv_tokens, context_length=context_length)
    shared = {"gpus": 1, "policy": Watcher(), "hardware": small, "engine": Continuous(), "overhead": Overhead()}
    return shared | {"duration_s": 60.0, "horizon": "drain", "seed": 0, "reports_ms": 0.0} | given


def alike(arrivals: list[float], prompt: int, output: int, most: int | None = None) -> Workload:
    """Requests that share nothing."""
    n = len(arrivals)
    limits = [output if most is None else most] * n
    return workload_of([[i] for i in range(n)], [prompt] * n, arrivals, [output] * n, limits, [-1] * n)
