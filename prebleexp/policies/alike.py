"""Whether a step takes as long on one GPU as on another, so that what it costs there need not be asked once more."""

from __future__ import annotations

from typing import Any

from prebleexp.sim.compiled import compiled


@compiled
def alike(cost: Any, other: Any) -> bool:
    """Of two records of `View.costs`. To ask costs more than all else that routers do for a GPU."""
    same = cost.step_s == other.step_s and cost.decode_s == other.decode_s and cost.request_ms == other.request_ms
    return bool(cost.own == other.own and same)


@compiled
def find_first_alike(costs: Any, into: Any) -> None:
    """Write to into[g] the first GPU that is like GPU g."""
    for g in range(len(into)):
        into[g] = 0
        while into[g] < g and not alike(costs[g], costs[into[g]]):
            into[g] += 1
