"""One side of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prebleexp.comparison import Measured

METRIC = "ttft_p99_s"


def side(policy: str, values: dict[int, Sequence[float | None]], **more: Any) -> list[Measured]:
    """Runs by GPU count; their seeds count from 0."""
    return [
        Measured({"policy": policy, "gpus": gpus, "rps": 8.0, **more}, seed, {METRIC: value}, "")
        for gpus, of_gpus in values.items()
        for seed, value in enumerate(of_gpus)
    ]
