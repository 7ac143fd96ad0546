"""The `key=value` settings that `cache`, `compare` and `predict` were given."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from prebleexp.checks import not_valid, one_of
from prebleexp.errors import unknown

T = TypeVar("T")


class Given:
    """Each is taken by its name, and in the end none may be left. What is not valid raises InvalidInput."""

    def __init__(self, words: Iterable[str]) -> None:
        """`words` are like key=value."""
        self._left = dict(word.split("=", 1) for word in words)
        self.known: set[str] = set()
        """names that were asked for"""

    def text(self, name: str) -> str | None:
        """None if it is not given."""
        self.known.add(name)
        return self._left.pop(name, None)

    def path(self, name: str, default: str) -> Path:
        """`~` stands for the home folder. An empty one, as an unset variable leaves it, is not the default."""
        value = self.text(name)
        if value == "":
            raise not_valid(name, value, "a path")
        return Path(default if value is None else value).expanduser()

    def choice(self, name: str, valid: Sequence[str]) -> str:
        """One of `valid`, the first of which is the default."""
        value = self.text(name)
        if value is None:
            return valid[0]
        one_of(name, value, valid)
        return value

    def flag(self, name: str) -> bool:
        """False if it is not given."""
        return self.choice(name, ("false", "true")) == "true"

    def integer(self, name: str, least: float = -math.inf, most: float = math.inf) -> int | None:
        """None if it is not given."""
        valid = (
            "an integer" + (f" from {least}" if least > -math.inf else "") + (f" to {most}" if most < math.inf else "")
        )
        value = self._as(int, name, valid)
        if value is not None and not least <= value <= most:
            raise not_valid(name, value, valid)
        return value

    def number(self, name: str) -> float | None:
        """None if it is not given."""
        return self._as(float, name, "a number")

    def texts(self, names: Iterable[str]) -> dict[str, str]:
        """Those of `names` that are given."""
        return {name: value for name in names if (value := self.text(name)) is not None}

    def rest(self) -> dict[str, str]:
        """Whatever is left."""
        return self.texts(list(self._left))

    def end(self) -> None:
        """Nothing may be left now."""
        for name in self._left:
            raise unknown("setting", name, self.known)

    def _as(self, kind: Callable[[str], T], name: str, valid: str) -> T | None:
        value = self.text(name)
        try:
            return None if value is None else kind(value)
        except ValueError:
            raise not_valid(name, value, valid) from None
