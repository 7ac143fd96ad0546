"""Random clusters to which anything happens, by a number: quick enough that ten thousand of them are run.

All that a run can have is drawn: engines, routers, kinds of GPUs, streams with shared prefixes, turns and sub-agents,
patience, overheads, stale reports; gateways, replicas of the router or requests that are moved; tiers; faults or
a gateway, with pools or tiers or without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from prebleexp.autoscalers.base import Rule
from prebleexp.autoscalers.dynamo_load import DynamoLoad
from prebleexp.autoscalers.hpa import HPA
from prebleexp.autoscalers.keda import KEDA
from prebleexp.autoscalers.knative import Knative
from prebleexp.engines.base import Engine
from prebleexp.engines.continuous import Continuous
from prebleexp.engines.sglang.engine import SGLang
from prebleexp.engines.vllm.engine import VLLM
from prebleexp.faults.base import DRAINS, ON_LOSS, Faults
from prebleexp.gateway.base import BUDGETS, ORDERS, Gateway
from prebleexp.launch import configure
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import Policy
from prebleexp.policies.e2 import E2
from prebleexp.sim.links import FAIR, FIFO, INFINITE
from prebleexp.sim.migration import Migration
from prebleexp.sim.moves import RUNNING, WAITING, WAITING_FIRST
from prebleexp.sim.pools import ALWAYS as ALL_GO
from prebleexp.sim.pools import (
    BOTH,
    CHUNKS,
    DECODE,
    END,
    LAYERS,
    PREFILL,
    PULL,
    PUSH_AT_END,
    RESERVE_FIRST,
    Disaggregation,
)
from prebleexp.sim.replicated import Replication
from prebleexp.sim.tiering import Tier, Tiering
from prebleexp.sim.tiers import ALWAYS, CHEAPER, THRESHOLD
from prebleexp.sim.types import Workload
from tests.support.costs.linear_cost import LinearCost
from tests.support.places import ROOT
from tests.support.sessions import after_those
from tests.support.strategies.conversations import conversations
from tests.support.strategies.timelines import timeline

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
COST = LinearCost(step_s=0.0013, token_s=0.0001, context_token_s=1e-6, kv_tokens=1, gpu_memory_gib=48)
SHARING = [INFINITE, FIFO, FAIR]
MOST = 40
"""requests"""


def chaos(number: int) -> tuple[Workload, dict[str, Any]]:
    """A stream, and what `simulate` is given besides."""
    workload, cluster = _cluster(number)
    rng = np.random.default_rng([number, 1])  # of its own: the clusters are those that they were
    if rng.random() < 0.4 and "gateway" not in cluster and "migration" in cluster:
        workload = replace(workload, client=rng.integers(-1, 3, len(workload)))
        cluster["gateway"] = _gateway(rng)
    if rng.random() < 0.4:
        gossip_s = float(rng.choice([0.0, 0.001, 0.1, 1.0, np.inf]))
        cluster["replicas"] = Replication(int(rng.choice([2, 3, 8])), int(rng.integers(3)), gossip_s)
    if "pools" in cluster and cluster["pools"].protocol != RESERVE_FIRST:
        return _more_of_pools(np.random.default_rng([number, 2]), workload, cluster)
    return workload, cluster


def _more_of_pools(
    rng: np.random.Generator, workload: Workload, cluster: dict[str, Any]
) -> tuple[Workload, dict[str, Any]]:
    """Tiers and peers, a gateway, faults with drains, an autoscaler of each role: any of them."""
    if rng.random() < 0.4:
        cluster["tiers"] = replace(_tiers(rng), peers=_peers(rng) if rng.random() < 0.5 else None)
    if rng.random() < 0.4 and "gateway" not in cluster:
        workload = replace(workload, client=rng.integers(-1, 3, len(workload)))
        cluster["gateway"] = _gateway(rng)
    if rng.random() < 0.5:
        cluster["faults"] = _faults(rng, cluster["gpus"], ("retry", "fail"), DRAINS)
    if rng.random() < 0.3:
        cluster["autoscaler"] = _autoscaler(rng, 1)
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
    workload = _linked(rng, _stream(rng))
    if rng.random() < 0.3:
        patience = np.where(rng.random(len(workload)) < 0.5, np.nan, rng.exponential(0.3, len(workload)))
        workload = replace(workload, patience_s=patience)
    kind = rng.choice(["pools", "tiers", "faults", "faults"])
    if kind == "pools" and len(counts) > 1:
        protocol = int(rng.choice([PULL, PUSH_AT_END, RESERVE_FIRST]))
        cluster["engine"] = RESERVING[rng.integers(2)] if protocol == RESERVE_FIRST else ENGINES[rng.integers(2)]
        pools = _pools(rng, len(counts), protocol)
        cluster |= {"pools": pools, "kinds": _alike(cluster["kinds"])}
        if protocol == RESERVE_FIRST:
            return replace(workload, patience_s=np.full(len(workload), np.nan)), cluster
        if protocol == PULL and pools.decider == ALL_GO and rng.random() < 0.4:
            workload = replace(workload, client=rng.integers(-1, 3, len(workload)))
            return workload, cluster | {"gateway": _gateway(rng)}
        return workload, cluster | {"faults": _faults(rng, sum(counts), ("retry", "fail"), DRAINS[:1])}
    if kind == "faults" and rng.random() < 0.3:
        cluster |= {"engine": ENGINES[rng.integers(2)], "migration": _migration(rng)}
        cluster["kinds"] = [(sum(counts), costs[0])]
    elif rng.random() < 0.5:
        workload = replace(workload, client=rng.integers(-1, 3, len(workload)))
        cluster["gateway"] = _gateway(rng)
    elif cluster["overhead"].mode != "serial" and number % 2:
        gossip_s = float(rng.choice([0.0, 0.001, 0.1, 1.0, np.inf]))
        cluster["replicas"] = Replication(int(rng.choice([2, 3, 8])), int(rng.integers(3)), gossip_s)
    if kind == "tiers":
        if isinstance(cluster["policy"], E2):
            cluster["policy"] = replace(cluster["policy"], tiers=number % 2 == 1)
        cluster |= {"engine": ENGINES[rng.integers(2)], "tiers": _tiers(rng)}
        if rng.random() < 0.5:
            cluster |= {"tiers": replace(cluster["tiers"], peers=_peers(rng)), "kinds": [(sum(counts), costs[0])]}
            return workload, cluster
        return workload, cluster | {"faults": _faults(rng, sum(counts), ON_LOSS, DRAINS)}
    after_loss = ON_LOSS if cluster["engine"].resumes else ("retry", "fail")
    if not cluster["engine"].loses:
        return workload, cluster
    if "migration" not in cluster and rng.random() < 0.5:
        cluster["autoscaler"] = _autoscaler(rng, sum(counts))
    return workload, cluster | {"faults": _faults(rng, sum(counts), after_loss, DRAINS)}


def _stream(rng: np.random.Generator) -> Workload:
    n, deep = int(rng.integers(1, MOST + 1)), int(rng.integers(1, 6))
    times = rng.exponential(rng.choice([0.001, 0.02, 0.1]), n).cumsum()
    if rng.random() < 0.3:
        times = np.round(4 * times) / 4  # many at once
    longest = int(rng.choice([12, 60, 200]))
    kinds = rng.choice(["anonymous", "named", "longer", "turn"], n).tolist()
    paths = [tuple(rng.integers(0, 3, rng.integers(1, deep + 1)).tolist()) for _ in range(n)]
    outputs, most = rng.integers(1, longest + 1, n).tolist(), rng.choice([1, longest // 2, longest], n).tolist()
    workload = conversations(list(zip(paths, outputs, most, kinds, strict=True)), times.tolist())
    return replace(workload, session=np.append(rng.integers(-1, 4, n - 1), 0))


def _linked(rng: np.random.Generator, workload: Workload) -> Workload:
    """Half of the streams: turns that wait for those before them, and sub-agents for whom turns wait."""
    n = len(workload)
    if rng.random() < 0.5:
        return workload
    session = workload.session
    parent = np.where((session >= 0) & (session % 2 == 1), session - 1, -1)
    after = []
    for i in range(n):
        related = [j for j in range(i) if session[i] >= 0 and session[j] >= 0 and session[j] // 2 == session[i] // 2]
        after.append(sorted(set(related[len(related) - int(rng.integers(0, 3)) :])))
    workload = replace(workload, parent_session=parent, priority=rng.integers(0, 3, n))
    return after_those(workload, after, delay_s=rng.choice([0.0, 0.25, 1.0], n), goes_on=rng.integers(0, 2, n))


def _pools(rng: np.random.Generator, kinds: int, protocol: int) -> Disaggregation:
    roles = rng.permutation([PREFILL, DECODE, rng.choice([BOTH, PREFILL, DECODE])][:kinds]).tolist()
    link = int(rng.choice(SHARING)), float(rng.choice([1e5, 1e6, 1e9])), float(rng.choice([0.0, 0.01]))
    second, send = POLICIES[rng.integers(len(POLICIES))], int(rng.choice([END, LAYERS, CHUNKS]))
    decider = int(rng.integers(4)) if protocol != RESERVE_FIRST and BOTH not in roles else 0
    how = {"layers": int(rng.integers(1, 5)), "decider": decider, "least_tokens": int(rng.choice([1, 20]))}
    return Disaggregation(tuple(roles), second, 1000.0, *link, protocol, send, **how)


def _migration(rng: np.random.Generator) -> Migration:
    link = int(rng.choice(SHARING)), float(rng.choice([1e5, 1e6, 1e9])), float(rng.choice([0.0, 0.01]))
    below, chooses = float(rng.choice([3.0, 30.0, 1e6])), int(rng.choice([RUNNING, WAITING, WAITING_FIRST]))
    stages = int(rng.choice([1, 4, 16])), int(rng.choice([1, 3, 9]))
    return Migration(float(rng.choice([0.001, 0.02, 0.3])), 1000.0, *link, below, chooses, *stages)


def _gateway(rng: np.random.Generator) -> Gateway:
    def one(*of: Any) -> Any:
        return of[int(rng.integers(len(of)))]

    return Gateway(
        order=one(*ORDERS),
        quantum=one(20.0, 1e4),
        max_in_flight=one(None, None, 1, 2, 8),
        limit=one(None, None, 1, 4, 12),
        queue_limit=one(None, None, 1, 3, 8),
        ttl_queue_s=one(None, None, 0.01, 0.25, 2.0),
        bucket_tokens=one(None, None, 60, 300),
        refill_tokens_s=one(7.3, 100.0),
        shed=one(False, True),
        slo_ttft_s=one(None, None, 0.02, 0.1),
        retries=one(0, 0, 1, 5),
        retry_budget=one(*BUDGETS),
    )


def _autoscaler(rng: np.random.Generator, gpus: int) -> Rule:
    given = {"interval_s": float(rng.choice([0.01, 0.1, 1.0])), "initial": int(rng.integers(1, gpus + 1))}
    load, target = ("kv_use", 0.3) if rng.random() < 0.3 else (str(rng.choice(["in_flight", "queued"])), 2.0)
    window_s = float(rng.choice([0.0, 0.3]))
    rules: list[Rule] = [
        HPA(load=load, target=target, window_s=window_s, **given),
        KEDA(load=load, target=target, window_s=window_s, cooldown_s=0.2, **given),
        Knative(target=2.0, stable_s=0.4, panic_s=0.1, **given),
        DynamoLoad(queued_up=1e-8, queued_down=1e-9, kv_up=0.5, kv_down=0.2, **given),
    ]
    return rules[rng.integers(len(rules))]


def _tiers(rng: np.random.Generator) -> Tiering:
    host, shared, disk = [_tier(rng) if rng.random() < 0.7 else None for _ in range(3)]
    return Tiering(1000.0, host, shared, disk)


def _peers(rng: np.random.Generator) -> Tier:
    return replace(_tier(rng), bytes=0.0)


def _tier(rng: np.random.Generator) -> Tier:
    size, rate, latency_s = rng.choice([0.0, 4e4, 4e5, 1e9]), rng.choice([1e5, 1e6, 1e9]), rng.choice([0.0, 0.01])
    rule = int(rng.choice([ALWAYS, THRESHOLD, CHEAPER]))
    return Tier(size, rate, rate, latency_s, rule, least_tokens=8, sharing=int(rng.choice(SHARING)))


def _alike(kinds: list[tuple[int, LinearCost]]) -> list[tuple[int, LinearCost]]:
    """Pools' GPUs have room for any prompt, as a cluster's configuration makes sure of."""
    return [(count, replace(cost, kv_tokens=max(600, cost.kv_tokens))) for count, cost in kinds]


def _faults(rng: np.random.Generator, gpus: int, after_loss: Sequence[str], drains: Sequence[str]) -> Faults:
    events = int(rng.integers(0, 13))
    times, factors = rng.choice([0.5, 2.0, 6.0]) * rng.random(events), rng.choice([0.25, 0.5, 2.0], events)
    which = rng.integers(0, 8, events).tolist(), rng.integers(0, 6, events).tolist()
    happens = list(zip(times.tolist(), *which, factors.tolist(), strict=True))
    given: dict[str, Any] = {"detect_ms": float(rng.choice([0.0, 1.0, 100.0])), "on_loss": str(rng.choice(after_loss))}
    given |= {"drain": str(rng.choice(drains)), "drain_s": [None, 0.01, 0.5][rng.integers(3)]}
    return timeline(happens, gpus, **given, init_s=float(rng.choice([0.0, 0.5])))
