"""Recordings of vLLM's scheduler, and `engine=vllm` driven and watched as they were."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.engines.vllm.engine import VLLM
from prebleexp.engines.vllm.records import STEPS
from prebleexp.sim.records import STEPPING
from prebleexp.sim.types import Outcome
from tests.support.recordings.engines import Columns, Driven, drive, ns, of_requests, recordings, workload_of

RECORDINGS = recordings("vllm")

OF_STEPS = {
    "step_requests": "requests",
    "step_admitted": "admitted",
    "step_preempted": "preempted",
    "step_finished": "finished",
    "step_free_blocks": "free",
    "step_free_blocks_after": "free_after",
    "step_evicted_blocks": "evicted",
    "step_waiting": "waiting",
    "step_running": "running",
}


def engine_of(config: dict[str, Any]) -> VLLM:
    names = ("max_num_batched_tokens", "max_num_seqs", "block_size", "enable_prefix_caching", "async_scheduling")
    return VLLM(
        **{name: config[name] for name in names},
        scheduling_policy=config["policy"],
        scheduler_reserve_full_isl=config["reserve_full_isl"],
        watermark=config["watermark"],
        long_prefill_token_threshold=config["long_prefill_token_threshold"],
        host_s=0.0,
    )


def run(config: dict[str, Any], columns: Columns, engine: Any, on_event: Any = None) -> Outcome:
    workload = workload_of(columns, max_new_tokens=columns["output_tokens"], priority=columns["priority"])
    return drive(config, workload, config["num_blocks"] * config["block_size"], engine, on_event)


class Watched(Driven):
    """An engine whose steps are written down in the columns of a recording."""

    def __init__(self, engine: VLLM) -> None:
        super().__init__(engine)
        self.seen = self.over = 0
        self.rows: list[dict[str, float]] = []
        self.lists: dict[str, list[list[int]]] = {name: [] for name in LISTS}

    def __call__(self, world: Any) -> None:
        """Called after every event: what was scheduled, and what is over."""
        mine, gpu = self.mine, self.mine.gpus[0]
        for number in range(self.seen, int(gpu.scheduled)):
            slot = number % STEPS
            step = mine.steps[0, slot]
            assert int(gpu.scheduled) - number <= STEPS
            if step.counts == 0:
                continue
            chosen = mine.whole[0, slot, : step.requests].copy()
            new = chosen[len(chosen) - int(step.admitted) :]
            self.rows.append(
                {"slot": slot, "of": number, "start_s": float(step.scheduled_s)}
                | {name: step[name].item() for name in step.dtype.names}
            )
            self.lists["scheduled_request"].append(chosen["request"].tolist())
            self.lists["scheduled_tokens"].append(chosen["tokens"].tolist())
            self.lists["admitted_request"].append(new["request"].tolist())
            self.lists["admitted_hit_tokens"].append(new["hits"].tolist())
            self.lists["preempted_request"].append(mine.preempted[0, slot, : step.preempted].tolist())
            self.lists["finished_request"].append([])
        self.seen = int(gpu.scheduled)
        stepping = world.servers[0].stage == STEPPING
        over = int(gpu.begun) - int(stepping)
        for at in range(max(0, len(self.rows) - STEPS), len(self.rows)):
            slot, number = self.rows[at]["slot"], self.rows[at]["of"]
            if stepping and number == over:
                self.rows[at]["start_s"] = float(world.servers[0].begun_s)
            if self.over <= number < over:
                step = mine.steps[0, slot]
                self.rows[at] |= {"finished": int(step.finished), "free_after": int(step.free_after)}
                self.lists["finished_request"][at] = mine.finished[0, slot, : step.finished].tolist()
        self.over = over

    def columns(self) -> Columns:
        made: Columns = {name: np.array([row[field] for row in self.rows]) for name, field in OF_STEPS.items()}
        times = {"step_schedule_ns": "scheduled_s", "step_start_ns": "start_s", "step_ns": "seconds"}
        made |= {name: ns([row[field] for row in self.rows]) for name, field in times.items()}
        return made | {
            name: np.array([one for step in values for one in step], np.int64) for name, values in self.lists.items()
        }


LISTS = (
    *("scheduled_request", "scheduled_tokens", "admitted_request", "admitted_hit_tokens"),
    *("preempted_request", "finished_request"),
)


def replay(config: dict[str, Any], columns: Columns) -> Columns:
    """The recording's columns, as `engine=vllm` makes them."""
    watched = Watched(engine_of(config))
    outcome = run(config, columns, watched, watched)
    seen = {"output_seen": outcome.output_seen, "preemptions": watched.mine.preemptions}
    return watched.columns() | of_requests(columns, outcome) | seen
