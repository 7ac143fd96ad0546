"""Random parts of a cluster, and streams for it, by a generator of numpy."""

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
from prebleexp.faults.base import Faults
from prebleexp.gateway.base import BUDGETS, ORDERS, Gateway
from prebleexp.policies.base import Policy
from prebleexp.sim.links import FAIR, FIFO, INFINITE
from prebleexp.sim.migration import Migration
from prebleexp.sim.moves import RUNNING, WAITING, WAITING_FIRST
from prebleexp.sim.pools import BOTH, CHUNKS, DECODE, END, LAYERS, PREFILL, RESERVE_FIRST, Disaggregation
from prebleexp.sim.tiering import Tier, Tiering
from prebleexp.sim.tiers import ALWAYS, CHEAPER, THRESHOLD
from prebleexp.sim.types import Workload
from tests.support.sessions import after_those
from tests.support.strategies.conversations import conversations
from tests.support.strategies.timelines import timeline

SHARING = [INFINITE, FIFO, FAIR]
MOST = 40
"""requests"""


def stream(rng: np.random.Generator) -> Workload:
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


def linked(rng: np.random.Generator, workload: Workload) -> Workload:
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


def pools(rng: np.random.Generator, kinds: int, protocol: int, policies: Sequence[Policy]) -> Disaggregation:
    roles = rng.permutation([PREFILL, DECODE, rng.choice([BOTH, PREFILL, DECODE])][:kinds]).tolist()
    link = int(rng.choice(SHARING)), float(rng.choice([1e5, 1e6, 1e9])), float(rng.choice([0.0, 0.01]))
    second, send = policies[rng.integers(len(policies))], int(rng.choice([END, LAYERS, CHUNKS]))
    decider = int(rng.integers(4)) if protocol != RESERVE_FIRST and BOTH not in roles else 0
    how = {"layers": int(rng.integers(1, 5)), "decider": decider, "least_tokens": int(rng.choice([1, 20]))}
    return Disaggregation(tuple(roles), second, 1000.0, *link, protocol, send, **how)


def migration(rng: np.random.Generator) -> Migration:
    link = int(rng.choice(SHARING)), float(rng.choice([1e5, 1e6, 1e9])), float(rng.choice([0.0, 0.01]))
    below, chooses = float(rng.choice([3.0, 30.0, 1e6])), int(rng.choice([RUNNING, WAITING, WAITING_FIRST]))
    stages = int(rng.choice([1, 4, 16])), int(rng.choice([1, 3, 9]))
    return Migration(float(rng.choice([0.001, 0.02, 0.3])), 1000.0, *link, below, chooses, *stages)


def gateway(rng: np.random.Generator) -> Gateway:
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


def autoscaler(rng: np.random.Generator, gpus: int) -> Rule:
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


def tiers(rng: np.random.Generator) -> Tiering:
    host, shared, disk = [tier(rng) if rng.random() < 0.7 else None for _ in range(3)]
    return Tiering(1000.0, host, shared, disk)


def peers(rng: np.random.Generator) -> Tier:
    return replace(tier(rng), bytes=0.0)


def tier(rng: np.random.Generator) -> Tier:
    size, rate, latency_s = rng.choice([0.0, 4e4, 4e5, 1e9]), rng.choice([1e5, 1e6, 1e9]), rng.choice([0.0, 0.01])
    rule = int(rng.choice([ALWAYS, THRESHOLD, CHEAPER]))
    return Tier(size, rate, rate, latency_s, rule, least_tokens=8, sharing=int(rng.choice(SHARING)))


def faults(rng: np.random.Generator, gpus: int, after_loss: Sequence[str], drains: Sequence[str]) -> Faults:
    events = int(rng.integers(0, 13))
    times, factors = rng.choice([0.5, 2.0, 6.0]) * rng.random(events), rng.choice([0.25, 0.5, 2.0], events)
    which = rng.integers(0, 8, events).tolist(), rng.integers(0, 6, events).tolist()
    happens = list(zip(times.tolist(), *which, factors.tolist(), strict=True))
    given: dict[str, Any] = {"detect_ms": float(rng.choice([0.0, 1.0, 100.0])), "on_loss": str(rng.choice(after_loss))}
    given |= {"drain": str(rng.choice(drains)), "drain_s": [None, 0.01, 0.5][rng.integers(3)]}
    return timeline(happens, gpus, **given, init_s=float(rng.choice([0.0, 0.5])))
