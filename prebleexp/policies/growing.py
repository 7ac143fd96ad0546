"""Logs of decisions: more than there are requests, where some are routed again since their GPU was lost."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.sim.arrays import copy_written, records


def longer(log: Any) -> Any:
    """The same rows, with room for as many more, and one."""
    size = 2 * len(log) + 1
    more = records(size, log.dtype) if log.dtype.names else np.zeros(size, log.dtype)
    copy_written(more, log)
    return more
