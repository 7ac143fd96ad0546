"""An object as the key of what is remembered of it, by which object it is and not by what it equals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Itself(Generic[T]):
    """To compare objects, or to hash them, may take as long as what is remembered. Holds the object, so that no other
    can take its id meanwhile."""

    one: T

    def __hash__(self) -> int:
        return id(self.one)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Itself) and other.one is self.one
