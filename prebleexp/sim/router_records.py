"""The records of routers, and of lists of those who wait for them."""

from __future__ import annotations

import numpy as np

ROUTER = np.dtype(
    [
        ("deciding", np.int64),  # whether it is busy, …
        ("missed", np.int64),  # … and something has ended since
    ],
    align=True,
)
"""A router: one process, which decides on one request at a time."""

LIST = np.dtype([("head", np.int64), ("tail", np.int64)], align=True)
"""Requests that are linked by `next`; -1: there are none."""

COMMON, HELD, OWN = range(3)
"""lists of `World.lists`: who waits for routers, who is held, and behind these, of each router, who waits for it
alone"""
