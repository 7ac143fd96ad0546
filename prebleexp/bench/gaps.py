"""`prebleexp bench gaps`: what it costs to count the gaps between tokens, against a copy of this package that counts
none."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from prebleexp import sources
from prebleexp.bench.case import CASE
from prebleexp.bench.checkouts import OURS
from prebleexp.bench.cpu import least_s
from prebleexp.bench.engines import ENGINES
from prebleexp.bench.processes import python
from prebleexp.bench.table import LESS, Row, Table
from prebleexp.experiment import runs
from prebleexp.intervals import mean_interval
from prebleexp.launch import configure

LONG = ("duration_s=900",)
"""a run of some tenths of a second: of a shorter one a share of a percent is not to be measured"""
ROUNDS, TIMES = 10, 5
UNCOUNTED = '''

@compiled
def alike(one: Any, gap_s: float, count: int) -> None:
    """Nothing is counted."""


@compiled
def token(gaps: Counts, row: int, now: float) -> None:
    """Nothing is counted."""
'''
"""behind `prebleexp.sim.gaps` of the copy: these two are what engines call"""
MEASURED = "import sys; from prebleexp.bench import gaps; print(*gaps.served(sys.argv[1:]))"


def gaps(policies: Sequence[str] | None = None) -> list[Row]:
    """The usual stream by engine. This package and the copy take turns at being first, each time in a process of its
    own. The cost is the mean of the rounds', and `plus_minus` the half-width of its interval of 95 %."""
    with TemporaryDirectory() as made:
        folder = Path(made)
        copy = uncounted(folder)
        rows = []
        for policy, engine in product(policies or ("lor",), ENGINES):
            case = [*CASE, *LONG, f"policy={policy}", f"engine={engine}"]
            least = dict[Path, list[float]]({OURS: [], copy: []})
            for number in range(ROUNDS):
                for root in sorted(least, reverse=bool(number % 2)):
                    requests, seconds = _measured(root, case, folder)
                    least[root].append(seconds)
            row = {"policy": policy, "engine": engine, "requests": requests}
            row |= {"cpu_seconds": min(least[OURS]), "uncounted": min(least[copy])}
            cost, half = cost_percent(least[OURS], least[copy])
            rows.append(row | {"cost_percent": cost, "plus_minus": half})
    return rows


def cost_percent(counted_s: Sequence[float], uncounted_s: Sequence[float]) -> tuple[float, float | None]:
    """By how much the one is above the other, in the mean of as many rounds of both, and the half-width of its interval
    of 95 %."""
    return mean_interval([100 * (one / none - 1) for one, none in zip(counted_s, uncounted_s, strict=True)])


def uncounted(folder: Path) -> Path:
    """The root of a checkout as this one, in which no gap is counted."""
    root = folder / "uncounted"
    shutil.copytree(sources.PACKAGE, root / "prebleexp", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "conf").symlink_to(OURS / "conf")
    with (root / "prebleexp" / "sim" / "gaps.py").open("a", encoding="utf-8") as file:
        file.write(UNCOUNTED)
    return root


def served(overrides: Sequence[str]) -> tuple[int, float]:
    """Requests of a stream, and the least CPU seconds in which they are served, drawn and compiled beforehand."""
    (cell,) = configure.cells(overrides)
    workload = runs.draw(cell)
    runs.simulate_cell(cell, workload)
    return len(workload), least_s(lambda: runs.simulate_cell(cell, workload), TIMES)


def _measured(root: Path, case: Sequence[str], folder: Path) -> tuple[int, float]:
    requests, seconds = python(["-c", MEASURED, *case], folder, root, numba=folder / "numba").out.split()
    return int(requests), float(seconds)


TABLE = Table(gaps, {"cpu_seconds": LESS, "uncounted": LESS})
