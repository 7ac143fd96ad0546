"""Which field of a file is which: as it was set, as its format has it, or by the names that are usual."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from prebleexp.errors import InvalidInput, unknown
from prebleexp.workloads.rows import Rows

ROLES = (
    *("arrival", "input", "output", "session", "hashes", "delay", "status", "adapter", "prefix", "prefix_tokens"),
    *("end", "took"),
)
"""what workload.columns can name"""
ASIDE = re.compile(r"\s*[\[(](?:tokens?|#|UTC)[\])]\s*$", re.IGNORECASE)
"""what is said of a field behind its name, and is no other unit than is usual"""
MICRO = str.maketrans("µμ", "uu")
MOST_SHOWN = 20
"""names of fields in an error"""


class Columns(dict[str, str]):
    """Of some roles, the fields; it does not change."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self.items())))

    @classmethod
    def of(cls, given: Any) -> Columns:
        """Raises InvalidInput for what is not valid."""
        if given is None:
            return cls()
        if not isinstance(given, Mapping) or not all(isinstance(one, str) and one for one in given.values()):
            raise InvalidInput(
                f"workload.columns={given} is not valid; it must be names of fields, as {{arrival: ts, input: n_in}}, "
                f"of {', '.join(ROLES)}"
            )
        for role in given:
            if role not in ROLES:
                raise unknown("field of workload.columns:", str(role), ROLES)
        return cls({str(role): str(name) for role, name in given.items()})


@lru_cache(maxsize=4096)
def plain(name: str) -> str:
    """A field's name without what people write differently: `Request tokens`, `requestTokens` are request_tokens, and
    `Start in µs` is start_us."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", ASIDE.sub("", name)).lower().translate(MICRO)
    words = re.sub(r"_*\._*", ".", re.sub(r"[^a-z0-9.]+", "_", words)).strip("_.")
    return re.sub(r"_in_(?=[nmu]?s$)", "_", words)


def matching(rows: Rows, alias: str) -> list[str]:
    """The fields that are so called, within whatever object; those in the fewest first."""
    found = [name for name in rows.names if (short := plain(name)) == alias or short.endswith(f".{alias}")]
    return sorted(found, key=lambda name: name.count("."))


def found(rows: Rows, aliases: Sequence[str]) -> str | None:
    """The first of these that there is. Raises InvalidInput if several fields are so called, and differ."""
    for alias in aliases:
        names = matching(rows, alias)
        if not names:
            continue
        alike = [name for name in names if name.count(".") == names[0].count(".")]
        if len(alike) > 1:
            columns = [list(rows.optional(name)) for name in alike]
            if any(one != columns[0] for one in columns[1:]):
                raise InvalidInput(
                    f"{rows.path}: the fields {' and '.join(alike)} are both called {alias}, and differ; say which is "
                    "meant, with workload.columns={arrival: …, input: …, output: …}"
                )
        return alike[0]
    return None


def set_column(rows: Rows, columns: Columns, role: str) -> str | None:
    """The field that was set for a role. Raises InvalidInput if there is none of that name."""
    name = columns.get(role)
    if name is not None and name not in rows.names:
        raise InvalidInput(f"{rows.path}: workload.columns.{role}={name} is not valid; there are {_shown(rows)}")
    return name


def named(rows: Rows, columns: Columns, role: str, aliases: Sequence[str]) -> str:
    """The field that was set for a role, or is usual. Raises InvalidInput if there is none."""
    name = set_column(rows, columns, role) or found(rows, aliases)
    if name is None:
        raise InvalidInput(
            f"{rows.path}: there is no field {aliases[0]}, nor another for the {role}; there are {_shown(rows)}: "
            f"say which, with workload.columns={{{role}: …}}"
        )
    return name


def own(rows: Rows, columns: Columns, role: str, name: str) -> str:
    """The field that was set for a role, or the format's own. Raises InvalidInput if it is not there."""
    chosen = set_column(rows, columns, role) or name
    if (count := list(rows.names).count(chosen)) > 1:
        raise InvalidInput(f"{rows.path}: there are {count} columns {chosen}; it has {_shown(rows)}")
    if chosen not in rows:
        raise InvalidInput(
            f"{rows.path}: there is no column {chosen}; it has {_shown(rows)}: say which stands for it, with "
            f"workload.columns={{{role}: …}}, or take workload=request_log, which knows other names and reads hashes, "
            "too"
        )
    return chosen


def _shown(rows: Rows) -> str:
    names = list(rows.names)
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return f"{', '.join(names[:MOST_SHOWN])}{more}"
