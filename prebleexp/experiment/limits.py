"""Runs that take too long, or more memory than there is."""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

GIB = 1 << 30


class TimeLimitExceeded(Exception):
    """A run took longer than it may."""


class Stopped(BaseException):
    """The sweep was ended while a run went on in a thread. No failure of the run."""


@contextmanager
def limited(seconds: float | None, stop: threading.Event | None = None) -> Iterator[Callable[[], None]]:
    """Gives what a run is to call now and then: it raises once the time is over, or when `stop` is set.

    In a main thread a signal interrupts plain Python that never calls. Compiled code that never returns is beyond
    reach.
    """
    end = time.monotonic() + seconds if seconds is not None else None

    def check() -> None:
        if stop is not None and stop.is_set():
            raise Stopped
        if end is not None and time.monotonic() > end:
            raise TimeLimitExceeded(f"it took longer than time_limit_s={seconds:g}")

    def ring(signum: int, frame: object) -> None:
        check()

    alarm = seconds is not None and threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGALRM, ring) if alarm else None
    if alarm and seconds is not None:
        signal.setitimer(signal.ITIMER_REAL, seconds + 0.01, 1.0)
    try:
        yield check
    finally:
        if alarm:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def peak_memory_bytes() -> int:
    """The most that this process has used so far; on Linux without what its parent had used when it was started."""
    with suppress(OSError):
        found = re.search(rb"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_bytes())
        if found:
            return int(found[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def memory_note(workers: int) -> str:
    """What there is and what one can do, for a run that ran out of memory."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    return f"{workers} at a time on {machine:.1f} GiB; fewer workers= need less memory"
