"""Recordings of vLLM's scheduler, and `engine=vllm` driven and watched as they were."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from prebleexp.engines.vllm.drafts import Draws, scripted
from prebleexp.engines.vllm.engine import VLLM
from prebleexp.engines.vllm.groups import Grouping
from prebleexp.engines.vllm.records import STEPS
from prebleexp.sim.records import STEPPING
from prebleexp.sim.types import Layers, Outcome, Setup, Workload
from prebleexp.workloads.adapters import adapted
from tests.support.outcomes import assert_same
from tests.support.recordings.columns import Columns, load
from tests.support.recordings.engines import Driven, drive, ns, of_requests, recordings, workload_of
from tests.support.shared_code import shares_code

RECORDINGS = recordings("vllm")
OF_GROUPS = recordings("vllm_features", "hybrid_*.npz")
OF_DRAFTS = recordings("vllm_features", "spec_*.npz")
OF_ADAPTERS = recordings("vllm_features", "lora_*.npz")

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


@shares_code(VLLM)
@dataclass(frozen=True)
class Grouped(VLLM):
    """With the groups and the pool that a recording says, whatever model that is."""

    groups: tuple[Layers, ...] = ()

    def grouping(self, setup: Setup) -> Grouping | None:
        return Grouping(self.groups, setup.kv_tokens // self.block_size)


def groups_of(config: dict[str, Any]) -> tuple[Layers, ...]:
    return tuple(Layers(one["kind"], one.get("window", 0), 1) for one in config["groups"])


def engine_of(config: dict[str, Any]) -> VLLM:
    if config.get("groups"):
        plain, interval = engine_of({**config, "groups": None}), config.get("prefix_cache_retention_interval", 0)
        return Grouped(**asdict(replace(plain, prefix_cache_retention_interval=interval)), groups=groups_of(config))
    names = ("max_num_batched_tokens", "max_num_seqs", "block_size", "enable_prefix_caching", "async_scheduling")
    return VLLM(
        **{name: config[name] for name in names},
        scheduling_policy=config["policy"],
        scheduler_reserve_full_isl=config["reserve_full_isl"],
        watermark=config["watermark"],
        long_prefill_token_threshold=config["long_prefill_token_threshold"],
        host_s=0.0,
        max_loras=config.get("max_loras", 1),
        prefill_schedule_interval=config.get("prefill_schedule_interval", 1),
        speculative_config=drafts_of(config),
    )


def drafts_of(config: dict[str, Any]) -> dict[str, Any] | None:
    """Free ones; how many are accepted is scripted."""
    if "num_speculative_tokens" not in config:
        return None
    named = {"method": config["spec_method"], "num_speculative_tokens": config["num_speculative_tokens"]}
    return named | {"acceptance_rate": 0.0, "draft_cost": 0.0}


def stream_of(columns: Columns, priority: Any) -> Workload:
    """With its adapters, if it has any."""
    made = workload_of(columns, max_new_tokens=columns["output_tokens"], priority=priority)
    return adapted(made, columns["lora"]) if "lora" in columns else made


def run(config: dict[str, Any], columns: Columns, engine: Any, on_event: Any = None) -> Outcome:
    longest = {"context_length": config["max_model_len"]} if "max_model_len" in config else {}
    return drive(
        config,
        stream_of(columns, columns["priority"]),
        config["num_blocks"] * config["block_size"],
        engine,
        on_event,
        **longest,
    )


def plain(records: Any) -> Any:
    """The same memory, whose fields are looked up much sooner than those of numpy's records."""
    return records.view(np.dtype((np.void, records.dtype)), np.ndarray)


class Scripted(Driven):
    """An engine of which it is written how many drafts there are, and how many are accepted."""

    def __init__(self, engine: VLLM, columns: Columns) -> None:
        super().__init__(engine)
        self.columns = columns

    def start(self, setup: Setup) -> Any:
        mine, columns = super().start(setup), self.columns
        accepts = _script(columns["accepts"])
        proposes = _script(columns["drafts"]) if "drafts" in columns else mine.speculation.proposes
        made = scripted(accepts, proposes, setup.gpus, takes_padding=mine.settings.async_scheduling)
        self.mine = mine._replace(speculation=made)
        return self.mine


def served_by(config: dict[str, Any], columns: Columns) -> Any:
    """The engine of a recording, with its script if it has one."""
    return Scripted(engine_of(config), columns) if "accepts" in columns else engine_of(config)


def _script(rows: Any) -> Draws:
    return Draws(rows.astype(np.int8).ravel(), np.arange(len(rows)) * rows.shape[1], rows.shape[1])


class Watched(Driven):
    """An engine whose steps are written down in the columns of a recording."""

    tells_groups = True
    """whether blocks of each group are in its columns, where there are any"""

    def __init__(self, engine: VLLM, g: int = 0) -> None:
        super().__init__(engine)
        self.g = g
        self.seen = self.over = 0
        self.known = np.zeros(0, np.int64)
        self._server: Any = None
        self.rows: list[dict[str, float]] = []
        self.lists: dict[str, list[list[int]]] = {name: [] for name in LISTS}

    def start(self, setup: Setup) -> Any:
        self.prompts = setup.workload.prompt_tokens.astype(np.int64)
        mine = super().start(setup)
        self._gpu, self._steps, self._whole = (plain(one)[self.g] for one in (mine.gpus, mine.steps, mine.whole))
        return mine

    def __call__(self, world: Any) -> None:
        """Called after every event: what was scheduled, and what is over."""
        mine, g = self.mine, self.g
        scheduled, begun = int(self._gpu["scheduled"]), int(self._gpu["begun"])
        for number in range(self.seen, scheduled):
            slot = number % STEPS
            step = dict(zip(self._steps.dtype.names, self._steps[slot].item(), strict=True))
            assert scheduled - number <= STEPS
            if step["counts"] == 0:
                continue
            chosen = self._whole[slot, : step["requests"]].copy()
            new = chosen[len(chosen) - step["admitted"] :]
            self.rows.append({"slot": slot, "of": number, "start_s": step["scheduled_s"]} | step)
            self.lists["scheduled_request"].append(chosen["request"].tolist())
            self.lists["scheduled_tokens"].append(chosen["tokens"].tolist())
            if mine.groups is not None:
                held = mine.groups.whole[g, slot, : step["requests"]]
                self.lists["scheduled_blocks"].append(held.ravel().tolist())
            if mine.speculation is not None:
                self.lists["scheduled_drafts"].append(np.maximum(chosen["samples"] - 1, 0).tolist())
            self.lists["admitted_request"].append(new["request"].tolist())
            self.lists["admitted_hit_tokens"].append(new["hits"].tolist())
            self.lists["preempted_request"].append(mine.preempted[g, slot, : step["preempted"]].tolist())
            self.lists["finished_request"].append([])
        self.seen = scheduled
        if self._server is None:
            self._server = plain(world.servers)[g]
        stepping = self._server["stage"] == STEPPING
        over = begun - int(stepping)
        first = len(self.rows)
        while first > 0 and self.rows[first - 1]["of"] >= self.over:
            first -= 1
        for at in range(first, len(self.rows)):
            slot, number = int(self.rows[at]["slot"]), int(self.rows[at]["of"])
            if stepping and number == over:
                self.rows[at]["start_s"] = float(self._server["begun_s"])
            if self.over <= number < over and mine.speculation is not None:
                self._sampled(slot)
            if self.over <= number < over:
                now = {name: int(self._steps[slot][name]) for name in ("finished", "free_after", "heard")}
                self.rows[at] |= now
                self.lists["finished_request"][at] = mine.finished[g, slot, : now["finished"]].tolist()
        self.over = over

    def _sampled(self, slot: int) -> None:
        """What requests have got of a step that is over."""
        known = self.mine.jobs.known.astype(np.int64)
        if not len(self.known):
            self.known = self.prompts
        rows = self.mine.chosen[self.g, slot, : self.mine.steps[self.g, slot].chosen]
        got = [(int(r), int(known[r] - self.known[r])) for r in rows["request"] if known[r] > self.known[r]]
        self.lists["sampled_request"].append([request for request, _ in got])
        self.lists["sampled_tokens"].append([tokens for _, tokens in got])
        self.known = known

    def columns(self) -> Columns:
        # a run ends with its last request, and vLLM's engine with the last step
        for before, row in pairwise(self.rows):
            if row["of"] >= self.over:
                row["free_after"] = int(self.mine.settings.blocks)
                row["start_s"] = max(row["start_s"], before["start_s"] + before["seconds"])
        made: Columns = {name: np.array([row[field] for row in self.rows]) for name, field in OF_STEPS.items()}
        times = {"step_schedule_ns": "scheduled_s", "step_start_ns": "start_s", "step_ns": "seconds"}
        made |= {name: ns([row[field] for row in self.rows]) for name, field in times.items()}
        unwanted = () if self.tells_groups and self.mine.groups is not None else ("scheduled_blocks",)
        unwanted += () if self.mine.speculation is not None else OF_SAMPLES
        return made | {
            name: np.array([one for step in values for one in step], np.int64)
            for name, values in self.lists.items()
            if name not in unwanted
        }


OF_SAMPLES = ("scheduled_drafts", "sampled_request", "sampled_tokens")
LISTS = (
    *("scheduled_request", "scheduled_tokens", "admitted_request", "admitted_hit_tokens"),
    *("preempted_request", "finished_request", "scheduled_blocks"),
    *OF_SAMPLES,
)


def replay(config: dict[str, Any], columns: Columns) -> Columns:
    """The recording's columns, as `engine=vllm` makes them."""
    watched = Watched(served_by(config, columns))
    outcome = run(config, columns, watched, watched)
    seen = {"output_seen": outcome.output_seen, "preemptions": watched.mine.preemptions}
    return watched.columns() | of_requests(columns, outcome) | seen


NAMES_OF_BLOCKS = "step_blocks_crc32"
"""a column that is not compared: no decision depends on it"""
OF_STREAMS = {"output_tokens", "priority", "lora", "accepts", "drafts", "prefix_group", "output_segment", "arrival_ns"}
OF_STREAMS |= {"segment_offsets", "segment_ids", "segment_tokens"}
"""columns that are given, and not made"""


def replays(path: Path) -> None:
    """Asserts that `engine=vllm` makes every column of a recording, and no other."""
    config, recorded = load(path)
    ours = replay(config, recorded)
    assert set(ours) == set(recorded) - OF_STREAMS - {NAMES_OF_BLOCKS}
    equal(ours, recorded)


def is_served_alike_unseen(path: Path) -> None:
    """Asserts that who watches a recording being served changes nothing."""
    config, recorded = load(path)
    watched = Watched(served_by(config, recorded))
    seen, unseen = run(config, recorded, watched, watched), run(config, recorded, served_by(config, recorded))
    assert_same(seen, unseen)


def equal(ours: Columns, theirs: Columns, where: str = "") -> None:
    for name, values in ours.items():
        np.testing.assert_array_equal(values, theirs[name], err_msg=where + name)
