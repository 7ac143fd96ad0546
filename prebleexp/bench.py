"""`python -m prebleexp bench`: requests simulated per second of CPU, on one core, after warm-up."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.launch import configure, tables

CASE = ("gpus=8", "rps=128", "horizon=drain")
POLICIES = ("random", "round_robin", "lor")
REPEATS = 9


def main(arguments: Sequence[str]) -> None:
    """Print a line a policy; `output=json` prints the list of rows. Raises InvalidInput for other arguments."""
    output = "table"
    for argument in arguments:
        if argument not in ("output=table", "output=json"):
            raise InvalidInput(f"bench does not know {argument!r}; valid: output=table, output=json")
        output = argument.removeprefix("output=")
    rows = [measure(configure.cells([*CASE, f"policy={policy}"])[0]) for policy in POLICIES]
    if output == "json":
        print(json.dumps(rows, indent=1))
        return
    tables.show(list(rows[0]), [[_text(value) for value in row.values()] for row in rows])


def measure(cell: Cell) -> dict[str, Any]:
    """The least CPU seconds of some runs of `cell`, its request stream drawn beforehand."""
    workload = runs.draw(cell)
    runs.run(cell, workload)
    seconds = []
    for _ in range(REPEATS):
        start = time.process_time()
        runs.simulate_cell(cell, workload)
        seconds.append(time.process_time() - start)
    return {
        "policy": cell.names["policy"],
        "gpus": cell.gpus,
        "rps": cell.rps,
        "requests": len(workload),
        "cpu_seconds": min(seconds),
        "requests_per_cpu_second": round(len(workload) / min(seconds)),
    }


def _text(value: object) -> str:
    return f"{value:.6f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
