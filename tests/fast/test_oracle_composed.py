"""Features at once against the layers of `tests.support.oracle.composed`: the same bytes on random clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.sim.tiers import ALWAYS
from prebleexp.sim.types import Workload
from tests.support.accounted import accounted
from tests.support.oracle import composed
from tests.support.oracle.compared import same
from tests.support.sampled import examples
from tests.support.strategies.autoscalers import autoscalers
from tests.support.strategies.few import few
from tests.support.strategies.tiers import CLUSTERS, PEERS, impatient, tiering
from tests.support.strategies.timelines import timelines
from tests.support.strategies.vllms import COST, streams


def agree(workload: Workload, cluster: dict[str, Any]) -> None:
    hardware = replace(COST, kv_tokens=cluster["kv"], frontend_s=cluster["frontend"])
    given = {name: cluster[name] for name in ("engine", "policy", "gpus", "horizon", "overhead", "reports_ms")}
    given |= {"hardware": hardware, "duration_s": 2.5, "seed": 0, "faults": cluster["faults"]}
    given |= {"tiers": tiering(cluster), "autoscaler": cluster.get("autoscaler")}
    workload = impatient(workload, cluster)
    accounted(workload, same(workload, given, composed.simulate), requeues=True)


@st.composite
def lossy(draw: st.DrawFn) -> dict[str, Any]:
    """Much is lent, and slowly: some of it is under way when a GPU is lost."""
    cluster, rate = draw(CLUSTERS), draw(st.sampled_from([1e5, 3e5, 1e6]))
    slow = replace(draw(PEERS), load_rate=rate, store_rate=rate, choose=ALWAYS)
    cluster |= {"gpus": draw(st.integers(2, 4)), "peers": slow}
    return cluster | {"faults": draw(timelines(cluster["gpus"], resumes=True))}


@st.composite
def scaled(draw: st.DrawFn) -> dict[str, Any]:
    cluster = draw(CLUSTERS)
    drawn = {"faults": draw(st.none() | timelines(cluster["gpus"], resumes=True))}
    return cluster | drawn | {"autoscaler": draw(autoscalers(cluster["gpus"]))}


@pytest.mark.slow
@settings(max_examples=examples(150, found=True), deadline=None)
@given(few() | streams(), lossy())
def test_gpus_that_lend_may_be_lost(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


@pytest.mark.slow
@settings(max_examples=examples(150, found=True), deadline=None)
@given(few() | streams(), scaled())
def test_gpus_with_tiers_may_be_as_many_as_an_autoscaler_wants(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(few() | streams(), lossy() | scaled())
def test_features_at_once_give_the_bytes_of_the_oracle_on_many(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)
