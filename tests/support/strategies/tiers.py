"""Random clusters with tiers of KV."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from prebleexp.overhead.model import Overhead
from prebleexp.sim.links import FAIR, FIFO, INFINITE
from prebleexp.sim.tiering import Tier, Tiering
from prebleexp.sim.tiers import ALWAYS, CHEAPER, THRESHOLD
from prebleexp.sim.types import Workload
from tests.support.policies.looker import TierLooker
from tests.support.strategies.timelines import timelines
from tests.support.strategies.vllms import POLICIES, VLLMS

TIERS = st.builds(
    Tier,
    bytes=st.sampled_from([1e9, 4e5, 2e5, 5e4, 0.0]),
    load_rate=st.sampled_from([1e9, 1e7, 1e6, 1e30]),
    store_rate=st.sampled_from([1e9, 1e7, 1e6, 1e30]),
    latency_s=st.sampled_from([0.0, 0.001, 0.02]),
    choose=st.sampled_from([ALWAYS, ALWAYS, THRESHOLD, CHEAPER]),
    least_tokens=st.sampled_from([0, 40]),
)
SHARED = st.builds(
    replace,
    TIERS,
    sharing=st.sampled_from([INFINITE, FIFO, FAIR]),
    total_rate=st.sampled_from([5e4, 2e6, float("inf")]),
)
PEERS = st.builds(
    replace,
    TIERS,
    bytes=st.just(0.0),
    sharing=st.sampled_from([INFINITE, FIFO, FAIR]),
    total_rate=st.just(float("inf")),
)
CLUSTERS = st.fixed_dictionaries(
    {
        "engine": VLLMS.map(lambda engine: replace(engine, enable_prefix_caching=True)),
        "policy": POLICIES | st.builds(TierLooker, outstanding=st.sampled_from([0, 3])),
        "gpus": st.integers(1, 3),
        "kv": st.sampled_from([200, 240, 300, 600]),
        "frontend": st.sampled_from([(0.0, 0.0), (0.003, 0.0007)]),
        "host": st.none() | TIERS,
        "disk": st.none() | TIERS,
        "shared": st.none() | SHARED,
        "peers": st.none() | PEERS,
        "prompts_only": st.booleans(),
        "horizon": st.sampled_from(["stop", "drain"]),
        "overhead": st.sampled_from([Overhead(), Overhead("recorded"), Overhead("serial", decision_s=0.002)]),
        "reports_ms": st.sampled_from([0.0, 50.0]),
        "faults": st.none(),
        "patience_s": st.sampled_from([(math.nan,), (math.nan,), (0.02,), (math.nan, 0.05, 0.3), (0.01, 0.1)]),
    }
)


@st.composite
def faulty(draw: st.DrawFn) -> dict[str, Any]:
    cluster = draw(CLUSTERS) | {"peers": None}
    return cluster | {"faults": draw(timelines(cluster["gpus"], resumes=True))}


def tiering(cluster: dict[str, Any]) -> Tiering:
    kinds = (cluster[name] for name in ("host", "shared", "disk", "peers"))
    return Tiering(1000.0, *kinds, prompts_only=cluster.get("prompts_only", False))


def impatient(workload: Workload, cluster: dict[str, Any]) -> Workload:
    return replace(workload, patience_s=np.resize(cluster["patience_s"], len(workload)))
