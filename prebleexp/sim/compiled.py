"""How the simulator's functions are compiled.

Without the GIL, so that runs go on side by side in threads; kept on disk; and without numba's reference counts. A
function here is handed some thirty arrays, and two atomic operations for each, in every call, took more than half of a
run's time.
None of them allocates an array, so nothing is there to be counted: the arrays belong to Python, which outlives the
call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS: Any = {"nogil": True, "cache": True, "_nrt": False}


def compiled(function: F) -> F:
    """Decorator: compile for the types of the arguments when first called."""
    return njit(**OPTIONS)(function)
