"""Sessions for streams that have none, and what holds of the runs of those that have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from prebleexp.sim.types import Outcome, State, Workload


def in_sessions(workload: Workload, turns: int = 4) -> Workload:
    """The same, every request of one of so many sessions that each has some turns, but for one in eight."""
    n = len(workload)
    session = np.arange(n) * 7919 % max(1, n // turns)
    return replace(workload, session=np.where(np.arange(n) % 8 == 7, -1, session).astype(np.int32))


@st.composite
def linked(draw: st.DrawFn, streams: st.SearchStrategy[Workload]) -> Workload:
    """Streams of which many requests come after others, of the same session, its parent or a child."""
    workload = draw(streams)
    n = len(workload)
    delays = st.sampled_from([0.0, 0.0, 0.25, 1.0]) | st.floats(0, 2)
    links = st.tuples(st.integers(-1, 3), st.lists(st.integers(1, 6), max_size=3), delays, st.booleans())
    drawn = draw(st.lists(links, min_size=n, max_size=n))
    session = np.array([one[0] for one in drawn], np.int32)
    parent = np.where((session >= 0) & (session % 2 == 1), session - 1, -1)  # of session 1 it is 0, of 3 it is 2
    after = []
    for i, (mine, back, _, _) in enumerate(drawn):
        related = [j for j in range(i) if mine >= 0 and session[j] // 2 == mine // 2 and session[j] >= 0]
        after.append(sorted({related[-one] for one in back if one <= len(related)}))
    return after_those(
        replace(workload, session=session, parent_session=parent),
        after,
        delay_s=np.array([one[2] for one in drawn]),
        goes_on=np.array([one[3] for one in drawn], np.int32),
    )


@st.composite
def impatient(draw: st.DrawFn, streams: st.SearchStrategy[Workload]) -> Workload:
    """Streams of which many requests give up."""
    workload = draw(streams)
    n = len(workload)
    patience = st.sampled_from([0.001, 0.01, 0.03, 0.1, 0.25, 1.0, np.nan]) | st.floats(0.001, 2)
    return replace(workload, patience_s=np.array(draw(st.lists(patience, min_size=n, max_size=n))))


@st.composite
def staged(draw: st.DrawFn, streams: st.SearchStrategy[Workload]) -> Workload:
    """Streams that come in stages, each when all of the one before has ended."""
    workload = draw(streams)
    n = len(workload)
    later = st.lists(st.sampled_from([0, 0, 0, 1]), min_size=n, max_size=n)
    delays = st.lists(st.sampled_from([0.0, 0.25]) | st.floats(0, 2), min_size=n, max_size=n)
    goes_on = st.lists(st.integers(0, 1), min_size=n, max_size=n)
    return replace(
        workload,
        stage=draw(st.sampled_from([-1, 0])) + np.cumsum([0, *draw(later)[1:]]),
        delay_s=np.array(draw(delays)),
        goes_on=np.array(draw(goes_on), np.int32),
    )


@st.composite
def capped(draw: st.DrawFn, streams: st.SearchStrategy[Workload]) -> Workload:
    """Streams of which requests wait for so many ends: of clients that have so many at a time, or of any number."""
    workload = draw(streams)
    rows = np.arange(len(workload))
    most = draw(st.integers(1, 12))
    any_number = st.lists(st.integers(0, 40), min_size=len(rows), max_size=len(rows))
    ends = np.maximum(rows + 1 - most, 0) if draw(st.booleans()) else np.array(draw(any_number)) % (rows + 1)
    return replace(workload, after_ends=ends.astype(np.int32))


def after_those(workload: Workload, after: list[list[int]], **columns: Any) -> Workload:
    """The same, each request after some."""
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in after])])
    return replace(
        workload, after_offsets=offsets, after_ids=np.array([one for row in after for one in row], np.int32), **columns
    )


def in_order(workload: Workload, made: Outcome) -> None:
    """Whoever comes after others was due `delay_s` behind their last end, and so was every one whose others ended.
    Whoever was cancelled had waited so long for its first token, or comes after one that was lost."""
    refused, cancelled = np.isin(made.state, [State.REFUSED, State.EXPIRED]), made.state == State.CANCELLED
    gave_up = cancelled & np.isfinite(made.due_s)
    lost, known = (refused | cancelled) & (workload.goes_on == 0) | (cancelled & ~gave_up), np.isfinite(made.finish_s)
    assert np.isnan(made.ttft_s[gave_up]).all()
    assert np.isfinite(workload.patience_s[gave_up]).all()
    waited = np.nan_to_num(made.ttft_s, nan=0.0)
    assert not (waited > workload.patience_s).any(), "a first token comes in time, or never"
    for i in np.flatnonzero(workload.waits):
        before = workload.after_ids[workload.after_offsets[i] : workload.after_offsets[i + 1]]
        if lost[before].any():
            assert made.state[i] == State.CANCELLED
        elif known[before].all():
            due_s = made.finish_s[before].max() + workload.delay_s[i]
            assert made.due_s[i] == due_s or (due_s > made.end_s and made.state[i] == State.NOT_DUE)
        elif not (known | refused | gave_up)[before].all():
            assert made.state[i] == State.NOT_DUE
        if np.isfinite(made.due_s[i]):
            assert not (made.finish_s[before] > made.due_s[i]).any()
    if len(workload.after_ids):
        assert ((made.state == State.NOT_DUE) <= np.isnan(made.due_s)).all()
