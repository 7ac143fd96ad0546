"""A few prompts that come again and again."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from prebleexp.sim.types import Workload
from tests.support.by_hand.streams import stream


def few(outputs: int = 30) -> st.SearchStrategy[Workload]:
    """As a whole or their first part, more of them than a GPU's cache has. `outputs`: tokens of each at most."""
    one = st.tuples(st.integers(0, 5), st.booleans(), st.sampled_from([0, 1, 20, 60]), st.integers(1, outputs))
    return st.lists(one, min_size=6, max_size=40).map(_of_few)


def _of_few(rows: list[tuple[int, bool, int, int]]) -> Workload:
    prompts = [[(2 * i, 40 + 9 * i), *([(2 * i + 1, 48)] if whole else [])] for i, whole, *_ in rows]
    arrivals = np.cumsum([gap / 1000 for *_, gap, _ in rows]).tolist()
    return stream(prompts, arrivals, [output for *_, output in rows])
