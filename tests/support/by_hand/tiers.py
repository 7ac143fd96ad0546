"""Tiers of KV with round numbers: a step takes 100 ms, a token at 1 GB/s 0.1 ms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.sim.simulate import simulate
from prebleexp.sim.tiering import Tier, Tiering
from prebleexp.sim.types import Outcome, Workload
from tests.support.costs.linear_cost import LinearCost
from tests.support.hears_at_once import HearsAtOnce

STEP = LinearCost(step_s=0.1, token_s=0.0, context_token_s=0.0, kv_tokens=16 * 81, gpu_memory_gib=48)
"""A step takes 100 ms, whatever it computes; 80 blocks can be held."""
MS = replace(STEP, step_s=0.0, token_s=0.0001)
"""A token takes 0.1 ms."""
VLLM_ALONE = HearsAtOnce(async_scheduling=False, host_s=0.0)
KV_BYTES = 100_000.0
BLOCK = 16 * KV_BYTES


def tier(blocks: int, gb_s: float = 1.0, **more: Any) -> Tier:
    """At 1 GB/s a token takes 0.1 ms."""
    return Tier(**{"bytes": blocks * BLOCK, "load_rate": gb_s * 1e9, "store_rate": gb_s * 1e9, "latency_s": 0.0} | more)


def host(blocks: int, gb_s: float = 1.0, **more: Any) -> Tiering:
    return Tiering(KV_BYTES, host=tier(blocks, gb_s, **more))


def serve(workload: Workload, tiers: Tiering | None, **given: Any) -> Outcome:
    usual: dict[str, Any] = {"policy": LeastOutstanding(), "engine": VLLM_ALONE, "lengths": Max(), "seed": 0}
    usual |= {"overhead": Overhead(), "duration_s": 100.0, "horizon": "drain", "hardware": STEP, "gpus": 1}
    return simulate(workload, tiers=tiers, **usual | given)


def tokens_ms(workload: Workload, made: Outcome) -> list[float]:
    """When each first token came."""
    return ((workload.arrival_s + made.ttft_s) * 1e3).round(9).tolist()  # type: ignore[no-any-return]
