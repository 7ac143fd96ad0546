"""Moved requests against `tests.oracle_moves`: the same bytes on random streams, clusters, links and faults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.faults.base import Faults
from prebleexp.overhead.model import Overhead
from prebleexp.sim.links import FAIR, FIFO, INFINITE
from prebleexp.sim.migration import Migration
from prebleexp.sim.moves import RUNNING, WAITING, WAITING_FIRST
from prebleexp.sim.records import View
from prebleexp.sim.types import Longs, Outcome, Workload
from tests import oracle_moves
from tests.fast.test_engines import own, stream
from tests.fast.test_oracle_pools import COST, POLICIES, VLLMS, Looker, same, streams
from tests.sampled import examples
from tests.timelines import timelines


@dataclass(frozen=True)
class Follower(Looker):
    """Hears where requests are moved."""

    def routed(self, mine: Longs, view: View, request: int, now: float) -> None:
        mine[2] = (mine[2] * 31 + 7 * request + int(now * 1e6) + view.requests[request].gpu) % 1000003


MIGRATIONS = st.builds(
    Migration,
    interval_s=st.sampled_from([0.005, 0.02, 0.1]),
    kv_bytes=st.just(1000.0),
    sharing=st.sampled_from([INFINITE, FIFO, FAIR]),
    rate=st.sampled_from([1e5, 1e6, 1e9]),
    latency_s=st.sampled_from([0.0, 0.003]),
    below_freeness=st.sampled_from([-3.0, 3.0, 20.0, 1000.0]),
    chooses=st.sampled_from([RUNNING, RUNNING, WAITING, WAITING_FIRST]),
    last_stage_blocks=st.sampled_from([1, 4, 16]),
    max_stages=st.sampled_from([1, 2, 3, 8]),
)


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


def long_ones() -> st.SearchStrategy[Workload]:
    """A few prompts of which some make long outputs, so that batches shrink unevenly."""
    one = st.tuples(st.integers(1, 100), st.sampled_from([1, 20, 120]), st.sampled_from([0, 0, 1, 60]))
    rows = st.lists(one, min_size=6, max_size=30)
    return rows.map(
        lambda rows: stream(
            [own(i, tokens) for i, (tokens, *_) in enumerate(rows)],
            [sum(gap for *_, gap in rows[: i + 1]) / 1000 for i in range(len(rows))],
            [output for _, output, _ in rows],
        )
    )


def agree(workload: Workload, cluster: dict[str, Any]) -> Outcome:
    faults: Faults | None = cluster["faults"]
    hardware = replace(COST, kv_tokens=cluster["kv"], frontend_s=cluster["frontend"])
    given = {name: one for name, one in cluster.items() if name not in ("kv", "frontend", "faults")}
    given |= {"hardware": hardware, "duration_s": 2.5, "seed": 0} | ({} if faults is None else {"faults": faults})
    return same(workload, given, oracle_moves.simulate)


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(long_ones() | streams(), clusters())
def test_moves_give_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(long_ones() | streams(), clusters())
def test_moves_give_the_bytes_of_the_oracle_on_many(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)
