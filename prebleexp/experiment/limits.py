"""Runs that take too long, or more memory than there is."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import TypeVar

from prebleexp.errors import PrebleexpError

GIB = 1 << 30
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""of glibc's malloc.h"""
RING_AGAIN_S = 0.1
NOT_INTERRUPTED = {"importlib", "_frozen_importlib", "_frozen_importlib_external", "numba", "llvmlite"}
"""packages whose functions leave something half done if an exception comes out of nowhere: a module that lacks what
its last lines define, a compiler that does not know its own types. Once they are through is soon enough."""
T = TypeVar("T")


class TimeLimitExceeded(PrebleexpError):
    """A run took longer than it may."""


class Stopped(BaseException):
    """The sweep was ended while a run went on in a thread. No failure of the run."""


def limited(run: Callable[[Callable[[], None]], T], seconds: float | None, stop: threading.Event | None = None) -> T:
    """What `run` returns. It is given what it is to call now and then: that raises TimeLimitExceeded once the time is
    over, and Stopped when `stop` is set.

    In a main thread a signal interrupts plain Python that never calls. Compiled code that never returns is beyond
    reach, and a module that never ends while it is loaded.
    """
    end = time.monotonic() + seconds if seconds is not None else None

    def check() -> None:
        if stop is not None and stop.is_set():
            raise Stopped
        if end is not None and time.monotonic() > end:
            raise TimeLimitExceeded(f"it took longer than time_limit_s={seconds:g}")

    def body() -> T:
        return run(check)

    def ring(signum: int, frame: FrameType | None) -> None:
        if _may_be_interrupted(frame, body.__code__):
            check()

    if seconds is None or threading.current_thread() is not threading.main_thread():
        return body()
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds + 0.01, RING_AGAIN_S)
    try:
        return body()
    finally:  # no ring comes between: it interrupts nothing but the body
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _may_be_interrupted(frame: FrameType | None, body: CodeType) -> bool:
    """Whether a frame is in the body, and nothing on the way to it would be left half done."""
    while frame is not None and frame.f_code is not body:
        if frame.f_globals.get("__name__", "").partition(".")[0] in NOT_INTERRUPTED:
            return False
        frame = frame.f_back
    return frame is not None


@cache
def return_freed_memory() -> None:
    """Let what a process frees go back to the system: glibc keeps what it had for large arrays, and a run of many
    requests then takes a fifth more than it uses."""
    with suppress(OSError, AttributeError):  # another C library
        allocator = ctypes.CDLL(None)
        allocator.mallopt(M_MMAP_THRESHOLD, 2**20)
        allocator.mallopt(M_TRIM_THRESHOLD, 2**24)  # or small ones would be returned, and asked for again, all the time


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
