"""The page of a comparison: where B is better, worse or undecided, with its differences drawn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from prebleexp.comparison import Cell, Value, Verdict
from prebleexp.losses import as_text
from prebleexp.metrics import DECLARED
from prebleexp.report import frame
from prebleexp.report.compared import Pair, sentences, table, value_of
from prebleexp.report.figures import Column, Table
from prebleexp.report.measure import of_metric
from prebleexp.report.wording import listed, number


class Chosen(NamedTuple):
    """What people chose, of what keys have."""

    options: Mapping[str, str] = {}
    """by the path of a class, the option's name"""
    by_default: Mapping[str, Value] = {}
    """settings that nobody chose, and on which one side does not depend"""

    def said(self, value: Value) -> str:
        """As people wrote it."""
        return self.options.get(value) or value_of(value) if isinstance(value, str) else value_of(value)


NOBODY = Chosen()
ABOUT = ("hardware.model", "hardware.gpu", "engine", "workload", "gpus")


def title(pairs: Sequence[Pair]) -> str:
    """ "mine against lor and e2" """
    return f"{pairs[0].b} against {listed([one.a for one in pairs])}"


def render(
    pairs: Sequence[Pair],
    command: str,
    fail_if: str = "",
    broken: Sequence[str] = (),
    notes: Sequence[str] = (),
    chosen: Chosen = NOBODY,
) -> str:
    """The page's HTML of one pair, or of several whose last side is the same; `broken` says which cells are beyond the
    limit `fail_if`, `notes` what a reader must know: which requests were not served, of which sweeps runs were
    pooled; `chosen` names classes as options, and what nobody chose, which is not among what differs."""
    found, several = [one.found for one in pairs], len(pairs) > 1
    differs = [{name: of for name, of in one.differs.items() if name not in chosen.by_default} for one in found]
    metric = DECLARED[found[0].metric]
    every = [side for one in found for cell in one.cells for side in (cell.a, cell.b)]
    measure = of_metric(metric.name).in_unit_of(every)
    unit = "" if measure.unit == "share" else f", {measure.unit}"
    heads, rows = table(
        pairs,
        (f"{{}}{unit}", f"{{}}{unit}"),
        lambda value: number(None if value is None else value * measure.scale, 4),
        chosen.said,
    )
    words = [heads[0]] if several else []
    names = {name for one in found for cell in one.cells for name in cell.place}
    words += [
        name for name in names if any(isinstance(cell.place.get(name), str) for one in found for cell in one.cells)
    ]
    columns = tuple(Column(head, head not in words and head != heads[-1]) for head in heads)
    a, b = ("it", pairs[0].b) if several else ("A", "B")
    return frame.render(
        "compare.html.j2",
        scripts=("tables.js", "compare.js"),
        charts=True,
        title=title(pairs),
        about=_about(pairs, chosen),
        answers=sentences(pairs),
        verdict=heads[-1],
        metric=metric.name,
        axis=f"Difference of {_named(b, pairs[0].b)} from {'each other one' if several else _named(a, pairs[0].a)} in "
        f"{metric.words}, relative to {a}",
        meaning=metric.meaning,
        notes=[as_text([line]) for line in notes],
        differs=[
            (one.a if several else "", [(name, chosen.said(x), chosen.said(y)) for name, (x, y) in of.items()])
            for one, of in zip(pairs, differs, strict=True)
        ],
        dashes=any(value is None for of in differs for values in of.values() for value in values),
        a="the other" if several else a,
        b=b,
        common={
            **{name: chosen.said(value) for name, value in found[0].common.items() if value is not None},
            **{name: f"{chosen.said(value)} by default" for name, value in chosen.by_default.items()},
        },
        left_out=sum(one.left_out for one in found),
        silent=[(name, sum(one.silent[i] for one in found)) for i, name in enumerate((a, b))],
        incomparable=sum(one.count(Verdict.INCOMPARABLE) for one in found),
        table=Table(columns, tuple(map(tuple, rows))),
        command=command,
        fail_if=fail_if,
        broken=broken,
        data=json.dumps(
            [_drawn(one.a if several else "", cell, chosen) for one in pairs for cell in one.found.cells]
        ).replace("<", "\\u003c"),
    )


def _named(short: str, name: str) -> str:
    return name if short == name else f"{short} ({name})"


def _about(pairs: Sequence[Pair], chosen: Chosen) -> str:
    """What all cells of all pairs have in common of the model, the GPUs, the engine and the workload."""
    common = [one.found.common for one in pairs]
    same = {name: {of.get(name) for of in common} for name in ABOUT}
    model, gpu, engine, workload, gpus = (
        _said(next(iter(values)), chosen) if len(values) == 1 else "" for values in same.values()
    )
    there = " ".join(filter(None, (gpus, gpu.upper() or (gpus and "GPUs"))))
    return ", ".join(filter(None, (" on ".join(filter(None, (model, there))), engine, workload)))


def _said(value: Value, chosen: Chosen) -> str:
    return "" if value is None else chosen.said(value)


def _drawn(other: str, cell: Cell, chosen: Chosen) -> dict[str, Any]:
    difference, half = cell.difference, cell.half_width or 0.0
    where = " ".join(f"{name}={chosen.said(value)}" for name, value in cell.place.items())
    return {
        "where": ", ".join(filter(None, (other, where))) or "all",
        "difference": difference,
        "low": None if difference is None else difference - half,
        "high": None if difference is None else difference + half,
        "verdict": cell.verdict.value,
    }
