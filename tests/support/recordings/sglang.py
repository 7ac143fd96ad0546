"""Recordings of SGLang's scheduler, and `engine=sglang` driven and watched as they were."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.engines.sglang.engine import SGLang
from prebleexp.engines.sglang.records import STEPS
from prebleexp.sim.types import Outcome, Workload
from tests.support.recordings.columns import Columns
from tests.support.recordings.engines import Driven, drive, ns, of_requests, recordings, workload_of

RECORDINGS = recordings("sglang")

OF_STEPS = {
    "step_prefill": "prefill",
    "step_requests": "requests",
    "step_retracted": "retracted",
    "step_free_tokens": "free",
    "step_evictable_tokens": "evictable",
    "step_ratio": "ratio",
    "step_waiting": "waiting",
}
LISTS = ("scheduled_request", "scheduled_tokens", "scheduled_from", "retracted_request")


def engine_of(config: dict[str, Any]) -> SGLang:
    return SGLang(
        chunked_prefill_size=config["chunked_prefill_size"],
        max_running_requests=config["max_running_requests"],
        schedule_policy=config["schedule_policy"],
        schedule_conservativeness=config.get("schedule_conservativeness", 1.0),
        disable_overlap_schedule=not config["overlap"],
        skip_finishing_decode=config.get("skip_finishing_decode", False),
        host_s=0.0,
    )


def stream_of(columns: Columns) -> Workload:
    return workload_of(columns, max_new_tokens=columns["max_new_tokens"])


def run(config: dict[str, Any], columns: Columns, engine: Any, on_event: Any = None, gpus: int = 1) -> Outcome:
    return drive(config, stream_of(columns), config["max_total_tokens"], engine, on_event, gpus)


class Watched(Driven):
    """An engine whose steps are written down in the columns of a recording."""

    def __init__(self, engine: SGLang) -> None:
        super().__init__(engine)
        self.seen = 0
        self.rows: list[dict[str, float]] = []
        self.lists: dict[str, list[int]] = {name: [] for name in LISTS}

    def __call__(self, world: Any) -> None:
        """Called after every event: what was scheduled."""
        mine, scheduled = self.mine, int(self.mine.gpus[0].scheduled)
        assert scheduled - self.seen <= STEPS
        for number in range(self.seen, scheduled):
            slot = number % STEPS
            step = mine.steps[0, slot]
            self.rows.append({name: step[name].item() for name in step.dtype.names})
            chosen = mine.whole[0, slot, : step.requests]
            for name, field in zip(LISTS, ("request", "tokens", "begin"), strict=False):
                self.lists[name] += chosen[field].tolist()
            self.lists["retracted_request"] += mine.retracted[0, slot, : step.retracted].tolist()
        self.seen = scheduled

    def columns(self) -> Columns:
        made: Columns = {name: np.array([row[field] for row in self.rows]) for name, field in OF_STEPS.items()}
        made |= {f"step_{name}": ns([row[key] for row in self.rows]) for name, key in TIMES.items()}
        starts, end = [], 0
        for scheduled, takes in zip(made["step_schedule_ns"].tolist(), made["step_ns"].tolist(), strict=True):
            starts.append(max(scheduled, end))
            end = starts[-1] + takes
        made["step_start_ns"] = np.array(starts)
        return made | {name: np.array(values) for name, values in self.lists.items()}


TIMES = {"schedule_ns": "scheduled_s", "ns": "seconds"}


def replay(config: dict[str, Any], columns: Columns) -> Columns:
    """The recording's columns, as `engine=sglang` makes them."""
    watched = Watched(engine_of(config))
    outcome = run(config, columns, watched, watched)
    return watched.columns() | of_requests(columns, outcome)
