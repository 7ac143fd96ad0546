"""Loops of the package, which Python enters: compiled for one kind of world, and called by their address."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

from prebleexp.sim import objects
from prebleexp.sim.handles import Block, Layout
from prebleexp.sim.later import INTERPRETED
from prebleexp.sim.objects import Wanted
from prebleexp.sim.plug import INT

F = TypeVar("F", bound=Callable[..., Any])

_KIND = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_void_p), ctypes.c_int64
)
"""numba's: a status, where the result goes, where what went wrong goes, and the argument. It runs without the GIL."""


def compiled_for(example: Block) -> Callable[[F], F]:
    """Decorator: compile one of the package's, of a block like this to an integer, when it is first called."""
    return lambda function: function if INTERPRETED else _Entry(function, example.layout)  # type: ignore[return-value]


class _Entry:
    def __init__(self, function: Any, layout: Layout) -> None:
        self._wanted = Wanted(function, function.__name__, None, INT, (layout,))
        self._layout = layout
        self._called: Callable[..., int] | None = None

    def __call__(self, block: Block) -> int:
        if block.layout is not self._layout:
            raise TypeError(f"{self._wanted.name} is not compiled for such a block")
        if self._called is None:
            self._called = _KIND(*objects.addresses((self._wanted,)))
        result, trouble = ctypes.c_int64(), ctypes.c_void_p()
        status = self._called(result, trouble, block.address)
        if status != 0:
            from prebleexp.sim.raised import raised

            raise raised(status, trouble.value)
        return result.value
