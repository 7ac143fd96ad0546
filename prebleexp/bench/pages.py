"""A sweep's page, drawn anew and with all of its panels kept."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path

from prebleexp.bench.case import SERVED
from prebleexp.bench.cpu import least_s
from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.report import page
from prebleexp.report.drawings import Drawings
from prebleexp.report.figures import figure
from prebleexp.report.summary import Row

TIMES = 3
RATES = (2, 4, 8, 16, 32, 64, 128, 256)
AXES = ("gpus", "rps", "policy")
SWEEP = page.Sweep("measured", "Average normalised latency against request rate", "python -m prebleexp", "", AXES)


def drawn_s(folder: Path) -> float:
    """CPU seconds of a page of 4 panels, 3 lines and 960 runs."""
    _render(folder / "first")  # imports
    fresh = itertools.count()
    return least_s(lambda: _render(folder / f"{next(fresh)}"), TIMES)


def again_s(folder: Path) -> float:
    """Of the same page, nothing of which has changed."""
    _render(folder)
    return least_s(lambda: _render(folder), TIMES)


def _render(folder: Path) -> None:
    drawn = figure("latency_against_rate", rows(), AXES, drawings=Drawings(folder))
    page.render(page.Report(SWEEP, rows(), [drawn]))


@cache
def rows(rates: tuple[int, ...] = RATES, seeds: int = 10) -> list[Row]:
    """Rows of a sweep's runs, each of one second."""
    found: list[Row] = []
    for gpus, rps, policy in itertools.product((1, 2, 4, 8), rates, ("lor", "round_robin", "random")):
        of = (f"gpus={gpus}", f"rps={rps}", f"policy={policy}")
        for cell in configure.cells([*SERVED, *of, "duration_s=1", f"replications={seeds}"]):
            run = runs.run(cell)
            about = cell.columns() | {"key": f"{gpus}-{rps}-{policy}-{cell.seed}", "seconds": run.seconds}
            found.append(about | run.metrics)
    return found
