"""A thread that wakes an event loop at a time, to some hundredths of a millisecond: timers of loops round to one."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable


class Alarm:
    """Calls `ring` on the loop's thread when `at` (of `time.perf_counter`) has come; the last time that was set."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._loop, self._ring = asyncio.get_running_loop(), ring
        self._at, self._ended = math.inf, False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._wait, name="alarm", daemon=True)
        self._thread.start()

    def set(self, at: float) -> None:
        with self._changed:
            sooner = at < self._at
            self._at = at
            if sooner:  # else it looks again when it wakes
                self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()

    def _wait(self) -> None:
        while True:
            with self._changed:
                while not self._ended and (left := self._at - time.perf_counter()) > 0:
                    self._changed.wait(None if left == math.inf else min(left, threading.TIMEOUT_MAX))
                if self._ended:
                    return
                self._at = math.inf
            try:
                self._loop.call_soon_threadsafe(self._ring)
            except RuntimeError:  # the loop is closed
                return
