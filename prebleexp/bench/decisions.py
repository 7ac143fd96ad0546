"""`prebleexp bench decisions`: what a decision takes on few and on many GPUs, by the processor's clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from prebleexp.bench import clocked
from prebleexp.bench.case import GPUS, SECONDS, SERVED
from prebleexp.bench.table import LESS, Row, Table
from prebleexp.experiment import runs
from prebleexp.launch import configure, places
from prebleexp.sim.types import Workload

FEW, MANY = GPUS[0], GPUS[-1]
COLUMNS = {gpus: f"ns on {gpus} GPUs" for gpus in (FEW, MANY)}
OFTEN = 8
"""requests of a session, and repetitions"""
LATER = ("replay", "e2_released")
"""what tells rather than decides, and what is kept slow as it was"""


def decisions(policies: Sequence[str] | None = None) -> list[Row]:
    """Nanoseconds a decision on 8 and on 256 GPUs, of as many requests with 8 a second and GPU, each of a session."""
    rows = []
    for policy in policies or routers():
        ns = {}
        for gpus, seconds in ((FEW, SECONDS[0] * MANY // FEW), (MANY, SECONDS[0])):
            size = (f"gpus={gpus}", f"rps={8 * gpus}", f"duration_s={seconds}")
            (cell,) = configure.cells([*SERVED, f"policy={policy}", *size])
            ns[COLUMNS[gpus]] = round(clocked.decision_ns(cell, _of_sessions(runs.draw(cell)), OFTEN), 1)
        rows.append({"policy": policy} | ns | {"ratio": round(ns[COLUMNS[MANY]] / ns[COLUMNS[FEW]], 2)})
    return rows


def routers() -> list[str]:
    """All policies that decide, by name."""
    return [name for name in places.options("policy") if name not in LATER]


def _of_sessions(workload: Workload) -> Workload:
    """The same requests, taken for `OFTEN` of each session."""
    turn, session = np.divmod(np.arange(len(workload)), -(-len(workload) // OFTEN))
    return replace(workload, session=session.astype(np.int32), turn=turn.astype(np.int32))


TABLE = Table(decisions, dict.fromkeys((*COLUMNS.values(), "ratio"), LESS))
