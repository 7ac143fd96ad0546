"""A measurement beside its simulation: the same requests, sent at the same times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prebleexp.experiment.cell import Cell
from prebleexp.experiment.runs import Run, draw, requests_columns, run
from prebleexp.intervals import mean_interval
from prebleexp.live.measuring.phases import Phase, Watched, phases
from prebleexp.sim.types import Floats, State, Workload
from prebleexp.stages import Stage, of_requests
from prebleexp.told import agreement

METRICS = (
    *("n_finished", "ttft_mean_s", "ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "tpot_mean_s", "tpot_p50_s", "tpot_p99_s"),
    *("itl_p50_s", "itl_p99_s", "latency_mean_s", "latency_p50_s", "latency_p99_s", "norm_latency_mean_s", "hit_ratio"),
    *("output_tokens_per_s", "requests_per_s", "requests_max_over_mean", "retracted", "slo_attainment"),
)
Columns = Mapping[str, npt.NDArray[Any]]


class Row(NamedTuple):
    """A metric of both; None: it is not known."""

    metric: str
    measured: float | None
    simulated: float | None

    @property
    def ratio(self) -> float | None:
        """Simulated over measured; None where one of them is missing."""
        if not self.measured or self.simulated is None:
            return None
        return self.simulated / self.measured


class Means(NamedTuple):
    """A metric of both, over seeds that have it of both; None: there is no such seed."""

    metric: str
    measured: float | None
    simulated: float | None
    ratio: tuple[float, float | None] | None
    """simulated over measured: mean over seeds, and half-width of its 95 % interval if there are several"""


class Agreement(NamedTuple):
    """Of one time of requests that both finished: differences, simulated less measured."""

    name: str
    requests: int
    bias_s: float
    """mean"""
    p50_s: float
    """median of absolute differences"""
    p90_s: float
    correlation: float | None
    """Spearman's; 0 where one of the two is the same for all, None where there is no request"""


class Compared(NamedTuple):
    rows: list[Row]
    agreements: list[Agreement]
    same_gpu: float | None
    """the share of requests that went to the same one; None where it is not known where they were sent"""
    stages: list[tuple[Stage, Stage]]
    """measured and simulated, where the load comes in stages"""
    phases: list[Phase]
    """what a request's time is made of; none where the engines did not tell"""
    simulated: Run
    columns: Columns
    """of its requests"""


def simulated(cell: Cell, kept: Columns, arrivals: str) -> tuple[Run, Watched]:
    """`arrivals`: requests come when they were "sent", so that what the client was late is no queueing of the simulator
    alone; or when they were "due". Answers are as long as they were. Engines with a loop of their own have no queue
    behind a frontend that could be watched."""
    watched = Watched(len(kept["state"]))
    on_event = watched if cell.engine.own_loop() is None else None
    return run(cell, as_measured(draw(cell), kept, arrivals), on_event=on_event), watched


def as_measured(workload: Workload, kept: Columns, arrivals: str) -> Workload:
    output = np.where(kept["state"] == State.FINISHED, kept["output_seen"], workload.output_tokens).astype(np.int32)
    changed: dict[str, Any] = {"output_tokens": np.maximum(output, 1)}
    changed["max_new_tokens"] = np.maximum(workload.max_new_tokens, changed["output_tokens"])
    if arrivals == "sent":
        dated = workload.dated & ~np.isnan(kept["sent_s"])
        arrival_s = np.where(dated, np.maximum(kept["sent_s"], 0.0), workload.arrival_s)
        first = workload.arrives
        arrival_s[first] = np.maximum.accumulate(arrival_s[first])  # they were handed to sockets one by one
        changed["arrival_s"] = arrival_s
    return workload.changed(**changed)


def compared(facts: Mapping[str, Any], kept: Columns, made: Run, watched: Watched, arrivals: str) -> Compared:
    """`facts` (`measured.facts`) and `kept` are of the measurement; its times count from when requests were sent, or
    due, as the simulation's do."""
    metrics = facts["metrics"]
    of = _from_sent(kept) if arrivals == "sent" else dict(kept)
    columns = requests_columns(made)
    rows = [Row(name, metrics.get(name), made.metrics[name]) for name in METRICS]
    both = (of["state"] == State.FINISHED) & (columns["state"] == State.FINISHED)
    agreements = [
        _agreement(name, of[f"{name}_s"][both], columns[f"{name}_s"][both]) for name in ("ttft", "tpot", "latency")
    ]
    stages = list(zip(of_requests(of), of_requests(columns), strict=False))
    known = [one for one in rows if one.measured is not None]
    parts = phases(facts["server"]["means_s"], of, made, watched)
    return Compared(known, agreements, _same_gpu(of, columns), stages, parts, made, columns)


def means(found: Sequence[Compared]) -> list[Means]:
    """Each metric's mean over seeds, measured and simulated."""
    made = []
    for i, row in enumerate(found[0].rows):
        of = [one.rows[i] for one in found]
        both = [(one.measured, one.simulated) for one in of if one.measured is not None and one.simulated is not None]
        measured, simulated = (
            (sum(side) / len(both) for side in zip(*both, strict=True)) if both else (row.measured, None)
        )
        ratios = [one.ratio for one in of if one.ratio is not None]
        made.append(Means(row.metric, measured, simulated, mean_interval(ratios) if ratios else None))
    return made


def _from_sent(kept: Columns) -> dict[str, npt.NDArray[Any]]:
    """A request that comes after others is sent behind their measured ends: there it is late alike."""
    return dict(kept) | {"ttft_s": kept["ttft_sent_s"], "latency_s": kept["latency_sent_s"]}


def _agreement(name: str, measured: Floats, made: Floats) -> Agreement:
    known = ~(np.isnan(measured) | np.isnan(made))
    measured, made = measured[known], made[known]
    if not len(measured):
        return Agreement(name, 0, 0.0, 0.0, 0.0, None)
    off = made - measured
    p50_s, p90_s = np.percentile(np.abs(off), (50, 90)).tolist()
    return Agreement(name, len(off), float(off.mean()), p50_s, p90_s, agreement(made, measured)[1])


def _same_gpu(of: Columns, made: Columns) -> float | None:
    known = (of["gpu"] >= 0) & (made["gpu"] >= 0)
    if not known.any() or of["gpu"].max() == 0:
        return None
    return float((of["gpu"] == made["gpu"])[known].mean())
