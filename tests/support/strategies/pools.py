"""Random clusters with roles, and the streams that they serve."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from prebleexp.autoscalers.base import FIXED
from prebleexp.autoscalers.by_role import ByRole
from prebleexp.faults.base import Faults
from prebleexp.overhead.model import Overhead
from prebleexp.sim.links import FAIR, FIFO, INFINITE
from prebleexp.sim.pools import (
    BOTH,
    CHUNKS,
    DECODE,
    END,
    LAYERS,
    NAMES,
    NEVER,
    PREDICTED,
    PREFILL,
    PULL,
    PUSH_AT_END,
    RESERVE_FIRST,
    UNCACHED,
    Disaggregation,
)
from prebleexp.sim.types import Workload
from tests.support.sessions import impatient
from tests.support.strategies.autoscalers import autoscalers
from tests.support.strategies.sglangs import SGLANGS
from tests.support.strategies.timelines import timelines
from tests.support.strategies.vllms import COST, POLICIES, VLLMS, streams

CLUSTERS = st.fixed_dictionaries(
    {
        "engine": VLLMS,
        "policy": POLICIES,
        "second": POLICIES,
        "counts": st.lists(st.integers(1, 2), min_size=3, max_size=3),
        "roles": st.permutations([PREFILL, DECODE, BOTH]) | st.permutations([PREFILL, DECODE, DECODE]),
        "kv": st.sampled_from([240, 300, 600, 1200, 4000]),
        "frontend": st.sampled_from([(0.0, 0.0), (0.003, 0.0007)]),
        "sharing": st.sampled_from([INFINITE, FIFO, FAIR]),
        "latency_s": st.sampled_from([0.0, 0.003, 0.1]),
        "protocol": st.sampled_from([PULL, PUSH_AT_END]),
        "rate": st.sampled_from([1e5, 1e6, 1e9]),
        "horizon": st.sampled_from(["stop", "drain"]),
        "overhead": st.sampled_from([Overhead(), Overhead("recorded"), Overhead("serial", decision_s=0.002)]),
        "reports_ms": st.sampled_from([0.0, 50.0]),
    }
)


DECIDED = st.tuples(CLUSTERS, st.sampled_from([NEVER, UNCACHED, PREDICTED]), st.sampled_from([1, 10, 50])).map(
    lambda drawn: drawn[0] | {"roles": (PREFILL, DECODE, DECODE), "decider": drawn[1], "least_tokens": drawn[2]}
)


def streams_with_patience() -> st.SearchStrategy[Workload]:
    return st.one_of(streams(), impatient(streams()))


RESERVING = st.tuples(CLUSTERS, SGLANGS, st.sampled_from([END, LAYERS, CHUNKS]), st.sampled_from([1, 3, 4])).map(
    lambda drawn: drawn[0] | {"engine": drawn[1], "protocol": RESERVE_FIRST, "send": drawn[2], "layers": drawn[3]}
)
OF_VLLM = st.one_of(CLUSTERS, CLUSTERS, DECIDED)
ALL = st.one_of(CLUSTERS, DECIDED, RESERVING, RESERVING)


@st.composite
def scaled(draw: st.DrawFn, clusters: st.SearchStrategy[dict[str, Any]] = ALL) -> tuple[dict[str, Any], Any]:
    """And what says how many GPUs of each role there are: one rule for all, or one for each."""
    cluster = draw(clusters)
    counts = dict.fromkeys(cluster["roles"], 0)
    for role, count in zip(cluster["roles"], cluster["counts"], strict=True):
        counts[role] += count
    if draw(st.booleans()):
        return cluster, draw(autoscalers(min(counts.values())))
    first = draw(autoscalers(counts[cluster["roles"][0]]))
    rest = {role: draw(st.just(FIXED) | autoscalers(count)) for role, count in counts.items()}
    rules = {role: FIXED if one is FIXED else replace(one, interval_s=first.interval_s) for role, one in rest.items()}
    return cluster, ByRole(**{NAMES[role]: one for role, one in (rules | {cluster["roles"][0]: first}).items()})


@st.composite
def faulty(draw: st.DrawFn) -> tuple[dict[str, Any], Faults]:
    cluster = draw(ALL)
    return cluster, draw(losses(cluster))


def losses(cluster: dict[str, Any]) -> st.SearchStrategy[Faults]:
    """What happens to the GPUs of a cluster."""
    return timelines(sum(cluster["counts"]), resumes=True)


def split(workload: Workload, cluster: dict[str, Any]) -> tuple[Workload, dict[str, Any]]:
    """The stream that a cluster serves, and what `simulate` is given."""
    hardware = replace(COST, kv_tokens=cluster["kv"], frontend_s=cluster["frontend"])
    names = ("sharing", "latency_s", "rate", "protocol", "send", "layers", "decider", "least_tokens")
    link = {name: cluster[name] for name in names if name in cluster}
    given = {name: cluster[name] for name in ("engine", "policy", "horizon", "overhead", "reports_ms")}
    given |= {"gpus": sum(cluster["counts"]), "hardware": hardware, "duration_s": 2.5, "seed": 0}
    given["kinds"] = [(count, hardware) for count in cluster["counts"]]
    given["pools"] = Disaggregation(tuple(cluster["roles"]), cluster["second"], 1000.0, **link)
    return workload, given
