"""Random ways of moving requests, and streams whose batches shrink unevenly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from prebleexp.overhead.model import Overhead
from prebleexp.sim.links import FAIR, FIFO, INFINITE
from prebleexp.sim.migration import Migration
from prebleexp.sim.moves import RUNNING, WAITING, WAITING_FIRST
from prebleexp.sim.types import Workload
from tests.support.by_hand.streams import own, stream
from tests.support.policies.looker import Follower
from tests.support.strategies.timelines import timelines
from tests.support.strategies.vllms import POLICIES, VLLMS

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


def long_ones(gaps_ms: Sequence[int] = (0, 0, 1, 60)) -> st.SearchStrategy[Workload]:
    """A few prompts of which some make long outputs, so that batches shrink unevenly."""
    one = st.tuples(st.integers(1, 100), st.sampled_from([1, 20, 120]), st.sampled_from(gaps_ms))
    rows = st.lists(one, min_size=6, max_size=30)
    return rows.map(
        lambda rows: stream(
            [own(i, tokens) for i, (tokens, *_) in enumerate(rows)],
            [sum(gap for *_, gap in rows[: i + 1]) / 1000 for i in range(len(rows))],
            [output for _, output, _ in rows],
        )
    )


@st.composite
def moving_clusters(draw: st.DrawFn) -> dict[str, Any]:
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
