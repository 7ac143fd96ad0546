"""First-come lists of requests at a worker, linked by a field of the requests."""

from __future__ import annotations

from typing import Any

from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE


@compiled
def join(firsts: Any, lasts: Any, behind: Any, w: int, request: int) -> None:
    """A request is the last of worker w's list: which is the first and the last of each, and who is behind whom."""
    behind[request] = NONE
    if firsts[w] == NONE:
        firsts[w] = request
    else:
        behind[lasts[w]] = request
    lasts[w] = request
