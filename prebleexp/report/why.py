"""Why requests went where they did, as a table of a run's page and as a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from prebleexp.policies.decisions import Decision
from prebleexp.report.figures import Column, Table
from prebleexp.report.wording import number

MOST_ROWS = 500
"""of the table; the file has all"""


def table(decisions: Sequence[Decision]) -> Table | None:
    """Of the first decisions, a term a column; None without any."""
    if not decisions:
        return None
    terms = tuple(decisions[0].terms)
    columns = ("request", "at, s", "GPU", *(one.replace("_", " ") for one in terms), "in all", "next best", "its sum")
    return Table(tuple(Column(one, True) for one in columns), tuple(_rows(decisions[:MOST_ROWS])))


def _rows(decisions: Iterable[Decision]) -> Iterable[tuple[str, ...]]:
    for one in decisions:
        sums = [number(sum(terms.values()), 3) for terms in (one.terms, one.next_terms)]
        other = ("", "") if one.next_gpu is None else (str(one.next_gpu), sums[1])
        terms = (number(value, 3) for value in one.terms.values())
        yield f"{one.request}", number(one.at_s, 4), f"{one.gpu}", *terms, sums[0], *other


def records(decisions: Iterable[Decision]) -> list[dict[str, Any]]:
    """Decisions as rows of a JSON file."""
    return [
        {
            "request": one.request,
            "at_s": one.at_s,
            "gpu": one.gpu,
            "terms": one.terms,
            "next_gpu": one.next_gpu,
            "next_terms": one.next_terms,
            "why": one.sentence,
        }
        for one in decisions
    ]
