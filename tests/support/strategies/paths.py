"""Streams whose prompts are paths of small numbers, with shared beginnings, and random ones of them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from prebleexp.sim.types import Workload


def workload_of(prompts: list[list[int]], arrivals: list[float], outputs: list[int], most: int) -> Workload:
    """Prompts are paths of small numbers; every distinct path is a segment, of a length that depends on it."""
    ids: dict[tuple[int, ...], int] = {}
    rows = [[ids.setdefault(tuple(path[: i + 1]), len(ids)) for i in range(len(path))] for path in prompts]
    tokens = [[1 + 7 * one % 40 for one in row] for row in rows]
    return Workload(
        arrival_s=np.sort(np.array(arrivals)),
        prompt_tokens=np.array([sum(row) for row in tokens]),
        output_tokens=np.array(outputs),
        max_new_tokens=np.full(len(rows), most),
        prefix_group=np.full(len(rows), -1),
        segment_offsets=np.concatenate([[0], np.cumsum([len(row) for row in rows])]),
        segment_ids=np.concatenate(rows),
        segment_tokens=np.concatenate(tokens),
    )


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    n = draw(st.integers(1, 40))
    paths = st.lists(st.integers(0, 2), min_size=1, max_size=5)
    prompts = draw(st.lists(paths, min_size=n, max_size=n))
    arrivals = draw(st.lists(st.floats(0, 3) | st.sampled_from([0.0, 0.5, 1.0]), min_size=n, max_size=n))
    outputs = draw(st.lists(st.integers(1, 70), min_size=n, max_size=n))
    return workload_of(prompts, arrivals, outputs, draw(st.sampled_from([1, 30, 60])))
