"""How long who lacks memory waits, on GPUs whose engine does not mix prompts and outputs in a step (SGLang).

Such an engine admits nobody before there is room for the prompt, and for a share of all that those who decode may still
generate. It tells nobody how large that share is, and changes it as it goes. So the router takes it for all of that,
until it sees otherwise: where a request is admitted, no more is kept than is free then. That holds for all GPUs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.policies.marginal.book import AT, KEPT, LEFT, SETTLED_S, STAYED, Book
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import View


@compiled
def admitted(mine: Book, view: View, gpu: int) -> None:
    """A request has its first token there: at most what is free beside it is kept."""
    at, seen, room = mine.gpus[gpu], view.gpus[gpu], mine.room
    if at.mixed == 0 and at.limit > 0:
        room[KEPT] = min(room[KEPT], (seen.kv_free + seen.evictable) / at.limit)


@compiled
def ended(mine: Book, view: View, request: int, now: float) -> None:
    """It has gone: so long was it in memory."""
    row, room = view.requests[request], mine.room
    stayed = row.latency_s - row.ttft_s
    if stayed >= 0.0:  # neither is a number of one that was given up
        fade = np.exp((room[AT] - now) / SETTLED_S)
        room[LEFT] = room[LEFT] * fade + 1.0
        room[STAYED] = room[STAYED] * fade + stayed
        room[AT] = now


@compiled
def room_s(mine: Book, at: Any, seen: Any, new: int, limit: int) -> float:
    """Seconds until so many tokens of one that may generate so many have room on a GPU, behind those that wait there:
    what is taken is free once those who decode have stayed for as long as others did of late."""
    room = mine.room
    if at.mixed or at.limit == 0 or room[LEFT] == 0.0:
        return 0.0
    free = float(seen.kv_free + seen.evictable)
    lack = new + at.new + room[KEPT] * (at.limit + (at.waiting + 1) * limit) - free
    return float(room[STAYED] / room[LEFT] * min(1.0, max(0.0, lack) / max(1.0, seen.kv_tokens - free)))
