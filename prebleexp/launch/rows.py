"""Results as flat rows, and means over replications."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prebleexp.experiment.provenance import FIELDS
from prebleexp.experiment.results import Result
from prebleexp.intervals import mean_interval

Row = dict[str, Any]
Mean = tuple[float, float | None] | None
"""mean and half-width of its 95 % interval (None for a single value); None if there was nothing to average"""


def row(result: Result) -> Row:
    """A run that succeeded: its key, its configuration, its metrics, and how long it took."""
    assert result.metrics is not None
    return {"key": result.key} | result.cell.columns() | result.metrics | {"seconds": result.seconds}


def stored(row: Row, result: Result) -> Row:
    """The same with how it came about, as the database has it."""
    return row | {name: result.provenance.get(name) for name in FIELDS}


def stored_failure(result: Result) -> Row:
    """A run that failed, as the database has it."""
    assert result.error is not None
    error = {
        "error_type": result.error.type,
        "error_message": result.error.message,
        "traceback": result.error.traceback,
    }
    columns = result.cell.columns()
    about = {name: columns[name] for name in ("gpus", "rps", "policy", "workload", "seed")}
    return {"key": result.key} | about | error | {"finished": result.provenance.get("finished")}


def failure(result: Result) -> Row:
    """A run that failed: its key, its configuration and the error."""
    assert result.error is not None
    return {"key": result.key} | result.cell.columns() | {"error": f"{result.error.type}: {result.error.message}"}


def means(rows: Sequence[Mapping[str, Any]]) -> dict[str, Mean]:
    """Of each metric the mean over the rows that have it."""
    found: dict[str, Mean] = {}
    for metric in rows[0] if rows else ():
        values = [float(row[metric]) for row in rows if row[metric] is not None]
        found[metric] = mean_interval(values) if values else None
    return found
