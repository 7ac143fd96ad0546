"""The page of a comparison: where B is better, worse or undecided, with its differences drawn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from prebleexp.comparison import HIGHER_IS_BETTER, Comparison, Verdict
from prebleexp.report import frame
from prebleexp.report.figures import Column, Table
from prebleexp.report.meanings import meanings
from prebleexp.report.wording import number, percent_difference, plain, short


def render(found: Comparison, a: str, b: str, command: str, fail_if: str, broken: Sequence[str]) -> str:
    """The page's HTML; `broken` says which cells are beyond the limit `fail_if`."""
    names = list(dict.fromkeys(name for cell in found.cells for name in cell.place))
    columns = [Column(name, all(not isinstance(cell.place.get(name), str) for cell in found.cells)) for name in names]
    columns += [Column("A", True), Column("B", True), Column("difference", True), Column("seeds", True)]
    rows = [
        (
            *(short(cell.place.get(name)) for name in names),
            number(cell.a, 4),
            number(cell.b, 4),
            percent_difference(cell.difference, cell.half_width),
            str(cell.seeds),
            cell.verdict.value,
        )
        for cell in found.cells
    ]
    return frame.render(
        "compare.html.j2",
        scripts=("tables.js", "compare.js"),
        charts=True,
        a=a,
        b=b,
        metric=found.metric,
        meaning=meanings()[found.metric],
        better="higher" if found.metric in HIGHER_IS_BETTER else "lower",
        counts=[(verdict.value, found.count(verdict)) for verdict in Verdict],
        differs=[(name, plain(of_a), plain(of_b)) for name, (of_a, of_b) in found.differs.items()],
        common={name: plain(value) for name, value in found.common.items() if value is not None},
        left_out=found.left_out,
        table=Table((*columns, Column("B is", False)), tuple(rows)),
        command=command,
        fail_if=fail_if,
        broken=broken,
        data=json.dumps([_drawn(cell.place, cell) for cell in found.cells]).replace("<", "\\u003c"),
    )


def _drawn(place: Mapping[str, Any], cell: Any) -> dict[str, Any]:
    difference, half = cell.difference, cell.half_width or 0.0
    known = difference is not None
    return {
        "where": " ".join(f"{name}={short(value)}" for name, value in place.items()) or "all",
        "difference": difference,
        "low": difference - half if known else None,
        "high": difference + half if known else None,
        "verdict": cell.verdict.value,
    }
