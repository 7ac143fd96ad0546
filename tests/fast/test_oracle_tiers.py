"""Tiers against `tests.oracle_tiers`: the same bytes on random streams, clusters, policies and tiers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.overhead.model import Overhead
from prebleexp.sim.links import FAIR, FIFO, INFINITE
from prebleexp.sim.records import View
from prebleexp.sim.tiering import Tier, Tiering
from prebleexp.sim.tiers import ALWAYS, CHEAPER, THRESHOLD
from prebleexp.sim.types import Longs, Outcome, Setup, Workload
from tests import oracle_tiers
from tests.fast.test_engines import stream
from tests.fast.test_oracle_pools import COST, HEARD, POLICIES, VLLMS, Looker, same, streams
from tests.sampled import examples
from tests.timelines import timelines

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


@dataclass(frozen=True)
class TierLooker(Looker):
    """And what it hears of tiers."""

    def start(self, setup: Setup) -> Longs:
        HEARD.append(np.zeros(5, np.int64))
        return HEARD[-1]

    def copied(self, mine: Longs, view: View, request: int, place: int, tokens: int, now: float) -> None:
        mine[3] = (mine[3] * 31 + 1009 * request + 101 * place + tokens + int(now * 1e6)) % 1000003

    def dropped(self, mine: Longs, view: View, request: int, place: int, tokens: int, now: float) -> None:
        mine[4] = (mine[4] * 31 + 1009 * request + 101 * place + tokens + int(now * 1e6)) % 1000003


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


def few() -> st.SearchStrategy[Workload]:
    """A few prompts that come again and again, as a whole or their first part, more of them than a GPU's cache has."""
    one = st.tuples(st.integers(0, 5), st.booleans(), st.sampled_from([0, 1, 20, 60]), st.integers(1, 30))
    return st.lists(one, min_size=6, max_size=40).map(_of_few)


def _of_few(rows: list[tuple[int, bool, int, int]]) -> Workload:
    prompts = [[(2 * i, 40 + 9 * i), *([(2 * i + 1, 48)] if whole else [])] for i, whole, *_ in rows]
    arrivals = np.cumsum([gap / 1000 for *_, gap, _ in rows]).tolist()
    return stream(prompts, arrivals, [output for *_, output in rows])


def tiering(cluster: dict[str, Any]) -> Tiering:
    return Tiering(1000.0, *(cluster[name] for name in ("host", "shared", "disk", "peers")))


def impatient(workload: Workload, cluster: dict[str, Any]) -> Workload:
    return replace(workload, patience_s=np.resize(cluster["patience_s"], len(workload)))


def agree(workload: Workload, cluster: dict[str, Any]) -> Outcome:
    hardware = replace(COST, kv_tokens=cluster["kv"], frontend_s=cluster["frontend"])
    given = {name: cluster[name] for name in ("engine", "policy", "gpus", "horizon", "overhead", "reports_ms")}
    given |= {"hardware": hardware, "duration_s": 2.5, "seed": 0}
    given["tiers"], given["faults"] = tiering(cluster), cluster["faults"]
    return same(impatient(workload, cluster), given, oracle_tiers.simulate)


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(few() | streams(), CLUSTERS)
def test_tiers_give_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(few() | streams(), CLUSTERS)
def test_tiers_give_the_bytes_of_the_oracle_on_many(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(few() | streams(), faulty())
def test_tiers_of_gpus_that_are_lost_give_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(few() | streams(), faulty())
def test_tiers_of_gpus_that_are_lost_give_the_bytes_of_the_oracle_on_many(
    workload: Workload, cluster: dict[str, Any]
) -> None:
    agree(workload, cluster)
