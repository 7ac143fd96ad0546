"""Features at once against the layers of `tests.support.oracle.composed`: the same bytes on random clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.sim.migration import Migration
from prebleexp.sim.moves import RUNNING, WAITING, WAITING_FIRST
from prebleexp.sim.pools import DECODE, PREFILL
from prebleexp.sim.tiers import ALWAYS
from prebleexp.sim.types import Workload
from tests.support.accounted import accounted
from tests.support.oracle import composed
from tests.support.oracle.compared import same
from tests.support.policies.looker import Lopsided
from tests.support.sampled import examples
from tests.support.strategies.autoscalers import autoscalers
from tests.support.strategies.few import few
from tests.support.strategies.migrations import MIGRATIONS, long_ones
from tests.support.strategies.pools import OF_VLLM, losses, split, streams_with_patience
from tests.support.strategies.pools import scaled as scaled_pools
from tests.support.strategies.tiers import CLUSTERS, PEERS, impatient, tiering
from tests.support.strategies.timelines import timelines
from tests.support.strategies.vllms import COST, kinds, streams


def agree(workload: Workload, cluster: dict[str, Any]) -> None:
    hardware = replace(COST, kv_tokens=cluster["kv"], frontend_s=cluster["frontend"])
    given = {name: cluster[name] for name in ("engine", "policy", "gpus", "horizon", "overhead", "reports_ms")}
    given |= {"hardware": hardware, "duration_s": 2.5, "seed": 0, "faults": cluster["faults"]}
    has_tiers = any(cluster[name] is not None for name in ("host", "disk", "shared", "peers"))
    given |= {"tiers": tiering(cluster) if has_tiers else None}
    given |= {name: cluster.get(name) for name in ("autoscaler", "migration")}
    given["kinds"] = cluster.get("kinds", ())
    workload = impatient(workload, cluster)
    accounted(workload, same(workload, given, composed.simulate), requeues=True)


def of_kinds(cluster: dict[str, Any]) -> st.SearchStrategy[Any]:
    return kinds(cluster["gpus"], replace(COST, kv_tokens=cluster["kv"], frontend_s=cluster["frontend"]))


@st.composite
def lossy(draw: st.DrawFn) -> dict[str, Any]:
    """Much is lent, and slowly: some of it is under way when a GPU is lost."""
    cluster, rate = draw(CLUSTERS), draw(st.sampled_from([1e5, 3e5, 1e6]))
    slow = replace(draw(PEERS), load_rate=rate, store_rate=rate, choose=ALWAYS)
    cluster |= {"gpus": draw(st.integers(2, 4)), "peers": slow}
    cluster["kinds"] = draw(of_kinds(cluster))
    return cluster | {"faults": draw(timelines(cluster["gpus"], resumes=True))}


@st.composite
def scaled(draw: st.DrawFn) -> dict[str, Any]:
    cluster = draw(CLUSTERS)
    drawn = {"faults": draw(st.none() | timelines(cluster["gpus"], resumes=True)), "kinds": draw(of_kinds(cluster))}
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


def often() -> st.SearchStrategy[Migration]:
    below = st.sampled_from([20.0, 60.0, 200.0])
    return st.builds(replace, MIGRATIONS, interval_s=st.sampled_from([0.005, 0.02]), below_freeness=below)


@st.composite
def moving(draw: st.DrawFn) -> dict[str, Any]:
    """Requests move, and often, with tiers or an autoscaler or both."""
    gpus = draw(st.integers(2, 4))
    faults = draw(st.none() | timelines(gpus, resumes=True))
    cluster = draw(CLUSTERS) | {"gpus": gpus, "migration": draw(often()), "faults": faults}
    lends = st.builds(replace, PEERS, choose=st.just(ALWAYS))
    cluster |= {"peers": draw(st.none() | lends), "policy": draw(st.just(cluster["policy"]) | st.just(Lopsided()))}
    cluster |= {"kv": draw(st.sampled_from([300, 600, 1200]))}
    cluster["kinds"] = draw(of_kinds(cluster))
    scaler = draw(st.none() | autoscalers(cluster["gpus"]))
    none = dict.fromkeys(("host", "disk", "shared", "peers")) if scaler is not None and draw(st.booleans()) else {}
    return cluster | none | {"autoscaler": scaler}


@pytest.mark.slow
@settings(max_examples=examples(200, found=True), deadline=None)
@given(long_ones() | few(120) | few(120), moving())
def test_requests_move_between_gpus_with_tiers_or_an_autoscaler(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


@st.composite
def pools(draw: st.DrawFn) -> tuple[dict[str, Any], Any, Any]:
    """GPUs with roles, whose number an autoscaler says, and that may be lost."""
    cluster, rule = draw(scaled_pools())
    return cluster, rule, draw(st.none() | losses(cluster))


@pytest.mark.slow
@settings(max_examples=examples(150, found=True), deadline=None)
@given(streams_with_patience(), pools())
def test_gpus_of_each_role_may_be_as_many_as_an_autoscaler_wants(workload: Workload, of: Any) -> None:
    cluster, rule, faults = of
    workload, given = split(workload, cluster)
    given |= {"autoscaler": rule, "faults": faults}
    accounted(workload, same(workload, given, composed.simulate), requeues=True)


@st.composite
def moving_pools(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """GPUs with roles between which requests move, and often; some may be lost, or scaled, have tiers, or a gateway."""
    cluster, rule = draw(scaled_pools(OF_VLLM))
    roles = st.sampled_from([(PREFILL, DECODE, DECODE), (PREFILL, PREFILL, DECODE)])
    cluster["roles"] = draw(roles | st.just(cluster["roles"])) if cluster.get("decider") is None else cluster["roles"]
    cluster["counts"] = draw(st.sampled_from([(2, 2, 1), (2, 1, 2), (1, 2, 2)]))
    more = draw(st.sampled_from([(), (), (), ("faults",), ("faults", "autoscaler"), ("tiers",), ("tiers", "faults")]))
    given = {"migration": draw(often()), "faults": draw(losses(cluster)) if "faults" in more else None}
    cluster["kv"] = draw(st.sampled_from([240, 300, 600, 1200]))
    for name in ("policy", "second"):
        cluster[name] = draw(st.just(cluster[name]) | st.just(Lopsided()))
    chooses = draw(st.sampled_from([RUNNING, WAITING, WAITING_FIRST, WAITING_FIRST]))
    below = draw(st.sampled_from([1.0, 3.0, 20.0, 200.0]))
    given["migration"] = replace(given["migration"], chooses=chooses, below_freeness=below)
    if "tiers" in more:
        cluster["engine"] = replace(cluster["engine"], enable_prefix_caching=True)
        given["tiers"] = tiering(draw(CLUSTERS))
    return cluster, given | {"autoscaler": rule if "autoscaler" in more else None}


@pytest.mark.slow
@settings(max_examples=examples(200, found=True), deadline=None)
@given(long_ones((0, 0, 1)) | long_ones((0, 0, 0, 20)) | streams_with_patience(), moving_pools())
def test_requests_move_between_gpus_of_one_role(workload: Workload, of: Any) -> None:
    workload, given = split(workload, of[0])
    accounted(workload, same(workload, given | of[1], composed.simulate), requeues=True)


@st.composite
def tiered_pools(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """GPUs with roles, and tiers behind their caches, lending each other or not; some may be lost, or scaled."""
    cluster, rule = draw(scaled_pools(OF_VLLM))
    tiers = draw(CLUSTERS)
    given = {"faults": draw(st.none() | losses(cluster)), "tiers": tiering(tiers)}
    cluster["engine"] = replace(cluster["engine"], enable_prefix_caching=True)
    return cluster, given | {"autoscaler": draw(st.none() | st.just(rule))}


@pytest.mark.slow
@settings(max_examples=examples(150, found=True), deadline=None)
@given(few() | streams_with_patience(), tiered_pools())
def test_gpus_with_roles_may_have_tiers_and_lend(workload: Workload, of: Any) -> None:
    workload, given = split(workload, of[0])
    accounted(workload, same(workload, given | of[1], composed.simulate), requeues=True)


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(few() | streams(), lossy() | scaled() | moving())
def test_features_at_once_give_the_bytes_of_the_oracle_on_many(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)
