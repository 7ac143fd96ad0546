"""Views of the database, brought up to the columns that its tables have."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from prebleexp import results_view, sources, stages_view
from prebleexp.experiment.cell import CHOSEN
from prebleexp.metrics import METRICS

Execute = Callable[..., Any]
"""a statement, and its parameters"""
CONFIGURATION = ("gpus", "replicas", "rps", *CHOSEN, "duration_s", "horizon", "reports_ms")
"""that a row of `results` begins with"""


def bring_up(execute: Execute, runs: Mapping[str, str], placed: Collection[str], requests: Collection[str]) -> None:
    """Columns of runs (with their types), experiment_runs and requests, as they are now."""
    configuration = [name for name in CONFIGURATION if name in runs]
    configuration += [name for name in runs if name.split(".")[0] in CHOSEN and "." in name]
    metrics = [name for name in METRICS if name in runs]
    if placed and configuration and metrics:
        code = sources.digest(results_view.WRITTEN_BY)  # which is quicker than to write it
        digest = hashlib.sha256(repr((code, configuration, metrics, runs, placed)).encode()).hexdigest()
        _define(execute, "results", digest, lambda: results_view.definition(placed, configuration, metrics))
    if "stage" in requests:
        _define(execute, "stages", sources.digest(stages_view.WRITTEN_BY), lambda: stages_view.DEFINITION)


def _define(execute: Execute, view: str, digest: str, written: Callable[[], str]) -> None:
    """Unless it is what it would be. The digest is its comment."""
    made = execute("SELECT comment FROM duckdb_views() WHERE view_name = ?", [view]).fetchone()
    if made != (digest,):
        execute(written())
        execute(f"COMMENT ON VIEW {view} IS '{digest}'")
