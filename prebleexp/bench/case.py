"""The cluster that most tables measure."""

from __future__ import annotations

from prebleexp.bench.table import Row
from prebleexp.experiment.cell import Cell
from prebleexp.sim.types import Workload

SERVED = ("hardware=a6000_mistral_7b", "engine=sglang_2024")
"""whatever the defaults are: so speeds compare over time"""
LOAD = ("gpus=8", "rps=128", "horizon=drain")
CASE = (*LOAD, *SERVED)
AS_OF_2024 = "as of 2024"
SETUPS = {"default": (), AS_OF_2024: SERVED}
"""what serves requests, by its name in tables"""

GPUS = (8, 16, 32, 64, 128, 256)
SECONDS = (15, 60, 240, 960)


def size(cell: Cell, workload: Workload) -> Row:
    """The columns that say how much is simulated."""
    return {"policy": cell.called("policy"), "gpus": cell.gpus, "rps": cell.rps, "requests": len(workload)}


def speed(requests: int, cpu_seconds: float) -> Row:
    """The columns that say how fast that was."""
    return {"cpu_seconds": cpu_seconds, "requests_per_cpu_second": round(requests / cpu_seconds)}
