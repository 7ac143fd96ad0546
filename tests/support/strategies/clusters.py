"""Random clusters of `engine=continuous`, plain, behind gateways, and with faults."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from hypothesis import strategies as st

from prebleexp.engines.continuous import PREFILLS, QUEUES, Continuous
from prebleexp.hardware.preble import PrebleFit
from prebleexp.overhead.model import Overhead
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.random import Random
from prebleexp.policies.round_robin import RoundRobin
from tests.support.costs.fitted import MONOTONE as A6000
from tests.support.policies.watcher import PlainWatcher, Watcher
from tests.support.strategies.gateways import GATEWAYS
from tests.support.strategies.timelines import timelines

FINE = replace(
    A6000,
    linear=((64, 4.2, 0.108, 0.0), (16, 3.0, 0.2, 1e-3), (0, 5.0, 0.0, 0.0)),
    attention=(100, 0.32, 0.159, 1.86e-3),
    shared=(40, 3000),
    request=(500, 0.1, 1.13e-3, 1.75e-3, 2.19e-5),
)
"""what small batches cost is of every branch"""


@dataclass(frozen=True)
class Fronted(PrebleFit):
    """Requests pass a frontend before they are queued: those that are sent at one time, not always in their order."""

    frontend_s: tuple[float, float] = (0.003, 0.0007)


FRONTED = Fronted(**{one.name: getattr(FINE, one.name) for one in fields(FINE)})
ENGINES = st.builds(
    Continuous,
    queue=st.sampled_from(QUEUES),
    groups=st.sampled_from([1, 4, 10]),
    prefill=st.sampled_from(PREFILLS),
    chunk_tokens=st.integers(16, 64),
    block_tokens=st.sampled_from([1, 16]),
    decode_steps=st.sampled_from([1, 3, 8]),
)
WATCHERS = st.tuples(st.sampled_from([0, 0, 1, 3, -1]), st.sampled_from([0, 0, 2, 3]))
POLICIES = st.one_of(
    st.sampled_from([LeastOutstanding(), RoundRobin(), Random()]),
    st.builds(lambda two: Watcher(*two), WATCHERS),
    st.builds(lambda two: PlainWatcher(*two), WATCHERS),
)
COSTS = {"decision_s": 0.01, "node_s": 0.003, "segment_s": 0.0007, "entry_s": 0.0011, "gpu_s": 0.002}
OVERHEADS = st.builds(
    lambda mode, prediction_s: Overhead(mode=mode, prediction_s=prediction_s, **COSTS),
    st.sampled_from(["none", "serial", "recorded"]),
    st.sampled_from([0.0, 0.013]),
)
HARDWARE = st.builds(
    lambda base, **given: replace(base, **given),
    st.sampled_from([FINE, A6000, FRONTED]),
    kv_tokens=st.one_of(*[st.integers(100, most) for most in (300, 300, 700, 2000)], st.just(100_000)),
    context_length=st.sampled_from([150, 32768]),
    prefill_batch=st.sampled_from([True, True, False]),
)


def of_two_kinds(cluster: dict[str, Any]) -> dict[str, Any]:
    """Or of one, where there is no second."""
    second, gpus = cluster.pop("second"), cluster["gpus"]
    kinds = [(gpus, cluster["hardware"]), *([second] if second else [])]
    return cluster | {"gpus": sum(count for count, _ in kinds), "kinds": kinds}


CLUSTERS = st.fixed_dictionaries(
    {
        "gpus": st.sampled_from([1, 1, 1, 2, 3, 4]),
        "policy": POLICIES,
        "hardware": HARDWARE,
        "second": st.one_of(st.none(), st.none(), st.tuples(st.integers(1, 2), HARDWARE)),
        "engine": ENGINES,
        "overhead": OVERHEADS,
        "duration_s": st.sampled_from([0.5, 4.0]),
        "horizon": st.sampled_from(["stop", "drain"]),
        "seed": st.integers(0, 3),
        "reports_ms": st.sampled_from([0.0, 50.0, 500.0]),
    }
).map(of_two_kinds)


@st.composite
def faulty(draw: st.DrawFn) -> dict[str, Any]:
    cluster = draw(CLUSTERS)
    return cluster | {"faults": draw(timelines(cluster["gpus"]))}


@st.composite
def gated(draw: st.DrawFn) -> dict[str, Any]:
    cluster = draw(CLUSTERS)
    faults = draw(st.one_of(st.none(), timelines(cluster["gpus"])))
    return cluster | {"gateway": draw(GATEWAYS), "faults": faults}
