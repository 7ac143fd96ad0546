"""E2 in the place of a router, for prompts that are written as letters and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.policies.e2 import E2
from prebleexp.sim.types import Workload
from tests.support.routers import Router, cost_of_a_token


def stream(*prompts: str) -> Workload:
    """A letter stands for tokens, of which there are as many as the number behind it says."""
    ids: dict[str, int] = {}
    paths = [prompt.split() for prompt in prompts]
    rows = [[ids.setdefault(" ".join(path[: i + 1]), len(ids)) for i in range(len(path))] for path in paths]
    tokens = [[int(one[1:]) for one in path] for path in paths]
    n = len(prompts)
    return Workload(
        np.arange(n),
        np.array([sum(row) for row in tokens]),
        np.full(n, 9),
        np.full(n, 9),
        np.full(n, -1),
        np.r_[0, np.cumsum([len(row) for row in rows])],
        np.concatenate(rows),
        np.concatenate(tokens),
    )


def router(policy: E2, *prompts: str, gpus: int = 2, outputs: list[float] | float = 0.0, **more: Any) -> Router:
    workload = stream(*prompts)
    expected = np.broadcast_to(np.array(outputs), len(workload)).copy()
    return Router(policy, workload, gpus, cost_of_a_token(), expected, **more)


def loads(of: Router) -> Any:
    """Seconds, as last summed for each GPU."""
    return of.memory.gpus.load_s
