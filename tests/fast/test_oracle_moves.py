"""Moved requests against `tests.support.oracle.moves`: the same bytes on random streams, clusters, links and faults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from prebleexp.faults.base import Faults
from prebleexp.sim.types import Outcome, Workload
from tests.support.oracle import moves as oracle_moves
from tests.support.oracle.compared import same
from tests.support.sampled import examples
from tests.support.strategies.migrations import long_ones, moving_clusters
from tests.support.strategies.vllms import COST, streams


def agree(workload: Workload, cluster: dict[str, Any]) -> Outcome:
    faults: Faults | None = cluster["faults"]
    hardware = replace(COST, kv_tokens=cluster["kv"], frontend_s=cluster["frontend"])
    given = {name: one for name, one in cluster.items() if name not in ("kv", "frontend", "faults")}
    given |= {"hardware": hardware, "duration_s": 2.5, "seed": 0} | ({} if faults is None else {"faults": faults})
    return same(workload, given, oracle_moves.simulate)


@pytest.mark.slow
@settings(max_examples=examples(100, found=True), deadline=None)
@given(long_ones() | streams(), moving_clusters())
def test_moves_give_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(long_ones() | streams(), moving_clusters())
def test_moves_give_the_bytes_of_the_oracle_on_many(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)
