"""Tiers against `tests.support.oracle.tiers`: the same bytes on random streams, clusters, policies and tiers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from prebleexp.sim.types import Outcome, Workload
from tests.support.oracle import tiers as oracle_tiers
from tests.support.oracle.compared import same
from tests.support.sampled import examples
from tests.support.strategies.few import few
from tests.support.strategies.tiers import CLUSTERS, faulty, impatient, tiering
from tests.support.strategies.vllms import COST, streams


def agree(workload: Workload, cluster: dict[str, Any]) -> Outcome:
    hardware = replace(COST, kv_tokens=cluster["kv"], frontend_s=cluster["frontend"])
    given = {name: cluster[name] for name in ("engine", "policy", "gpus", "horizon", "overhead", "reports_ms")}
    given |= {"hardware": hardware, "duration_s": 2.5, "seed": 0}
    given["tiers"], given["faults"] = tiering(cluster), cluster["faults"]
    return same(impatient(workload, cluster), given, oracle_tiers.simulate)


@pytest.mark.slow
@settings(max_examples=examples(200, found=True), deadline=None)
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
@settings(max_examples=examples(100, found=True), deadline=None)
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
