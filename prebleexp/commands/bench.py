"""`python -m prebleexp bench`: how fast the simulator is, and what a decision costs; on one core, after warm-up."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.launch import configure, tables
from prebleexp.sim.types import Workload

CASE = ("gpus=8", "rps=128", "horizon=drain")
POLICIES = ("random", "round_robin", "lor", "lor_tokens", "least_work", "e2_released", "e2")
REPEATS = 9

SCALED = ("e2_released", "e2")
GPUS = (8, 16, 32, 64, 128, 256)
"""each with 8 requests a second for 15 s"""
SECONDS = (15, 60, 240, 960)
"""8 GPUs, 64 requests a second"""


def run(arguments: Sequence[str]) -> int:
    """Print a line a policy, or with `scaling` one for each size of the cluster and each length of the run.

    `policy=NAME[,NAME…]`: these, one's own too; `output=json` prints a list of rows. Raises InvalidInput for other
    arguments and policies that do not exist.
    """
    output, scaled, policies = "table", False, None
    for argument in arguments:
        if argument in ("output=table", "output=json"):
            output = argument.removeprefix("output=")
        elif argument == "scaling":
            scaled = True
        elif argument.removeprefix("policy=") not in (argument, ""):
            policies = argument.removeprefix("policy=").split(",")
        else:
            raise InvalidInput(
                f"bench does not know {argument!r}; valid: scaling, policy=NAME,…, output=table, output=json"
            )
    print("prebleexp: measuring, on one core; a minute or two", file=sys.stderr, flush=True)
    rows = scaling(policies or SCALED) if scaled else throughput(policies or POLICIES)
    if output == "json":
        print(json.dumps(rows, indent=1))
        return 0
    tables.show(list(rows[0]), [[_text(value) for value in row.values()] for row in rows])
    return 0


def throughput(policies: Sequence[str] = POLICIES) -> list[dict[str, Any]]:
    """Simulated requests per second of CPU."""
    return [measure(configure.cells([*CASE, f"policy={policy}"])[0]) for policy in policies]


def measure(cell: Cell) -> dict[str, Any]:
    """The least CPU seconds of some runs of `cell`, its request stream drawn beforehand."""
    workload = runs.draw(cell)
    runs.run(cell, workload)
    seconds = min(cpu_s(cell, workload) for _ in range(REPEATS))
    return _size(cell, workload) | {
        "cpu_seconds": seconds,
        "requests_per_cpu_second": round(len(workload) / seconds),
    }


def scaling(policies: Sequence[str] = SCALED) -> list[dict[str, Any]]:
    """Microseconds of CPU a decision, by GPUs and by requests."""
    sizes = [(gpus, 8 * gpus, 15) for gpus in GPUS] + [(8, 64, seconds) for seconds in SECONDS[1:]]
    rows = []
    for policy in policies:
        for gpus, rps, seconds in sizes:
            (cell,) = configure.cells([f"policy={policy}", f"gpus={gpus}", f"rps={rps}", f"duration_s={seconds}"])
            workload = runs.draw(cell)
            rows.append(_size(cell, workload) | {"us_per_decision": decision_s(cell, workload) * 1e6})
    return rows


def decision_s(cell: Cell, workload: Workload) -> float:
    """CPU seconds a decision takes: the run against one in which the policy is told the same assignments."""
    outcome = runs.simulate_cell(cell, workload)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "assignments.npz"
        np.savez(path, gpu=outcome.gpu)
        told = replace(cell, policy=configure.cells(["policy=replay", f"policy.path={path}"])[0].policy)
        runs.simulate_cell(told, workload)
        differences = [cpu_s(cell, workload) - cpu_s(told, workload) for _ in range(REPEATS)]
    return max(1e-9, float(np.median(differences)) / len(workload))


def cpu_s(cell: Cell, workload: Workload) -> float:
    """CPU seconds of one run."""
    start = time.process_time()
    runs.simulate_cell(cell, workload)
    return time.process_time() - start


def _size(cell: Cell, workload: Workload) -> dict[str, Any]:
    return {"policy": cell.names["policy"], "gpus": cell.gpus, "rps": cell.rps, "requests": len(workload)}


def _text(value: object) -> str:
    return f"{value:.6f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
