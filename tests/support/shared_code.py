"""Plugs that are compiled once for several classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T", bound=type)


def shares_code(other: type) -> Callable[[T], T]:
    """Decorator of a class with the functions and the numbers of another: it is called as that one is, by which machine
    code is kept, and nothing is compiled for it that is there for the other."""

    def named(kind: T) -> T:
        kind.__module__, kind.__name__, kind.__qualname__ = other.__module__, other.__name__, other.__qualname__
        return kind

    return named
