"""Rows of a log that are asked for: those whose fields have these values, as one model of several behind a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from prebleexp.errors import InvalidInput, unknown
from prebleexp.workloads.columns import matching, plain
from prebleexp.workloads.rows import Rows


class Only(dict[str, tuple[str, ...]]):
    """Of some fields, the values that rows may have, as text; it does not change."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self.items())))

    @classmethod
    def of(cls, given: Any) -> Only:
        """Raises InvalidInput for what is not valid."""
        if given is None:
            return cls()
        valid = isinstance(given, Mapping) and all(isinstance(name, str) and name for name in given)
        found = {name: one if isinstance(one, list | tuple) else [one] for name, one in given.items()} if valid else {}
        if not valid or not all(isinstance(value, str | int | float) for of in found.values() for value in of):
            raise InvalidInput(
                f"workload.only={given} is not valid; it must be fields and values, as {{model: llama-3.1-70b}}, or "
                "{model: [a, b]} for either"
            )
        return cls({name: tuple(map(str, of)) for name, of in found.items()})


def taken(rows: Rows, only: Only) -> tuple[Rows, tuple[str, ...]]:
    """Rows that have these values, and what is said of the others. Raises InvalidInput for a field that is not there,
    and for values that no row has."""
    said: tuple[str, ...] = ()
    for asked, values in only.items():
        names = [asked] if asked in rows.names else matching(rows, plain(asked))
        if not names:
            raise unknown("field of workload.only:", asked, rows.names)
        has = [str(value) for value in rows.optional(names[0])]
        keeps = np.array([value in values for value in has], np.bool_)
        for value in values:
            if value not in has:
                raise unknown(f"{names[0]} in workload.only:", value, {*has})
        said += rows.left_out(~keeps, f"of which {names[0]} is not {' or '.join(values)}")
        rows = rows.taken(np.flatnonzero(keeps))
    return rows, said
