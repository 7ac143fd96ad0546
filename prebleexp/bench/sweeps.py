"""`prebleexp bench sweeps`: what a sweep costs besides its simulations, and what it costs from the cache."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from tempfile import TemporaryDirectory

from prebleexp.bench.processes import Done, prebleexp
from prebleexp.bench.table import LESS, Row, Table
from prebleexp.errors import PrebleexpError

TINY = ("-m", "gpus=1,2", "rps=range(1,26)", "policy=random,round_robin", "duration_s=1", "report=none", "output=csv")
JOBS = 100
STARTS = (0, 100, 200)


def sweeps(root: Path) -> list[Row]:
    """Milliseconds that a cell takes to compute, one at a time, besides its simulation and what is paid once; seconds
    by the clock and of CPU from the cache, of whole commands of a checkout."""
    with TemporaryDirectory() as made:
        folder = Path(made)
        _sweep(root, folder, 1000, 1)  # compiles
        tries = []
        for start in STARTS:  # the least disturbed
            few = _besides_s(root, folder, 2000 + start, 1)
            tries.append((_besides_s(root, folder, start, 10) - few) / (9 * JOBS))
        rows = [_row("computed, one at a time", 10 * JOBS, ms_a_cell=1000 * min(tries))]
        for seeds in (10, 100):
            _sweep(root, folder, 0, seeds)
            again = _sweep(root, folder, 0, seeds)
            if "all from the cache" not in again.err:
                raise PrebleexpError(f"in {root}: a sweep was not all from the cache")
            seconds = {"wall_seconds": again.wall_s, "cpu_seconds": again.cpu_s}
            rows.append(_row("from the cache", seeds * JOBS, **seconds))
    return rows


def _sweep(root: Path, folder: Path, start: int, seeds: int, *more: str) -> Done:
    return prebleexp(root, [*TINY, f"seed=range({start},{start + seeds})", *more], folder)


def _besides_s(root: Path, folder: Path, start: int, seeds: int) -> float:
    """Seconds that computing a sweep took besides its simulations."""
    done = _sweep(root, folder, start, seeds, "workers=1")
    simulated = sum(float(row["seconds"]) for row in csv.DictReader(io.StringIO(done.out)))
    return float(done.err.split()[-2]) - simulated


def _row(what: str, cells: int, **measured: float) -> Row:
    return {"what": what, "cells": cells} | dict.fromkeys(TABLE.better) | measured


TABLE = Table(sweeps, {"ms_a_cell": LESS, "wall_seconds": LESS, "cpu_seconds": LESS}, of_commands=True)
