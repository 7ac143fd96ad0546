"""The page of a comparison: where B is better, worse or undecided, with its differences drawn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from prebleexp.comparison import Comparison, Verdict
from prebleexp.losses import as_text
from prebleexp.metrics import DECLARED
from prebleexp.report import frame
from prebleexp.report.compared import axes, lines, lossy, sentence
from prebleexp.report.figures import Column, Table
from prebleexp.report.wording import number, plain, short


def render(
    found: Comparison, a: str, b: str, command: str, fail_if: str, broken: Sequence[str], notes: Sequence[str] = ()
) -> str:
    """The page's HTML; `broken` says which cells are beyond the limit `fail_if`, `notes` what a reader must know: which
    requests were not served, of which sweeps runs were pooled."""
    metric, shares = DECLARED[found.metric], lossy(found)
    names = axes(found)
    columns = [Column(name, all(not isinstance(cell.place.get(name), str) for cell in found.cells)) for name in names]
    columns += [Column("A", True), Column("B", True), Column("difference", True), Column("seeds", True)]
    columns += [Column(f"finished of {side}", True) for side in "AB" if shares]
    rows = map(tuple, lines(found, lambda value: number(value, 4), finished=shares))
    return frame.render(
        "compare.html.j2",
        scripts=("tables.js", "compare.js"),
        charts=True,
        a=a,
        b=b,
        answer=sentence(found, a, b),
        metric=found.metric,
        words=metric.words,
        meaning=metric.meaning,
        notes=[as_text([line]) for line in notes],
        differs=[(name, plain(of_a), plain(of_b)) for name, (of_a, of_b) in found.differs.items()],
        common={name: plain(value) for name, value in found.common.items() if value is not None},
        left_out=found.left_out,
        silent=[(name, count) for name, count in zip("AB", found.silent, strict=True) if count],
        incomparable=found.count(Verdict.INCOMPARABLE),
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
