"""Times as people write them: `500ms`, `2min`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from prebleexp.errors import InvalidInput

SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
WRITTEN = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zµ]+)\s*")
OF_KEYS = {"_s": 1.0, "_ms": 1e-3}
"""how a key ends that has a time, and the seconds of its unit"""


def in_seconds(values: Any, key: str = "") -> Any:
    """The same values, at any depth, with each time that has a unit as a number in the unit of its key, which is the
    end of the key's name. Raises InvalidInput, naming the key, for a unit that is none."""
    if isinstance(values, Mapping):
        return {name: in_seconds(value, _key(key, str(name))) for name, value in values.items()}
    unit = OF_KEYS.get(f"_{key.rpartition('_')[2]}") if "_" in key else None
    written = WRITTEN.fullmatch(values) if isinstance(values, str) and unit else None
    if written is None or unit is None:
        return values
    number, name = written.groups()
    if name not in SECONDS:
        raise InvalidInput(f"{key}={values} is not valid; units are {', '.join(SECONDS)}")
    return float(f"{float(number) * SECONDS[name] / unit:.15g}")


def _key(above: str, name: str) -> str:
    """A share of a limit, as p95 in {p95: 500ms}, is in the limit's unit."""
    return above if re.fullmatch(r"p\d.*", name) else name
