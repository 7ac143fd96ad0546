"""`prebleexp bench references`: the simulators that others published, and what it costs to step token by token."""

from __future__ import annotations

from dataclasses import replace

from prebleexp.bench.case import CASE, size, speed
from prebleexp.bench.cpu import by_turns_s
from prebleexp.bench.table import LESS, MORE, Row, Table
from prebleexp.bench.throughput import measure
from prebleexp.engines.released.engine import Released
from prebleexp.experiment import runs
from prebleexp.launch import configure

OF_130_TOKENS = ("replicas=40", "rps=100", "duration_s=60", "output_length=constant", "output_length.lengths=[130]")
PUBLISHED = (
    ("splitwise", "pools", ()),
    ("splitwise", "no pools", ("engine.start_state=baseline", "engine.scheduler=token_jsq")),
    ("dynamo_replay", "15 + 25 workers", ("engine.prefill_workers=15",)),
)
STEP_S = 0.0006


def references() -> list[Row]:
    """`ratio` is of requests per CPU-second, to those event by event."""
    rows: list[Row] = []
    for engine, how, given in PUBLISHED:
        (cell,) = configure.cells([f"engine={engine}", *OF_130_TOKENS, *given])
        rows.append({"engine": engine, "how": how, **measure(cell), "ratio": None})
    released = Released(step_cost_s=STEP_S, output_step_cost_s=STEP_S)
    cell = replace(configure.cells([*CASE, "policy=lor"])[0], engine=released)
    workload = runs.draw(cell)
    seconds = by_turns_s([cell, replace(cell, engine=replace(released, stepwise=True))], workload)
    for how, took in zip(("event by event", "token by token"), seconds, strict=True):
        row = {"engine": "released", "how": how, **size(cell, workload), **speed(len(workload), took)}
        rows.append(row | {"ratio": seconds[0] / took})
    return rows


TABLE = Table(references, {"cpu_seconds": LESS, "requests_per_cpu_second": MORE, "ratio": MORE})
