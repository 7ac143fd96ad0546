"""From Python's names and values to overrides as on the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from hydra.core.override_parser.types import Quote, QuotedString

from prebleexp.errors import InvalidInput

PLAIN = re.compile(r"[\w./+@*?|%-]+", re.ASCII)
"""texts that need no quotes"""


def one(key: str, value: Any) -> str:
    """The override of a key with one value. Text that looks like a number, or like true or null, is one, as on the
    command line. Raises InvalidInput for what has no text."""
    return f"{key}={_text(key, value)}"


def each(key: str, values: Any) -> str:
    """The same, but a list, tuple, range, array or column is all the values of an axis."""
    values = _own(values)
    if not isinstance(values, list | tuple | range):
        return one(key, values)
    if not values:
        raise InvalidInput(f"{key}=[]: there is nothing to sweep over")
    return f"{key}={','.join(_text(key, value) for value in values)}"


def lines(given: str | Sequence[str] | Mapping[str, Any]) -> list[str]:
    """Overrides as they are written, or of keys with all their values."""
    if isinstance(given, Mapping):
        return [each(str(key), values) for key, values in given.items()]
    lines = [given] if isinstance(given, str) else list(given)
    for line in lines:
        if not isinstance(line, str):
            raise InvalidInput(f"{line!r} is not valid; overrides are texts like key=value, values have names")
    return lines


def _text(key: str, value: Any) -> str:
    value = _own(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str | PurePath):
        return _quoted(str(value))
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{_quoted(str(name))}:{_text(key, of)}' for name, of in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(_text(key, of) for of in value)}]"
    raise InvalidInput(f"{key}={value!r} is not valid; it must be a number, text, true, false, null, or a list of them")


def _own(value: Any) -> Any:
    """Numbers and arrays of numpy and pandas as Python's."""
    return value.tolist() if hasattr(value, "tolist") else value


def _quoted(text: str) -> str:
    return text if PLAIN.fullmatch(text) else QuotedString(text, Quote.single).with_quotes()
