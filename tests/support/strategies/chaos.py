"""Random clusters to which anything happens, by a number: quick enough that ten thousand of them are run.

All that a run can have is drawn: engines, routers, kinds of GPUs, streams with shared prefixes, turns and sub-agents,
patience, overheads, stale reports; gateways, replicas of the router or requests that are moved; tiers; faults or
a gateway, with pools or tiers or without. From `OF_ALL` on every other cluster has any features that go together: ranks
and pipelines, too, which take long to compile.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from prebleexp.engines.base import Engine
from prebleexp.engines.continuous import Continuous
from prebleexp.engines.sglang.engine import SGLang
from prebleexp.engines.vllm.engine import VLLM
from prebleexp.faults.base import DRAINS, ON_LOSS
from prebleexp.launch import configure
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import Policy
from prebleexp.policies.e2 import E2
from prebleexp.sim.pools import ALWAYS as ALL_GO
from prebleexp.sim.pools import (
    PULL,
    PUSH_AT_END,
    RESERVE_FIRST,
)
from prebleexp.sim.replicated import Replication
from prebleexp.sim.types import Workload
from tests.support.costs.linear_cost import LinearCost
from tests.support.places import ROOT
from tests.support.strategies import feature_sets, parts

ENGINES: list[Engine] = [
    VLLM(max_num_batched_tokens=64, max_num_seqs=4, block_size=8),
    VLLM(max_num_batched_tokens=256, max_num_seqs=32, block_size=4, async_scheduling=False),
    VLLM(max_num_batched_tokens=2048, max_num_seqs=64, scheduling_policy="priority"),
    SGLang(chunked_prefill_size=64),
    Continuous(),
    Continuous(queue="priority_groups", prefill="chunked", chunk_tokens=48, block_tokens=16),
]
RESERVING = [
    SGLang(chunked_prefill_size=64, num_reserved_decode_tokens=20),
    SGLang(chunked_prefill_size=16, num_reserved_decode_tokens=1, disable_overlap_schedule=True),
]
NAMES = sorted(file.stem for file in (ROOT / "conf" / "policy").glob("*.yaml") if file.stem != "replay")
POLICIES: list[Policy] = [configure.cells([f"policy={name}"])[0].policy for name in NAMES]
OF_ALL = 1_000
COST = LinearCost(step_s=0.0013, token_s=0.0001, context_token_s=1e-6, kv_tokens=1, gpu_memory_gib=48)


def chaos(number: int) -> tuple[Workload, dict[str, Any]]:
    """A stream, and what `simulate` is given besides."""
    if number >= OF_ALL and number % 2:
        return _of_all(np.random.default_rng([number, 3]))
    workload, cluster = _cluster(number)
    rng = np.random.default_rng([number, 1])  # of its own: the clusters are those that they were
    if rng.random() < 0.4 and "gateway" not in cluster and "migration" in cluster:
        workload = replace(workload, client=rng.integers(-1, 3, len(workload)))
        cluster["gateway"] = parts.gateway(rng)
    if rng.random() < 0.4:
        gossip_s = float(rng.choice([0.0, 0.001, 0.1, 1.0, np.inf]))
        cluster["replicas"] = Replication(int(rng.choice([2, 3, 8])), int(rng.integers(3)), gossip_s)
    if "pools" in cluster and cluster["pools"].protocol != RESERVE_FIRST:
        return _more_of_pools(np.random.default_rng([number, 2]), workload, cluster)
    return workload, cluster


def _of_all(rng: np.random.Generator) -> tuple[Workload, dict[str, Any]]:
    """With any of all features, and any router."""
    workload, cluster = feature_sets.made(feature_sets.drawn(rng, share=float(rng.choice([0.2, 0.4, 0.8]))), rng)
    cluster |= {"policy": POLICIES[rng.integers(len(POLICIES))], "duration_s": float(rng.choice([0.5, 4.0]))}
    return workload, cluster


def _more_of_pools(
    rng: np.random.Generator, workload: Workload, cluster: dict[str, Any]
) -> tuple[Workload, dict[str, Any]]:
    """Tiers and peers, a gateway, faults with drains, an autoscaler of each role, moves: any of them."""
    if rng.random() < 0.4:
        cluster["tiers"] = replace(parts.tiers(rng), peers=parts.peers(rng) if rng.random() < 0.5 else None)
    if rng.random() < 0.4 and "gateway" not in cluster:
        workload = replace(workload, client=rng.integers(-1, 3, len(workload)))
        cluster["gateway"] = parts.gateway(rng)
    if rng.random() < 0.5:
        cluster["faults"] = parts.faults(rng, cluster["gpus"], ("retry", "fail"), DRAINS)
    if rng.random() < 0.3:
        cluster["autoscaler"] = parts.autoscaler(rng, 1)
    if rng.random() < 0.4:
        cluster["migration"] = parts.migration(rng)
    return workload, cluster


def _cluster(number: int) -> tuple[Workload, dict[str, Any]]:
    rng = np.random.default_rng(number)
    counts = rng.integers(1, 4, rng.integers(1, 4)).tolist()
    fronts = (0.0, 0.0), (0.003, 0.0007)
    costs = [
        replace(COST, kv_tokens=int(rng.choice([240, 600, 4000])), frontend_s=fronts[rng.integers(2)]) for _ in counts
    ]
    cluster: dict[str, Any] = {
        "gpus": sum(counts),
        "kinds": list(zip(counts, costs, strict=True)),
        "hardware": costs[0],
        "engine": ENGINES[rng.integers(len(ENGINES))],
        "policy": POLICIES[rng.integers(len(POLICIES))],
        "duration_s": float(rng.choice([0.5, 4.0])),
        "horizon": str(rng.choice(["stop", "drain"])),
        "seed": int(rng.integers(4)),
        "overhead": [Overhead(), Overhead("serial", decision_s=0.002), Overhead("recorded")][rng.integers(3)],
        "reports_ms": float(rng.choice([0.0, 50.0, 500.0])),
    }
    workload = parts.linked(rng, parts.stream(rng))
    if rng.random() < 0.3:
        patience = np.where(rng.random(len(workload)) < 0.5, np.nan, rng.exponential(0.3, len(workload)))
        workload = replace(workload, patience_s=patience)
    kind = rng.choice(["pools", "tiers", "faults", "faults"])
    if kind == "pools" and len(counts) > 1:
        protocol = int(rng.choice([PULL, PUSH_AT_END, RESERVE_FIRST]))
        cluster["engine"] = RESERVING[rng.integers(2)] if protocol == RESERVE_FIRST else ENGINES[rng.integers(2)]
        pools = parts.pools(rng, len(counts), protocol, POLICIES)
        cluster |= {"pools": pools, "kinds": _alike(cluster["kinds"])}
        if protocol == RESERVE_FIRST:
            return replace(workload, patience_s=np.full(len(workload), np.nan)), cluster
        if protocol == PULL and pools.decider == ALL_GO and rng.random() < 0.4:
            workload = replace(workload, client=rng.integers(-1, 3, len(workload)))
            return workload, cluster | {"gateway": parts.gateway(rng)}
        return workload, cluster | {"faults": parts.faults(rng, sum(counts), ("retry", "fail"), DRAINS[:1])}
    if kind == "faults" and rng.random() < 0.3:
        cluster |= {"engine": ENGINES[rng.integers(2)], "migration": parts.migration(rng)}
        cluster["kinds"] = [(sum(counts), costs[0])]
    elif rng.random() < 0.5:
        workload = replace(workload, client=rng.integers(-1, 3, len(workload)))
        cluster["gateway"] = parts.gateway(rng)
    elif cluster["overhead"].mode != "serial" and number % 2:
        gossip_s = float(rng.choice([0.0, 0.001, 0.1, 1.0, np.inf]))
        cluster["replicas"] = Replication(int(rng.choice([2, 3, 8])), int(rng.integers(3)), gossip_s)
    if kind == "tiers":
        if isinstance(cluster["policy"], E2):
            cluster["policy"] = replace(cluster["policy"], tiers=number % 2 == 1)
        cluster |= {"engine": ENGINES[rng.integers(2)], "tiers": parts.tiers(rng)}
        if rng.random() < 0.5:
            cluster |= {"tiers": replace(cluster["tiers"], peers=parts.peers(rng)), "kinds": [(sum(counts), costs[0])]}
            return workload, cluster
        return workload, cluster | {"faults": parts.faults(rng, sum(counts), ON_LOSS, DRAINS)}
    after_loss = ON_LOSS if cluster["engine"].resumes else ("retry", "fail")
    if not cluster["engine"].loses:
        return workload, cluster
    if "migration" not in cluster and rng.random() < 0.5:
        cluster["autoscaler"] = parts.autoscaler(rng, sum(counts))
    return workload, cluster | {"faults": parts.faults(rng, sum(counts), after_loss, DRAINS)}


def _alike(kinds: list[tuple[int, LinearCost]]) -> list[tuple[int, LinearCost]]:
    """Pools' GPUs have room for any prompt, as a cluster's configuration makes sure of."""
    return [(count, replace(cost, kv_tokens=max(600, cost.kv_tokens))) for count, cost in kinds]
