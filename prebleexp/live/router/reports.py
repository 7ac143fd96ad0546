"""What servers tell of themselves, as the policy reads it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from prebleexp.live.router import said
from prebleexp.live.router.deciding import Deciding
from prebleexp.live.router.upstreams import Upstream, gauges


class Reports:
    """Writes each server's /metrics into its GPU's row; what it does not say is of the router's own book."""

    def __init__(self, deciding: Deciding, clock: Callable[[], float]) -> None:
        self._deciding, self._clock = deciding, clock
        self._windows: dict[int, deque[tuple[float, float, float]]] = {}

    def hear(self, upstream: Upstream, text: str) -> None:
        told, row, now = gauges(text), self._deciding.host.view.gpus[upstream.number], self._clock()
        flying = list(upstream.flying)
        waiting = sum(one.ticket.first_s is None for one in flying)
        row.queued = int(told.get("queued", waiting))
        row.running = int(told.get("running", len(flying) - waiting))
        row.waiting_tokens = self._deciding.waiting_tokens[upstream.number]
        if "usage" in told:
            row.kv_free = int(max(0.0, 1.0 - told["usage"]) * row.kv_tokens)
        if "queries" in told and "hits" in told:
            window = self._windows.setdefault(upstream.number, deque())
            window.append((now, told["hits"], told["queries"]))
            while now - window[0][0] > said.WINDOW_S:
                window.popleft()
            row.window_hit_tokens = int(max(0.0, told["hits"] - window[0][1]))
            row.window_prompt_tokens = int(max(0.0, told["queries"] - window[0][2]))
        self._deciding.reports(now)
