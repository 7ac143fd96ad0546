"""Pools against `tests.support.oracle.pools`: the same bytes on random streams, clusters, policies and links."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.faults.base import Faults
from prebleexp.gateway.base import Gateway
from prebleexp.sim.types import Outcome, Workload
from tests.support.oracle import composed
from tests.support.oracle.compared import same
from tests.support.sampled import examples
from tests.support.strategies.gateways import GATEWAYS, of_clients
from tests.support.strategies.pools import (
    CLUSTERS,
    DECIDED,
    RESERVING,
    faulty,
    split,
    streams_with_patience,
)


def agree(
    workload: Workload, cluster: dict[str, Any], faults: Faults | None = None, gateway: Gateway | None = None
) -> Outcome:
    workload, given = split(workload, cluster)
    return same(workload, given | {"gateway": gateway, "faults": faults}, composed.simulate)


@pytest.mark.slow
@settings(max_examples=examples(200, found=True), deadline=None)
@given(streams_with_patience(), CLUSTERS)
def test_pools_give_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


GATED = st.tuples(CLUSTERS | DECIDED | RESERVING, GATEWAYS)
GATED_FAULTY = st.tuples(faulty(), GATEWAYS)


@pytest.mark.slow
@settings(max_examples=examples(100, found=True), deadline=None)
@given(of_clients(streams_with_patience()), GATED)
def test_gateways_before_pools_give_the_bytes_of_the_oracle(workload: Workload, of: tuple[Any, Gateway]) -> None:
    agree(workload, of[0], gateway=of[1])


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(of_clients(streams_with_patience()), GATED)
def test_gateways_before_pools_give_the_bytes_of_the_oracle_on_many(
    workload: Workload, of: tuple[Any, Gateway]
) -> None:
    agree(workload, of[0], gateway=of[1])


@pytest.mark.slow
@settings(max_examples=examples(100, found=True), deadline=None)
@given(of_clients(streams_with_patience()), GATED_FAULTY)
def test_gateways_before_pools_that_lose_gpus_give_the_bytes_of_the_oracle(workload: Workload, of: Any) -> None:
    agree(workload, *of[0], gateway=of[1])


@pytest.mark.slow
@settings(max_examples=examples(100, found=True), deadline=None)
@given(streams_with_patience(), faulty())
def test_pools_that_lose_gpus_give_the_bytes_of_the_oracle(workload: Workload, of: tuple[Any, Faults]) -> None:
    agree(workload, *of)


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(streams_with_patience(), faulty())
def test_pools_that_lose_gpus_give_the_bytes_of_the_oracle_on_many(workload: Workload, of: tuple[Any, Faults]) -> None:
    agree(workload, *of)


@pytest.mark.slow
@settings(max_examples=examples(100, found=True), deadline=None)
@given(streams_with_patience(), DECIDED)
def test_deciders_give_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


@pytest.mark.slow
@settings(max_examples=examples(100, found=True), deadline=None)
@given(streams_with_patience(), RESERVING)
def test_reserving_first_gives_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(streams_with_patience(), RESERVING)
def test_reserving_first_gives_the_bytes_of_the_oracle_on_many(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(streams_with_patience(), CLUSTERS)
def test_pools_give_the_bytes_of_the_oracle_on_many(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)
