"""Small streams and clusters that have exactly some features of `prebleexp.sim.compatibility`, and what those add: by a
generator of numpy, so that a set and a number say all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from prebleexp.autoscalers.base import FIXED
from prebleexp.autoscalers.by_role import ByRole
from prebleexp.engines.base import Engine
from prebleexp.engines.sglang.engine import SGLang
from prebleexp.engines.vllm.engine import VLLM
from prebleexp.faults.base import Faults
from prebleexp.gateway.base import Gateway
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import Policy
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim.compatibility import FEATURES, PROTOCOLS, RESERVE_FIRST, ROLES, refusal_of
from prebleexp.sim.pools import (
    BOTH,
    CHUNKS,
    DECODE,
    END,
    LAYERS,
    NAMES,
    PREDICTED,
    PREFILL,
    UNCACHED,
    Disaggregation,
)
from prebleexp.sim.replicated import Replication
from prebleexp.sim.tiering import Tier, Tiering
from prebleexp.sim.tiers import ALWAYS
from prebleexp.sim.types import Workload
from tests.support.by_hand.streams import stream
from tests.support.costs.linear_cost import LinearCost
from tests.support.costs.wave_cost import WaveCost
from tests.support.policies.looker import Follower, Looker, Lopsided, TierLooker
from tests.support.strategies import parts
from tests.support.strategies.timelines import timeline

IMPLIED = {"peers": "tiers", "resume": "faults", "requeue": "faults", "autoscaler": "faults"}
"""what a run has, too, that has a feature"""
NO_ENGINE = {
    frozenset({RESERVE_FIRST, "ranks"}): "room is reserved first by SGLang alone, whose ranks are not modelled",
}
"""pairs that the table lets go together, and no engine can do, and why"""
REQUESTS = 36
ALONE = LinearCost(step_s=2.0**-10, token_s=2.0**-13, context_token_s=2.0**-20, kv_tokens=1, gpu_memory_gib=48)
RANKED = WaveCost(step_s=2.0**-10, token_s=2.0**-13, context_token_s=2.0**-20, kv_tokens=1, gpu_memory_gib=48, ranks=2)
"""sums of powers of two, as those of ranks have to be"""


def closed(features: Iterable[str]) -> frozenset[str]:
    """With what they imply, but for a protocol."""
    has = {*features}
    return frozenset(has | {IMPLIED[one] for one in has if one in IMPLIED})


def allowed(features: Iterable[str]) -> bool:
    has = closed(features)
    if sum(one in PROTOCOLS for one in has) > 1 or any(pair <= has for pair in NO_ENGINE):
        return False
    return refusal_of(has) is None


def pairs() -> list[frozenset[str]]:
    return [frozenset(pair) for pair in combinations(FEATURES, 2) if allowed(pair)]


def sampled(size: int, count: int, seed: int) -> list[frozenset[str]]:
    """So many different ones of `size` features, or all."""
    every = [frozenset(some) for some in combinations(FEATURES, size) if allowed(some)]
    rng = np.random.default_rng(seed)
    return [every[i] for i in sorted(rng.permutation(len(every))[:count])]


def drawn(rng: np.random.Generator, share: float) -> frozenset[str]:
    """As many of all features as that share of them, as far as they go together."""
    has: set[str] = set()
    for one in rng.permutation(list(FEATURES)).tolist():
        if rng.random() < share and allowed({*has, one}):
            has.add(one)
    return frozenset(has)


# ---------------------------------------------------------------- a run
def made(features: Iterable[str], rng: np.random.Generator) -> tuple[Workload, dict[str, Any]]:
    """A stream, and what `simulate` is given besides."""
    has = {*closed(features)}
    if "decider" in has and not has & {*PROTOCOLS}:
        has.add(("pull", "push_at_end")[rng.integers(2)])
    workload = _stream(has, rng)
    engine = _engine(has, rng)
    kinds, roles = _kinds(has, rng)
    gpus = sum(count for count, _ in kinds)
    given: dict[str, Any] = {
        "engine": engine,
        "gpus": gpus,
        "hardware": kinds[0][1],
        "kinds": kinds,
        "policy": _policy(has, rng),
        "duration_s": 2.5,
        "horizon": "stop" if rng.random() < 0.2 else "drain",
        "seed": int(rng.integers(4)),
        "overhead": Overhead("serial", decision_s=2.0 ** (-11 if "requeue" in has else -9))
        if "serial" in has
        else Overhead(),
        "reports_ms": float(rng.choice([0.0, 0.0, 62.5])),
    }
    if roles:
        given["pools"] = _pools(has, roles, rng)
    if "tiers" in has:
        given["tiers"] = _tiers({*features}, rng)
    if "migration" in has:
        given["migration"] = replace(
            parts.migration(rng),
            interval_s=float(rng.choice([0.005, 0.02])),
            below_freeness=float(rng.choice([20, 60])),
        )
    if "autoscaler" in has:
        given["autoscaler"] = _autoscaler(kinds, roles, rng)
    if {*features} & {"faults", "resume", "requeue"}:
        given["faults"] = _faults(has, gpus, float(workload.arrival_s[-1]), rng)
    if "gateway" in has:
        given["gateway"] = _gateway(has, rng)
    if "replicas" in has:
        gossip_s = float(rng.choice([0.0, 2.0**-6, 0.25, np.inf]))
        given["replicas"] = Replication(int(rng.choice([2, 3])), int(rng.integers(3)), gossip_s)
    return workload, given


def _stream(has: set[str], rng: np.random.Generator) -> Workload:
    """A few prompts that come again and again, as a whole or their first part, or what is drawn for chaos."""
    if rng.random() < 0.7:
        which, whole = rng.integers(0, 7, REQUESTS).tolist(), rng.integers(0, 2, REQUESTS).tolist()
        prompts = [[(2 * i, 40 + 9 * i), *([(2 * i + 1, 48)] * more)] for i, more in zip(which, whole, strict=True)]
        gaps = rng.choice([[0, 1, 2, 16], [0, 0, 1, 4]][max("requeue" in has, rng.integers(2))], REQUESTS) / 256
        outputs = rng.integers(1, 120 if "migration" in has else 40, REQUESTS).tolist()
        workload = stream(prompts, gaps.cumsum().tolist(), outputs)
    else:
        workload = parts.stream(rng)
    n = len(workload)
    workload = replace(workload, session=np.append(rng.integers(-1, 4, n - 1), 0), client=rng.integers(-1, 3, n))
    workload = replace(workload, priority=rng.integers(-1, 2, n), slo_ttft_s=rng.choice([np.nan, 0.1, 0.5], n))
    workload = parts.linked(rng, workload) if rng.random() < 0.4 else workload
    if "patience" in has:
        workload = replace(workload, patience_s=rng.choice([np.nan, 0.01, 0.05, 0.2], n))
    return workload


def _engine(has: set[str], rng: np.random.Generator) -> Engine:
    of_sglang = SGLang(
        chunked_prefill_size=int(rng.choice([16, 64])),
        num_reserved_decode_tokens=int(rng.choice([1, 20])),
        disable_overlap_schedule=bool(rng.integers(2)),
        max_running_requests=int(rng.choice([2, 3] if "requeue" in has else [3, 16])),
    )
    of_vllm = VLLM(
        max_num_batched_tokens=int(rng.choice([64, 200])),
        max_num_seqs=int(rng.choice([2, 3] if "requeue" in has else [3, 3, 16])),
        block_size=int(rng.choice([4, 8, 16])),
        async_scheduling="stages" not in has and bool(rng.integers(2)),
        scheduler_reserve_full_isl=bool(rng.integers(2)),
        watermark=float(rng.choice([0.0, 0.1])),
        host_s=2.0**-11,
        kv_load_failure_policy="recompute",  # as the second simulator does
    )
    lacks = {*ROLES, "tiers", "migration", "ranks", "stages"} - {RESERVE_FIRST}
    return of_sglang if RESERVE_FIRST in has or (not has & lacks and rng.random() < 0.3) else of_vllm


def _policy(has: set[str], rng: np.random.Generator) -> Policy:
    some: list[Policy] = [LeastOutstanding(), RoundRobin(), Looker(), TierLooker()]
    if "migration" in has:
        some = [Lopsided(), Lopsided(), Follower()]
    if "peers" in has:
        some = [RoundRobin(), TierLooker()]
    return some[rng.integers(len(some))]


def _kinds(has: set[str], rng: np.random.Generator) -> tuple[list[tuple[int, LinearCost]], list[int]]:
    """And what each does, if they have roles."""
    frontend_s = ((0.0, 0.0), (2.0**-8, 0.0))[rng.integers(2)]
    tokens = int(rng.choice([600, 1200] if has & {*ROLES} else [300, 400, 600]))
    usual = replace(RANKED if "ranks" in has else ALONE, kv_tokens=tokens, frontend_s=frontend_s)
    if "stages" in has:
        usual = replace(ALONE, kv_tokens=tokens, frontend_s=frontend_s, stages=2, handoff_s=(2.0**-12, 0.0))
    other = replace(usual, token_s=2.0**-12, kv_tokens=tokens + 64) if "kinds" in has else usual
    if has & {*ROLES}:
        roles = [PREFILL, DECODE]
        roles += [BOTH] if "decider" not in has and rng.random() < 0.25 else []
        return [(2, [usual, other][i % 2]) for i in range(len(roles))], rng.permutation(roles).tolist()
    if {"ranks", "stages"} <= has:
        return [(2, replace(RANKED, kv_tokens=tokens, frontend_s=frontend_s)), (2, usual)], []
    return ([(2, usual), (2, other)] if "kinds" in has else [(4, usual)]), []


def _pools(has: set[str], roles: list[int], rng: np.random.Generator) -> Disaggregation:
    protocol = next(i for i, one in enumerate(PROTOCOLS) if one in has)
    link = int(rng.choice(parts.SHARING)), float(rng.choice([1e5, 1e6, 1e9])), float(rng.choice([0.0, 2.0**-8]))
    decider = int(rng.choice([UNCACHED, UNCACHED, PREDICTED])) if "decider" in has else 0
    how = {"layers": int(rng.integers(1, 5)), "decider": decider, "least_tokens": 40}
    second: list[Policy] = [LeastOutstanding(), RoundRobin(), Looker()]
    send = int(rng.choice([END, LAYERS, CHUNKS]))
    return Disaggregation(tuple(roles), second[rng.integers(3)], 1000.0, *link, protocol, send, **how)


def _tiers(asked: set[str], rng: np.random.Generator) -> Tiering:
    def tier(size: float) -> Tier:
        rate, sharing = float(rng.choice([1e6, 1e7, 1e9])), int(rng.choice(parts.SHARING))
        return Tier(size, rate, rate, float(rng.choice([0.0, 2.0**-10])), ALWAYS, least_tokens=0, sharing=sharing)

    each = [tier(float(rng.choice([2e5, 4e5, 1e9]))) if rng.random() < 0.6 else None for _ in range(3)]
    each = each if "tiers" in asked else [None, None, None]
    each[0] = tier(4e5) if "tiers" in asked and each == [None] * 3 else each[0]
    return Tiering(1000.0, *each, peers=tier(0.0) if "peers" in asked else None, prompts_only=bool(rng.integers(2)))


def _autoscaler(kinds: list[tuple[int, LinearCost]], roles: list[int], rng: np.random.Generator) -> Any:
    if not roles:
        return replace(parts.autoscaler(rng, 4), interval_s=float(rng.choice([2.0**-6, 2.0**-4])))
    counts = {role: sum(count for its, (count, _) in zip(roles, kinds, strict=True) if its == role) for role in roles}
    one = replace(parts.autoscaler(rng, min(counts.values())), interval_s=2.0**-5)
    if rng.random() < 0.5:
        return one
    of_each = {NAMES[role]: FIXED if rng.random() < 0.5 else one for role in roles[1:]}
    return ByRole(**of_each | {NAMES[roles[0]]: one})


def _gateway(has: set[str], rng: np.random.Generator) -> Gateway:
    """Of which some limit is met. Where GPUs are to give back what waits, much waits there."""
    if "requeue" in has:
        none = dict.fromkeys(("max_in_flight", "limit", "queue_limit", "bucket_tokens", "slo_ttft_s"))
        some: list[dict[str, Any]] = [{"limit": 28}, {"bucket_tokens": 2000, "refill_tokens_s": 7.3}]
        return replace(parts.gateway(rng), **none | some[rng.integers(len(some))], shed=False)
    some = [{"queue_limit": 2, "max_in_flight": 2}, {"limit": 8}, {"bucket_tokens": 300}, {"slo_ttft_s": 0.02}]
    return replace(parts.gateway(rng), **some[rng.integers(len(some))])


def _faults(has: set[str], gpus: int, last_s: float, rng: np.random.Generator) -> Faults:
    """GPUs go down while there is much to do, and are drained then where that is of interest."""
    many = int(rng.integers(3, 8))
    times = (0.1 + 0.9 * rng.random(many)) * max(0.2, last_s)
    which, factors = rng.choice([0, 0, 3, 5], many), rng.choice([0.25, 0.5, 2.0], many)
    which[0] = 5 if "requeue" in has else 0
    happens = list(
        zip(times.tolist(), rng.integers(0, 8, many).tolist(), which.tolist(), factors.tolist(), strict=True)
    )
    given: dict[str, Any] = {"on_loss": "resume" if "resume" in has else str(rng.choice(["retry", "retry", "fail"]))}
    given |= {"detect_ms": float(rng.choice([0.0, 1.0, 31.25])), "drain_s": [None, 0.25][rng.integers(2)]}
    given |= {"drain": "requeue" if "requeue" in has else "finish", "init_s": float(rng.choice([0.0, 0.5]))}
    return timeline(happens, gpus, **given)
