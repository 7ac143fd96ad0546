"""What settings may be: the same words wherever one is not valid."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import TypeGuard, cast

from prebleexp.errors import InvalidInput


def require(valid: bool, name: str, value: object, what: str) -> None:
    """Raises InvalidInput, which names the setting, its value and what is valid, unless it is."""
    if not valid:
        raise not_valid(name, value, what)


def not_valid(name: str, value: object, what: str) -> InvalidInput:
    """The error to raise for a value that is not valid."""
    return InvalidInput(f"{name}={value} is not valid; it must be {what}")


def is_integer(value: object, least: float = -math.inf, most: float = math.inf) -> TypeGuard[int]:
    """Whether it is one, true and false are none, and within bounds."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a finite one, and no more than floats hold; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def positive(name: str, value: object, what: str = "a number > 0") -> float:
    """The value, which must be a number above 0."""
    require(is_number(value) and value > 0, name, value, what)
    return cast("float", value)


def integer(name: str, value: object, least: int, most: int) -> int:
    """The value, which must be one of these."""
    require(is_integer(value, least, most), name, value, f"an integer from {least} to {most}")
    return cast("int", value)


def one_of(name: str, value: object, valid: Sequence[str]) -> None:
    """It must be one of these texts."""
    require(value in valid, name, value, valid[0] if len(valid) == 1 else f"one of {', '.join(valid)}")


def flag(name: str, value: object) -> bool:
    """The value, which must be true or false."""
    require(isinstance(value, bool), name, value, "true or false")
    return cast("bool", value)
