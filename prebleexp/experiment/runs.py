"""One run: its request stream drawn, served and measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from prebleexp.experiment.cell import Cell
from prebleexp.sim.types import Outcome, Workload


@dataclass(frozen=True)
class Run:
    """A computed run with all its arrays."""

    metrics: dict[str, Any]
    workload: Workload
    outcome: Outcome
    seconds: float


def draw(cell: Cell) -> Workload:
    """The cell's request stream."""
    return cell.workload.draw(
        rps=cell.rps, duration_s=cell.duration_s, seed=cell.seed, output_length=cell.output_length
    )


def run(
    cell: Cell,
    workload: Workload | None = None,
    on_pause: Callable[[], object] = lambda: None,
    on_event: Callable[[Any], object] | None = None,
) -> Run:
    """Compute a cell, without the cache. `workload` spares drawing its stream again; `on_pause` and `on_event` as in
    `simulate`."""
    from prebleexp.metrics import measure

    workload = draw(cell) if workload is None else workload
    start = time.perf_counter()
    outcome = simulate_cell(cell, workload, on_pause, on_event)
    seconds = time.perf_counter() - start
    return Run(dict(measure(workload, outcome)), workload, outcome, seconds)


def simulate_cell(
    cell: Cell,
    workload: Workload,
    on_pause: Callable[[], object] = lambda: None,
    on_event: Callable[[Any], object] | None = None,
) -> Outcome:
    """Serve a request stream as the cell says."""
    from prebleexp.sim import simulate  # numba: nothing that is cached needs it

    outcome = simulate.simulate(
        workload,
        gpus=cell.gpus,
        policy=cell.policy,
        hardware=cell.hardware,
        engine=cell.engine,
        lengths=cell.lengths,
        overhead=cell.overhead,
        duration_s=cell.duration_s,
        horizon=cell.horizon,
        seed=cell.seed,
        on_pause=on_pause,
        on_event=on_event,
    )
    # `lengths` is no part of the key of a policy that does not read them, so nothing of them may be in the result
    return outcome if cell.policy.reads_lengths else replace(outcome, told_output=np.full(len(workload), np.nan))


def requests_columns(finished: Run) -> dict[str, Any]:
    """Per-request columns of a run, by name."""
    from prebleexp.metrics import per_request

    workload, outcome = finished.workload, finished.outcome
    given = ("arrival_s", "prompt_tokens", "output_tokens", "max_new_tokens", "prefix_group")
    made = (
        "gpu",
        "state",
        "told_output",
        "overhead_s",
        "router_wait_s",
        "ttft_s",
        "latency_s",
        "finish_s",
        "output_seen",
        "hit_tokens",
        "prefilled_tokens",
    )
    columns = {name: getattr(workload, name) for name in given} | {name: getattr(outcome, name) for name in made}
    return columns | per_request(outcome)


def requests_parquet(finished: Run) -> bytes:
    """The same as a Parquet file; NaN becomes null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = requests_columns(finished)
    arrays = {name: pa.array(column, mask=column != column) for name, column in columns.items()}  # NaN is not itself
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(arrays), sink, compression="zstd", use_dictionary=False)  # hardly a value comes twice
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
