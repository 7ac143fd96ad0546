"""`python -m prebleexp calibrate overhead`: fit what a routing decision costs, and print it as conf/overhead/*.yaml.

A decision's seconds are taken to be a sum over what policies count of their work. Two sets of observations are fitted:
those read off the paper's figure 1C (Python code on the authors' machine), and this package's compiled policies on this
machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from prebleexp.bench.case import SERVED
from prebleexp.bench.scaling import decision_s
from prebleexp.commands.arguments import Command, Commands, Given
from prebleexp.commands.hardware_calibrate import CALIBRATE
from prebleexp.errors import significant
from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.launch import configure, tables
from prebleexp.overhead.model import Overhead
from prebleexp.sim.types import Floats

TERMS = ("decision_s", "node_s", "segment_s", "entry_s", "gpu_s")
PUBLISHED = (
    # policy, GPUs, requests/s, seconds: spec e2, published numbers of figure 1C
    ("e2_released", 4, 8, 6e-4),
    ("e2_released", 4, 64, 12e-4),
    ("e2_released", 4, 128, 11e-4),
    ("e2_released", 8, 8, 8e-4),
    ("e2_released", 8, 128, 20e-4),
    ("e2_released", 32, 8, 8e-4),
    ("e2_released", 32, 128, 25e-4),
    ("lor", 4, 8, 2e-4),
    ("lor", 4, 128, 3e-4),
    ("lor", 8, 8, 2e-4),
    ("lor", 8, 128, 3e-4),
    ("lor", 32, 8, 2e-4),
    ("lor", 32, 128, 5e-4),
)
AS_PUBLISHED = ("engine=released", "horizon=stop", "output_length=constant", "output_length.lengths=[1]")
OWN = [(policy, gpus, 16 * gpus) for policy in ("lor_tokens", "e2_released", "e2") for gpus in (4, 8, 16, 32)]


@dataclass(frozen=True)
class Fit:
    """Seconds per unit in the order of `TERMS`, and what they make of each observation."""

    coefficients: Floats
    fitted: Floats


def _overhead(given: Given) -> int:
    """Print both fits, each with its residuals."""
    published = [(configured(policy, gpus, rps, AS_PUBLISHED), seconds) for policy, gpus, rps, seconds in PUBLISHED]
    report("fitted to figure 1C of Arango et al.", published)
    own = [configured(policy, gpus, rps, ()) for policy, gpus, rps in OWN]
    report(
        "this package's compiled policies on this machine", [(cell, decision_s(cell, runs.draw(cell))) for cell in own]
    )
    return 0


def configured(policy: str, gpus: int, rps: float, rest: Sequence[str]) -> Cell:
    return configure.cells([*SERVED, f"policy={policy}", f"gpus={gpus}", f"rps={rps}", *rest])[0]


def report(source: str, observations: Sequence[tuple[Cell, float]]) -> None:
    seconds = np.array([one for _, one in observations])
    found = fit(np.array([mean_work(cell) for cell, _ in observations]), seconds)
    heads = ["policy", "gpus", "rps", "observed s", "fitted s", "error"]
    lines = [
        [
            cell.names["policy"],
            str(cell.gpus),
            f"{cell.rps:g}",
            significant(seen),
            significant(made),
            f"{made / seen - 1:+.0%}",
        ]
        for (cell, seen), made in zip(observations, found.fitted, strict=True)
    ]
    print(f"# {source}")
    print("\n".join(f"{term}: {value:.4g}" for term, value in zip(TERMS, found.coefficients, strict=True)))
    tables.show(heads, lines)


def mean_work(cell: Cell) -> list[float]:
    """What a decision counts on average, in the order of `TERMS`: from runs in which one unit costs a second."""
    work = []
    workload = runs.draw(cell)
    for term in TERMS:
        unit: dict[str, Any] = {"mode": "recorded", term: 1.0}
        counted = replace(cell, overhead=Overhead(**unit))
        work.append(float(np.nanmean(runs.simulate_cell(counted, workload).overhead_s)))
    return work


def fit(work: Floats, seconds: Floats) -> Fit:
    """Coefficients >= 0 of least relative squared error. `work` is (observations, terms).

    The best non-negative solution leaves out some terms and is the free optimum of the rest: all 31 choices are tried.
    """
    rows = work / seconds[:, None]
    best, least = np.zeros(work.shape[1]), np.inf
    for size in range(1, work.shape[1] + 1):
        for chosen in itertools.combinations(range(work.shape[1]), size):
            found = np.linalg.lstsq(rows[:, chosen], np.ones(len(rows)), rcond=None)[0]
            error = float(((rows[:, chosen] @ found - 1) ** 2).sum())
            if (found >= 0).all() and error < least:
                best = np.zeros(work.shape[1])
                best[list(chosen)], least = found, error
    return Fit(best, work @ best)


COMMANDS: Commands = {
    "overhead": Command(
        "fit what a routing decision costs, to the paper's figure 1C and to this machine, and print it as "
        "conf/overhead/ has it",
        _overhead,
        "python -m prebleexp calibrate overhead",
    ),
    "hardware": CALIBRATE,
}
