"""Results as flat rows, and means over replications."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prebleexp.experiment.cache import Entry, FailedRun
from prebleexp.experiment.cell import NUMBERS, SPECS
from prebleexp.experiment.provenance import FIELDS
from prebleexp.experiment.results import Result
from prebleexp.intervals import mean_interval
from prebleexp.launch.from_cache import Options

Row = dict[str, Any]
Mean = tuple[float, float | None] | None
"""mean and half-width of its 95 % interval (None for a single value); None if there was nothing to average"""


def row(result: Result) -> Row:
    """A run that succeeded: its key, its configuration, its metrics, and how long it took."""
    assert result.metrics is not None
    return {"key": result.key} | result.cell.columns() | result.metrics | {"seconds": result.seconds}


def stored(row: Row, result: Result) -> Row:
    """A successful run as the database has it: with its provenance, and without settings that do not matter to it."""
    left_out = result.cell.left_out
    kept = {name: value for name, value in row.items() if name.split(".")[0] not in left_out} if left_out else row
    return kept | dict.fromkeys(left_out) | {name: result.provenance.get(name) for name in FIELDS}


def stored_entry(entry: Entry, options: Options) -> Row:
    """A successful run of the cache, as the database has it."""
    about = {name: entry.provenance.get(name) for name in ("seconds", *FIELDS)}
    columns = dict.fromkeys(("gpus", "replicas", *NUMBERS, *SPECS)) | options.columns(entry.content["cell"])
    return {"key": entry.key} | columns | dict(entry.metrics) | about


def stored_failure(result: Result) -> Row:
    """A run that failed, as the database has it."""
    assert result.error is not None
    return _failed(result.key, result.cell.columns(), vars(result.error), result.provenance)


def stored_failed(run: FailedRun, options: Options) -> Row:
    """A failed run of the cache, as the database has it."""
    return _failed(run.key, options.columns(run.content["cell"]), run.error, run.provenance)


def _failed(key: str, columns: Mapping[str, Any], error: Mapping[str, str], provenance: Mapping[str, Any]) -> Row:
    about = {name: columns.get(name) for name in ("gpus", "rps", "policy", "workload", "seed")}
    why = {"error_type": error["type"], "error_message": error["message"], "traceback": error["traceback"]}
    return {"key": key} | about | why | {"finished": provenance.get("finished")}


def failure(result: Result) -> Row:
    """A run that failed: its key, its configuration and the error."""
    assert result.error is not None
    return {"key": result.key} | result.cell.columns() | {"error": f"{result.error.type}: {result.error.message}"}


def means(rows: Sequence[Mapping[str, Any]], *, of_one: bool = False) -> dict[str, Mean]:
    """Of each metric the mean over the rows that have it, and its interval (see `mean_interval`)."""
    found: dict[str, Mean] = {}
    if len(rows) == 1:  # as in most sweeps
        return {metric: None if value is None else (float(value), None) for metric, value in rows[0].items()}
    for metric in rows[0] if rows else ():
        values = [float(row[metric]) for row in rows if row[metric] is not None]
        found[metric] = mean_interval(values, of_one=of_one) if values else None
    return found
