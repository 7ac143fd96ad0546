"""Two checkouts side by side: measured in turns, so that what slows the machine down for a while slows down both."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

from prebleexp.bench.table import Row, Table
from prebleexp.errors import PrebleexpError

ROUNDS = 3
RULE = (
    "ratio is here / there, the median of the rounds, with the least and the greatest: below 1 here is better where "
    "less is better, above 1 where more is"
)
Key = tuple[Any, ...]
Pair = tuple[list[Row], list[Row]]
"""rows here and there, measured one after the other"""


def measured(table: Table, here: Callable[[], list[Row]], there: Callable[[], list[Row]], rounds: int) -> list[Row]:
    """Rows of ratios: both are measured by turns, so many times. Says on standard error how to read them, and which
    rows are left out. Raises PrebleexpError if no row is in both."""
    pairs: list[Pair] = []
    for number in range(1, rounds + 1):
        _say(f"measuring here, {number} of {rounds}")
        ours = here()
        _say(f"measuring there, {number} of {rounds}")
        pairs.append((ours, there()))
    rows, left_out = ratios(table, pairs)
    for one in left_out:
        _say(one)
    if not rows:
        raise PrebleexpError("there is nothing to compare: no row is in both")
    _say(RULE)
    return rows


def ratios(table: Table, pairs: Sequence[Pair]) -> tuple[list[Row], list[str]]:
    """A row for each measured column of each row that both have, in the order of those here; and in words what is left
    out, and why.

    Rows are matched by the columns that all of them have and that are not measured."""
    here = [_filled(table, row) for ours, _ in pairs for row in ours]
    there = [_filled(table, row) for _, theirs in pairs for row in theirs]
    rows = [*here, *there]
    names = dict.fromkeys(name for row in rows for name in row if name not in table.better)
    shared = [name for name in names if all(name in row for row in rows)]
    by_key = _by_key(here, shared), _by_key(there, shared)
    found: list[Row] = []
    left_out = []
    for key in dict.fromkeys((*by_key[0], *by_key[1])):
        ours, theirs = (side.get(key, []) for side in by_key)
        of = " ".join(f"{name}={value}" for name, value in zip(shared, key, strict=True))
        if max(len(ours), len(theirs)) > len(pairs):
            left_out.append(f"left out, since there is more than one: {of}")
        elif len(ours) != len(theirs):
            left_out.append(f"only {'here' if len(ours) > len(theirs) else 'there'}: {of}")
        else:
            about = {name: value for name, value in ours[0].items() if name not in table.better}
            found += [about | one for one in _compared(table, ours, theirs)]
    return found, left_out


def _compared(table: Table, ours: Sequence[Row], theirs: Sequence[Row]) -> Iterable[Row]:
    """Of one row, in all rounds."""
    for column, better in table.better.items():
        here, there = ([row[column] for row in side if row.get(column) is not None] for side in (ours, theirs))
        if not len(here) == len(there) == len(ours):
            continue
        found = [ratio(*pair) for pair in zip(here, there, strict=True)]
        whole = [one for one in found if one is not None]
        known = len(whole) == len(found)
        yield {
            "measured": column,
            "here": median(here),
            "there": median(there),
            "ratio": median(whole) if known else None,
            "least": min(whole) if known else None,
            "greatest": max(whole) if known else None,
            "better": better,
        }


def ratio(here: float, there: float) -> float | None:
    """Nothing against nothing is 1; something against nothing has none."""
    if there:
        return here / there
    return None if here else 1.0


def _filled(table: Table, row: Row) -> Row:
    return {name: value for name, value in table.before.items() if name not in row} | row


def _by_key(rows: Sequence[Row], names: Sequence[str]) -> dict[Key, list[Row]]:
    found: dict[Key, list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def _say(text: str) -> None:
    print(f"prebleexp: {text}", file=sys.stderr, flush=True)
