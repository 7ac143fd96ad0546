"""Moved requests against `tests.support.oracle.moves`: the same bytes on random streams, clusters, links and faults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.faults.base import Faults
from prebleexp.overhead.model import Overhead
from prebleexp.sim.records import View
from prebleexp.sim.types import Longs, Outcome, Workload
from tests.support.oracle import moves as oracle_moves
from tests.support.oracle.compared import same
from tests.support.policies.looker import Looker
from tests.support.sampled import examples
from tests.support.strategies.migrations import MIGRATIONS, long_ones
from tests.support.strategies.timelines import timelines
from tests.support.strategies.vllms import COST, POLICIES, VLLMS, streams


@dataclass(frozen=True)
class Follower(Looker):
    """Hears where requests are moved."""

    def routed(self, mine: Longs, view: View, request: int, now: float) -> None:
        mine[2] = (mine[2] * 31 + 7 * request + int(now * 1e6) + view.requests[request].gpu) % 1000003


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, Any]:
    gpus = draw(st.integers(2, 4))
    fixed = {
        "engine": VLLMS,
        "policy": POLICIES | st.builds(Follower, outstanding=st.sampled_from([0, 3]), refuses=st.sampled_from([0, 5])),
        "kv": st.sampled_from([240, 300, 600, 1200, 4000]),
        "frontend": st.sampled_from([(0.0, 0.0), (0.003, 0.0007)]),
        "migration": MIGRATIONS,
        "faults": st.none() | timelines(gpus),
        "horizon": st.sampled_from(["stop", "drain"]),
        "overhead": st.sampled_from([Overhead(), Overhead("recorded"), Overhead("serial", decision_s=0.002)]),
        "reports_ms": st.sampled_from([0.0, 50.0]),
    }
    return {"gpus": gpus, **draw(st.fixed_dictionaries(fixed))}


def agree(workload: Workload, cluster: dict[str, Any]) -> Outcome:
    faults: Faults | None = cluster["faults"]
    hardware = replace(COST, kv_tokens=cluster["kv"], frontend_s=cluster["frontend"])
    given = {name: one for name, one in cluster.items() if name not in ("kv", "frontend", "faults")}
    given |= {"hardware": hardware, "duration_s": 2.5, "seed": 0} | ({} if faults is None else {"faults": faults})
    return same(workload, given, oracle_moves.simulate)


@pytest.mark.slow
@settings(max_examples=examples(100, found=True), deadline=None)
@given(long_ones() | streams(), clusters())
def test_moves_give_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(long_ones() | streams(), clusters())
def test_moves_give_the_bytes_of_the_oracle_on_many(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)
