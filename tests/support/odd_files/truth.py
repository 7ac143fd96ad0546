"""What a file says, before it is written in some way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from prebleexp.workloads.replayed import Replayed
from prebleexp.workloads.request_log import RequestLog

EPOCH_S = 1_764_000_000
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
Row = dict[str, Any]


@dataclass
class Truth:
    """Of n requests in order of arrival."""

    start_s: list[float]
    prompt: list[int]
    output: list[int]
    cached: list[int]
    wrong: str = ""
    """what of the file cannot be read as it is meant: it has to be refused, or said"""
    strange: str = ""
    """in what it is written that need not be known: it may be refused, but not be read wrongly"""
    untold: bool = False
    """whether nothing in it says in which unit its times are: what was taken has to be said"""
    kind: type[Replayed] = RequestLog
    settings: Row = field(default_factory=dict)


def truth(rng: np.random.Generator) -> Truth:
    n = int(rng.integers(3, 30))
    gaps = rng.exponential(10.0 ** rng.uniform(-1.5, 1.2), n)
    prompt = rng.integers(200, 20_000, n)
    cached = (prompt * rng.choice([0.0, 0.3, 0.95], n)).astype(int) // 16 * 16
    output = rng.integers(1, 900, n)
    return Truth(np.cumsum(gaps).round(3).tolist(), prompt.tolist(), output.tolist(), cached.tolist())
