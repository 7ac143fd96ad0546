"""numpy's records with rows and fields that are found at once, for tests that compile nothing.

numpy itself looks for a field in Python, and only where it has found nothing else by that name: several times as long,
and more than half of what such a run takes. Processes in which whole runs are compared with compiled ones have numpy's
own (`tests.support.interpreted`).
"""

from __future__ import annotations

from typing import Any

from numpy import ndarray, recarray, record, void

_row, _field, _set = ndarray.__getitem__, void.__getitem__, void.__setitem__
_other_rows, _other = recarray.__getitem__, void.__getattribute__


def find_at_once() -> None:
    """From now on, in this process."""
    recarray.__getitem__ = _rows  # type: ignore[method-assign, assignment]
    record.__getattribute__ = _get  # type: ignore[method-assign, assignment]
    record.__setattr__ = _set  # type: ignore[method-assign, assignment]


def _rows(records: Any, index: Any) -> Any:
    found = _row(records, index)
    return found if type(found) is record else _other_rows(records, index)


def _get(one: Any, name: str) -> Any:
    try:
        found = _field(one, name)
    except (KeyError, ValueError, IndexError):
        return _other(one, name)
    return found.view((record, found.dtype)) if type(found) is void else found
