"""One run: its request stream drawn, served and measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from prebleexp.experiment import counting, limits
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.warming import before, whole
from prebleexp.sim.types import COLUMNS, OF_REQUESTS, OPTIONAL, Outcome, Workload

_NONE = np.zeros(0, np.int32)
NOTHING = Workload(np.zeros(0), _NONE, _NONE, _NONE, _NONE, np.zeros(1, np.int64), _NONE, _NONE)
"""a stream of no requests: to serve it takes no more than to compile what serves"""
GIVEN = tuple(name for name in (*COLUMNS, *OPTIONAL) if "segment" not in name)
"""what is kept of requests as they arrived: all but their prompts"""


@dataclass(frozen=True)
class Run:
    """A computed run with all its arrays."""

    metrics: dict[str, Any]
    workload: Workload
    outcome: Outcome
    seconds: float


def draw(cell: Cell) -> Workload:
    """The cell's request stream, without what comes before its run."""
    limits.return_freed_memory()
    return cell.warm.rest(whole(cell))


def run(
    cell: Cell,
    workload: Workload | None = None,
    on_pause: Callable[[], object] = lambda: None,
    on_event: Callable[[Any], object] | None = None,
    check: bool = True,
) -> Run:
    """Compute a cell, without the cache. `workload` spares drawing its stream again; `on_pause` and `on_event` as in
    `simulate`."""
    from prebleexp.experiment.unloaded import unloaded
    from prebleexp.metrics import measure

    workload = draw(cell) if workload is None else workload
    start = time.perf_counter()
    outcome = simulate_cell(cell, workload, on_pause, on_event, check)
    alone = unloaded(cell, workload) if cell.slo.needs_unloaded else None
    seconds = time.perf_counter() - start
    metrics = dict(measure(workload, outcome, cell.slo, alone, counting.replica_gpus(cell)))
    return Run(metrics, workload, outcome, seconds)


def simulate_cell(
    cell: Cell,
    workload: Workload,
    on_pause: Callable[[], object] = lambda: None,
    on_event: Callable[[Any], object] | None = None,
    check: bool = True,
) -> Outcome:
    """Serve a request stream as the cell says."""
    from prebleexp.sim import simulate  # nothing that is cached needs it

    outcome = simulate.simulate(
        workload,
        **asked_of(cell),
        before=before(cell, workload),
        check=check,
        on_pause=on_pause,
        on_event=on_event,
    )
    # `lengths` is no part of the key of policies that do not read them, so nothing of them may be in the result
    return outcome if cell.reads_lengths else replace(outcome, told_output=np.full(len(workload), np.nan))


def asked_of(cell: Cell) -> dict[str, Any]:
    """What the simulator is asked by name, but for what is served before."""
    return {
        "gpus": cell.replicas,
        "policy": cell.policy,
        "hardware": cell.hardware.drawn(cell.seed),
        "kinds": [(one.replicas, one.hardware.drawn(cell.seed)) for one in cell.cluster.groups],
        "engines": [one.engine or cell.engine for one in cell.cluster.groups],
        "faults": cell.faults.of_replicas(counting.replica_gpus(cell)) if cell.gpus_change else None,
        "autoscaler": None if cell.autoscaler.changes_nothing else cell.autoscaler,
        "gateway": None if cell.gateway.lets_all_pass else cell.gateway,
        "replicas": cell.gateway.replication,
        "pools": cell.cluster.pools(cell.policy),
        "tiers": cell.cluster.tiers(cell.hardware.kv_bytes),
        "migration": cell.cluster.moves(cell.hardware.kv_bytes),
        "engine": cell.engine,
        "lengths": cell.lengths,
        "overhead": cell.overhead,
        "duration_s": cell.duration_s,
        "horizon": cell.horizon,
        "seed": cell.seed,
        "reports_ms": cell.reports_ms or 0.0,
        "gaps_of_each": cell.slo.needs_gaps,
    }


def requests_columns(finished: Run) -> dict[str, Any]:
    """Per-request columns of a run, by name."""
    from prebleexp.metrics import per_request

    workload, outcome = finished.workload, finished.outcome
    given = {name: getattr(workload, name) for name in GIVEN}
    return given | {name: getattr(outcome, name) for name in OF_REQUESTS} | per_request(outcome)


def _arrow(column: np.ndarray[Any, Any]) -> Any:
    """Not by `pa.array`, which imports pandas: that takes longer than a run."""
    import pyarrow as pa

    missing = column != column  # NaN is not itself
    valid = pa.py_buffer(np.packbits(~missing, bitorder="little")) if missing.any() else None
    return pa.Array.from_buffers(pa.from_numpy_dtype(column.dtype), len(column), [valid, pa.py_buffer(column)])


def requests_parquet(finished: Run) -> bytes:
    """The same as a Parquet file; NaN becomes null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = requests_columns(finished)
    arrays = {name: _arrow(np.ascontiguousarray(column)) for name, column in columns.items()}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(arrays), sink, compression="zstd", use_dictionary=False)  # hardly a value comes twice
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
