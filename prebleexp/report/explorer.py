"""The table of a sweep's runs as compact columns, for the explorer in the page.

A column that is the same in all runs is said once; what was configured is a list of values and a number for each run;
metrics have five digits. All of it is compressed, since a page is opened from disk and sent by mail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from prebleexp.intervals import DRAWS_COSTS, t_quantile
from prebleexp.metrics import METRICS, NEITHER
from prebleexp.report import frame
from prebleexp.report.meanings import meanings
from prebleexp.report.measure import Measure, of_metric
from prebleexp.report.palette import Style, styles
from prebleexp.report.summary import Row, Value, layout
from prebleexp.report.wording import AXIS_LABELS, condition, plain

SCRIPTS = ("filters.js", "legend.js", "panels.js", "explorer.js")
MEASURES = (*METRICS, "seconds")
LABELS = ("part", "variant", "line")
KEY_LETTERS = 12
DIGITS = 5


def packed(
    rows: Sequence[Row], axes: Sequence[str], measure: str = "norm_latency_mean_s", parts: Sequence[str] = ()
) -> str:
    """The data as `frame.packed` has them.

    The explorer starts with `measure` over the sweep's own layout, of `parts` alone where there are any.
    """
    return frame.packed(columns(rows, axes, measure, parts))


def columns(rows: Sequence[Row], axes: Sequence[str], measure: str, parts: Sequence[str] = ()) -> dict[str, Any]:
    """What is packed: see templates/explorer.js, which reads it."""
    names = dict.fromkeys((*LABELS, *axes, "gpus", "rps", "policy", *(name for row in rows for name in row)))
    configured = [name for name in names if name not in MEASURES and name != "key"]
    values = {name: list(dict.fromkeys(row.get(name) for row in rows)) for name in configured}
    shown = [row for row in rows if not parts or row.get("part") in parts]
    where = layout(shown, ("gpus", "rps", *LABELS[1:]) if parts else axes)
    counts = {name: len({row.get(name) for row in shown}) for name in where.panels}
    panels = [name for name in where.panels if counts[name] > 1][:2]
    measured = [name for name in MEASURES if any(row.get(name) is not None for row in rows)]
    return {
        "keys": [str(row.get("key", ""))[:KEY_LETTERS] for row in rows],
        "dimensions": [_dimension(name, values[name], rows, shown) for name in configured if len(values[name]) > 1],
        "constants": {
            name: plain(values[name][0])
            for name in configured
            if len(values[name]) == 1 and values[name][0] is not None
        },
        "measures": [_measure(name, rows) for name in measured],
        "t": [round(_quantile(df, rows), 4) for df in range(1, max(2, _most_seeds(rows)))],
        "start": {
            "x": where.x,
            "y": measure if measure in measured else (measured or [""])[0],
            "colour": where.line,
            "column": (panels or [""])[0],
            "row": (*panels, "", "")[1],
            "parts": list(parts),
        },
    }


def _quantile(df: int, rows: Sequence[Row]) -> float:
    """By which the standard error of a mean is multiplied (see `mean_interval`)."""
    return t_quantile(df) * (math.sqrt(df + 2) if any(row.get(DRAWS_COSTS) for row in rows) else 1.0)


def _dimension(name: str, values: list[Value], rows: Sequence[Row], shown: Sequence[Row]) -> dict[str, Any]:
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if numeric:
        values = sorted(values, key=lambda value: float(value or 0))
    at = {value: i for i, value in enumerate(values)}
    # those of the first figure look as they do there, whatever else the sweep has
    looks = styles((plain(value) for value in values), [plain(row.get(name)) for row in shown])
    return {
        "name": name,
        "label": AXIS_LABELS.get(name, name),
        "numeric": numeric,
        "values": values if numeric else [plain(value) for value in values],
        "titles": [condition(name, value) for value in values],
        "looks": [_look(looks[plain(value)]) for value in values] if len(values) <= len(looks) <= 64 else [],
        "index": [at[row.get(name)] for row in rows],
    }


def _look(style: Style) -> dict[str, Any]:
    return {"colour": f"--{style.name}", "outline": style.outline, "dashed": style.dashed}


def _measure(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    """`label` and `axis` have the unit in which the values are shown: `scale` times the one that they have here."""
    meaning = meanings()[name]
    own = Measure(name, "time to compute", "s", meaning, NEITHER) if name == "seconds" else of_metric(name)
    values = [_short(row.get(name)) for row in rows]
    shown = own.in_unit_of([abs(float(value)) for value in values if value is not None])
    return {
        "name": name,
        "label": shown.with_unit,
        "axis": shown.label,
        "meaning": meaning,
        "scale": shown.scale,
        "values": values,
    }


def _most_seeds(rows: Sequence[Row]) -> int:
    return len({row.get("seed") for row in rows})


def _short(value: Value) -> Value:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
