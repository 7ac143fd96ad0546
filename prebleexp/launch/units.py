"""Times as people write them, `500ms`, `2min`, and shares that are a target, `95%`."""

from __future__ import annotations

import re
from typing import Any

from prebleexp.errors import InvalidInput
from prebleexp.experiment.itself import once_of_itself

SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
WRITTEN = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zµ]+)\s*")
PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?)\s*%\s*")
FIRST = " .0123456789"
"""letters that a time begins with"""
OF_KEYS = {"s": 1.0, "ms": 1e-3}
"""the last word of a key that has a time, and the seconds of its unit"""


def in_seconds(values: dict[str, Any], inside: str = "") -> dict[str, Any]:
    """The same values, at any depth, with each time that has a unit as a number in the unit of its key, which is the
    end of the key's name, or of the key that they are `inside`, as of ttft_s: {p95: 500ms}. What has none is given back
    itself. Raises InvalidInput, naming the key in full, for a unit that is none."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        kind = type(value)  # of each cell of a sweep all values are looked at
        made = value
        if kind is str and value[:1] in FIRST:
            made = _read(inside if _unit(inside) else f"{inside}.{key}" if inside else key, value)
        elif kind is dict:
            made = in_seconds(value, f"{inside}.{key}") if inside else _of_node(value, key)
        if made is not value:
            found[key] = made
    return values | found if found else values


@once_of_itself
def _of_node(values: dict[str, Any], key: str) -> dict[str, Any]:
    """`in_seconds` of a group's node: jobs share most of theirs."""
    return in_seconds(values, key)


def _unit(key: str) -> float | None:
    head, _, last = str(key).rpartition("_")  # a key may be a number
    return OF_KEYS.get(last) if head else None


def _read(key: str, value: str) -> Any:
    if key.endswith(".target") and (percent := PERCENT.fullmatch(value)):
        return float(f"{float(percent[1]) / 100:.15g}")
    unit = _unit(key)
    written = WRITTEN.fullmatch(value) if unit else None
    if written is None or unit is None:
        return value
    number, name = written.groups()
    if name not in SECONDS:
        raise InvalidInput(f"{key}={value} is not valid; units are {', '.join(SECONDS)}")
    return float(f"{float(number) * SECONDS[name] / unit:.15g}")
