"""Times to act at, kept by a thread of their own: timers of event loops are rounded to a millisecond."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
import time
from collections.abc import Callable


class Timers:
    """Calls back in the event loop's thread at times of `time.perf_counter`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._number = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="prebleexp timers", daemon=True)
        self._thread.start()

    def at(self, when: float, call: Callable[[], object]) -> None:
        with self._changed:
            heapq.heappush(self._heap, (when, next(self._number), call))
            if self._heap[0][0] == when:
                self._changed.notify()

    def look(self, now: float) -> None:
        """Call what is due by now, in the event loop's thread between other work: the thread of the timers has to wait
        until there is none."""
        while self._heap and self._heap[0][0] <= now:
            with self._changed:
                due = bool(self._heap) and self._heap[0][0] <= now  # else that thread has it
                call = heapq.heappop(self._heap)[2] if due else None
            if call is not None:
                call()

    def close(self) -> None:
        """Stops the thread and waits for it. What is due later is never called."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                left = self._heap[0][0] - time.perf_counter() if self._heap else None
                if left is None or left > 0:
                    self._changed.wait(left)
                    continue
                due = [heapq.heappop(self._heap)[2]]
                now = time.perf_counter()
                while self._heap and self._heap[0][0] <= now:
                    due.append(heapq.heappop(self._heap)[2])
            for call in due:
                self._loop.call_soon_threadsafe(call)
