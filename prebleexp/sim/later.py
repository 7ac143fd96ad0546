"""What numba makes, made when it is first needed: a run whose machine code is on disk needs nothing of it, and numba
takes longer to import than a short run takes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any


def _is_interpreted() -> bool:
    if "numba" in sys.modules:
        return bool(sys.modules["numba"].config.DISABLE_JIT)
    return os.environ.get("NUMBA_DISABLE_JIT", "0").strip() not in ("", "0")


INTERPRETED = _is_interpreted()
"""whether all of it runs as plain Python (NUMBA_DISABLE_JIT)"""


def is_numbas(one: object, module: str, name: str) -> bool:
    """Whether it is of one of numba's classes, which nothing is if numba is not there."""
    there = sys.modules.get(f"numba.core.{module}")
    return there is not None and isinstance(one, getattr(there, name))


class Later:
    """Stands for a compiled function or an intrinsic, for Python and for numba, which makes it then."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._made = make, None

    @property
    def made(self) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made

    @property
    def _numba_type_(self) -> Any:
        from numba.core.registry import cpu_target

        return cpu_target.typing_context.resolve_value_type(self.made)

    def __call__(self, *arguments: Any) -> Any:
        return self.made(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.made, name)
