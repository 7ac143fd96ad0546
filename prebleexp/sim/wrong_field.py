"""A field that does not exist, as `view.gpus[g].load`: what Python, numpy and numba say of it, in words that name those
that there are."""

from __future__ import annotations

import re
import traceback
from typing import Any

from prebleexp.errors import InvalidInput, unknown
from prebleexp.sim.later import is_numbas


def said_of(error: BaseException) -> InvalidInput | None:
    """The name that was asked for and the valid ones; None if that is not what went wrong."""
    if isinstance(error, AttributeError):
        of = getattr(error.obj, "dtype", None)
        fields = getattr(error.obj, "_fields", None) or getattr(of, "names", None)
        return unknown("field", str(error.name), fields) if fields else None
    if isinstance(error, KeyError):  # numba's, of a record
        for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
            record: Any = frame.f_locals.get("self")
            if is_numbas(record, "types", "Record"):
                return unknown("field", str(error.args[0]), record.fields)
    return None


def said_in(line: str) -> str:
    """Of what numba says of an array of records; any other line as it is."""
    found = re.search(r"Unknown attribute '(\w+)' of type (?:unaligned )?array\((?:unaligned )?Record\((.*)", line)
    return str(unknown("field", found[1], re.findall(r"(\w+)\[type=", found[2]))) if found else line
