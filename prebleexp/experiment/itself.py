"""What is remembered of objects, by which objects they are and not by what they equal."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
KEPT = 4_096
"""calls that are remembered: the cells of a sweep have few specs between them"""


def once_of_itself(function: F) -> F:
    """Decorator: call it once with the same objects, which nobody changes. To compare two objects, or to hash them,
    may take as long as the call. Holds them, so that no others can take their ids meanwhile."""
    made: dict[tuple[int, ...], tuple[tuple[Any, ...], Any]] = {}

    @wraps(function)
    def remembered(*given: Any) -> Any:
        at = tuple(map(id, given))
        found = made.get(at)
        if found is None:
            if len(made) >= KEPT:
                made.clear()
            found = made[at] = given, function(*given)
        return found[1]

    return cast("F", remembered)
