"""The page of a comparison: where B is better, worse or undecided, with its differences drawn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from prebleexp.comparison import Cell, Verdict
from prebleexp.losses import as_text
from prebleexp.metrics import DECLARED
from prebleexp.report import frame
from prebleexp.report.compared import Pair, sentences, table, value_of
from prebleexp.report.figures import Column, Table
from prebleexp.report.measure import of_metric
from prebleexp.report.wording import listed, number

ABOUT = ("hardware.model", "hardware.gpu", "engine", "workload", "gpus")


def title(pairs: Sequence[Pair]) -> str:
    """ "mine against lor and e2" """
    return f"{pairs[0].b} against {listed([one.a for one in pairs])}"


def render(
    pairs: Sequence[Pair], command: str, fail_if: str = "", broken: Sequence[str] = (), notes: Sequence[str] = ()
) -> str:
    """The page's HTML of one pair, or of several whose last side is the same; `broken` says which cells are beyond the
    limit `fail_if`, `notes` what a reader must know: which requests were not served, of which sweeps runs were
    pooled."""
    found, several = [one.found for one in pairs], len(pairs) > 1
    metric = DECLARED[found[0].metric]
    every = [side for one in found for cell in one.cells for side in (cell.a, cell.b)]
    measure = of_metric(metric.name).in_unit_of(every)
    unit = "" if measure.unit == "share" else f", {measure.unit}"
    heads, rows = table(
        pairs,
        (f"{{}}{unit}", f"{{}}{unit}"),
        lambda value: number(None if value is None else value * measure.scale, 4),
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
        about=_about(pairs),
        answers=sentences(pairs),
        verdict=heads[-1],
        metric=metric.name,
        axis=f"Difference of {_named(b, pairs[0].b)} from {'each other one' if several else _named(a, pairs[0].a)} in "
        f"{metric.words}, relative to {a}",
        meaning=metric.meaning,
        notes=[as_text([line]) for line in notes],
        differs=[
            (one.a if several else "", [(name, value_of(x), value_of(y)) for name, (x, y) in one.found.differs.items()])
            for one in pairs
        ],
        dashes=any(value is None for one in found for values in one.differs.values() for value in values),
        a="the other" if several else a,
        b=b,
        common={name: value_of(value) for name, value in found[0].common.items() if value is not None},
        left_out=sum(one.left_out for one in found),
        silent=[(name, sum(one.silent[i] for one in found)) for i, name in enumerate((a, b))],
        incomparable=sum(one.count(Verdict.INCOMPARABLE) for one in found),
        table=Table(columns, tuple(map(tuple, rows))),
        command=command,
        fail_if=fail_if,
        broken=broken,
        data=json.dumps([_drawn(one.a if several else "", cell) for one in pairs for cell in one.found.cells]).replace(
            "<", "\\u003c"
        ),
    )


def _named(short: str, name: str) -> str:
    return name if short == name else f"{short} ({name})"


def _about(pairs: Sequence[Pair]) -> str:
    """What all cells of all pairs have in common of the model, the GPUs, the engine and the workload."""
    common = [one.found.common for one in pairs]
    same = {name: {of.get(name) for of in common} for name in ABOUT}
    model, gpu, engine, workload, gpus = (
        _short(next(iter(values))) if len(values) == 1 else "" for values in same.values()
    )
    there = " ".join(filter(None, (gpus, gpu.upper() or (gpus and "GPUs"))))
    return ", ".join(filter(None, (" on ".join(filter(None, (model, there))), engine, workload)))


def _short(value: int | float | str | bool | None) -> str:
    """Of a GPU or a model, all of whose numbers are in the key, its name."""
    text = "" if value is None else value_of(value)
    return str(json.loads(text).get("name", "")) if text.startswith("{") else text


def _drawn(other: str, cell: Cell) -> dict[str, Any]:
    difference, half = cell.difference, cell.half_width or 0.0
    where = " ".join(f"{name}={value_of(value)}" for name, value in cell.place.items())
    return {
        "where": ", ".join(filter(None, (other, where))) or "all",
        "difference": difference,
        "low": None if difference is None else difference - half,
        "high": None if difference is None else difference + half,
        "verdict": cell.verdict.value,
    }
