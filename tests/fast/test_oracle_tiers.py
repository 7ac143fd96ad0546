"""Tiers against `tests.support.oracle.tiers`: the same bytes on random streams, clusters, policies and tiers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.sim.types import Outcome, Workload
from tests.support.by_hand.streams import stream
from tests.support.oracle import tiers as oracle_tiers
from tests.support.oracle.compared import same
from tests.support.sampled import examples
from tests.support.strategies.tiers import CLUSTERS, faulty, impatient, tiering
from tests.support.strategies.vllms import COST, streams


def few() -> st.SearchStrategy[Workload]:
    """A few prompts that come again and again, as a whole or their first part, more of them than a GPU's cache has."""
    one = st.tuples(st.integers(0, 5), st.booleans(), st.sampled_from([0, 1, 20, 60]), st.integers(1, 30))
    return st.lists(one, min_size=6, max_size=40).map(_of_few)


def _of_few(rows: list[tuple[int, bool, int, int]]) -> Workload:
    prompts = [[(2 * i, 40 + 9 * i), *([(2 * i + 1, 48)] if whole else [])] for i, whole, *_ in rows]
    arrivals = np.cumsum([gap / 1000 for *_, gap, _ in rows]).tolist()
    return stream(prompts, arrivals, [output for *_, output in rows])


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
