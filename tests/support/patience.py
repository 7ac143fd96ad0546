"""Waiting for what another process does: the one clock of the tests, which ends what hangs and judges nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_S = 120


def until(found: Callable[[], T], otherwise: Callable[[], object] = lambda: "") -> T:
    """The first answer that is true. Raises AssertionError with what `otherwise` says if there never is one."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        answer = found()
        if answer:
            return answer
        time.sleep(0.02)
    raise AssertionError(f"never: {otherwise()}")
