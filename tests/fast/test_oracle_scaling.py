"""Autoscalers against `tests.support.oracle.scaling`: the same bytes on random clusters, streams and faults."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.sim.types import Workload
from tests.support.accounted import accounted
from tests.support.oracle import scaling as oracle_scaling
from tests.support.oracle.compared import agree, same
from tests.support.sampled import examples
from tests.support.sessions import linked
from tests.support.strategies.autoscalers import autoscalers
from tests.support.strategies.clusters import faulty, gated
from tests.support.strategies.conversations import STREAMS, workloads
from tests.support.strategies.gateways import of_clients
from tests.support.strategies.sglangs import SGLANGS
from tests.support.strategies.vllms import VLLMS, faulty_vllm

OF_CLIENTS = of_clients(STREAMS)


@st.composite
def scaled(draw: st.DrawFn, clusters: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    cluster = draw(clusters)
    return cluster | {"autoscaler": draw(autoscalers(cluster["gpus"]))}


def agrees(workload: Workload, cluster: dict[str, Any]) -> None:
    made = agree(workload, cluster, oracle_scaling.simulate)
    accounted(workload, made, requeues=True)


@pytest.mark.slow
@settings(max_examples=examples(100, found=True), deadline=None)
@given(STREAMS, scaled(faulty()))
def test_the_core_gives_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    agrees(workload, cluster)


@pytest.mark.slow
@settings(max_examples=examples(60, found=True), deadline=None)
@given(OF_CLIENTS, scaled(gated()))
def test_behind_a_gateway_too(workload: Workload, cluster: dict[str, Any]) -> None:
    agrees(workload, cluster)


REAL_STREAMS = st.one_of(workloads(), linked(workloads()))


@pytest.mark.slow
@settings(max_examples=examples(100, found=True), deadline=None)
@given(REAL_STREAMS, scaled(faulty_vllm(VLLMS | SGLANGS)))
def test_real_engines_give_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    accounted(workload, same(workload, cluster, oracle_scaling.simulate), requeues=True)


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(STREAMS, scaled(faulty()))
def test_the_core_gives_the_bytes_of_the_oracle_on_many(workload: Workload, cluster: dict[str, Any]) -> None:
    agrees(workload, cluster)


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(REAL_STREAMS, scaled(faulty_vllm(VLLMS | SGLANGS)))
def test_real_engines_give_the_bytes_of_the_oracle_on_many(workload: Workload, cluster: dict[str, Any]) -> None:
    accounted(workload, same(workload, cluster, oracle_scaling.simulate), requeues=True)
