"""How long who lacks memory waits, on GPUs whose engine does not mix prompts and outputs in a step (SGLang).

Such an engine admits nobody before there is room for the prompt, and for a share of all that those who decode may still
generate. It tells nobody how large that share is, and changes it as it goes. So the router takes it for all of that,
until it sees otherwise: where a request is admitted, no more is kept than is free then. That holds for all GPUs.

What a GPU has of a prompt needs room, too, unless others use it: it may be driven out before, and not once the request
is admitted. So conversations that a GPU has in its cache may be more than can be served at a time.
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
def stay_s(mine: Book) -> float:
    """Seconds that requests were in memory of late, after their first tokens; 0: none has ended."""
    return float(mine.room[STAYED] / mine.room[LEFT]) if mine.room[LEFT] > 0.0 else 0.0


@compiled
def room_s(mine: Book, at: Any, seen: Any, needs: int, limit: int, stay: float) -> float:
    """Seconds until one that needs so many tokens, and may generate so many, has room on a GPU, behind those that wait
    there: what is taken is free once those who decode have stayed for as long as others did of late."""
    if at.mixed or at.limit == 0 or stay == 0.0:
        return 0.0
    free = float(seen.kv_free + seen.evictable)
    lack = needs + at.needs + mine.room[KEPT] * (at.limit + (at.waiting + 1) * limit) - free
    return float(stay * min(1.0, max(0.0, lack) / max(1.0, seen.kv_tokens - free)))
