"""Recordings of vLLM's engine with its offloading connector, and `engine=vllm` driven and watched as they were."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from prebleexp.engines.vllm.engine import VLLM
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim import addresses, host, links
from prebleexp.sim.plug import Plug
from prebleexp.sim.records import NONE
from prebleexp.sim.signatures import LINK
from prebleexp.sim.simulate import simulate
from prebleexp.sim.states import State
from prebleexp.sim.tiering import Tier, Tiering
from tests.support.costs.linear_cost import LinearCost
from tests.support.hears_at_once import HearsAtOnce
from tests.support.recordings import one_after_the_other
from tests.support.recordings.engines import Columns, load, of_requests, recordings, workload_of
from tests.support.recordings.vllm import NAMES_OF_BLOCKS, OF_STREAMS, Watched, engine_of, equal

OFFLOADS = recordings("vllm_features", "offload_*.npz")
RESERVED = int(State.RESERVED)


class WatchedHost(Watched):
    """An engine with a host behind its cache: its loads and its stores, too."""

    def __init__(self, engine: VLLM) -> None:
        super().__init__(engine)
        self.loading: dict[int, list[int]] = {}
        self.storing: dict[int, list[int]] = {}
        self.loads: list[list[int]] = []
        """of each its request, tokens that the GPU had, tokens, when it was asked for, when it was over, in ns"""
        self.stores: list[list[int]] = []
        """of each its request, blocks, when it was asked for, when it was over, in ns"""
        self.held: list[int] = []

    def __call__(self, world: Any) -> None:
        super().__call__(world)
        now, tiers, size = round(float(world.control.now) * 1e9), world.tiers, self.mine.settings.block_size
        coming, row = [], int(tiers.loading[0])
        while row != NONE:
            coming.append(row)
            row = int(tiers.fetches[row].next)
        for row in [row for row in self.loading if row not in coming]:
            self.loading.pop(row).append(now)
        for row in sorted(coming, key=lambda row: int(self.mine.jobs[row].heap_key)):
            if row not in self.loading:
                low = int(tiers.fetches[row].low)
                self.loads.append([row, low * size, (int(tiers.ends[0, row]) - low) * size, now])
                self.loading[row] = self.loads[-1]
        bringing = [number for number in range(int(tiers.control[0].stores)) if tiers.stores[number].gpu == 0]
        for number in [number for number in self.storing if number not in bringing]:
            self.storing.pop(number).append(now)
        for number in bringing:
            if number not in self.storing:
                copies = tiers.copies[: int(tiers.control[0].copies)]
                self.stores.append([int(tiers.stores[number].request), int((copies.store == number).sum()), now])
                self.storing[number] = self.stores[-1]
        while len(self.held) < len(self.rows):
            self.held.append(int(tiers.places[0].used))

    def columns(self) -> Columns:
        made = super().columns()
        made["admitted_computed_tokens"] = made.pop("admitted_hit_tokens")
        made["step_host_held"] = np.array(self.held)
        made["step_loads"] = np.array([row["reserved"] for row in self.rows])
        made |= _listed("load", ("request", "hit_tokens", "tokens", "start_ns", "end_ns"), self.loads)
        return made | _listed("store", ("request", "blocks", "start_ns", "end_ns"), self.stores)


def _listed(kind: str, names: tuple[str, ...], rows: list[list[int]]) -> Columns:
    """In the order in which they were asked for, with the time at which a copy began: after those before it."""
    before = 0
    rows = sorted(rows, key=lambda row: row[-2:])
    for row in rows:
        row[-2] = before = max(row[-2], before)
        before = row[-1]
    return {f"{kind}_{name}": np.array([row[at] for row in rows], np.int64) for at, name in enumerate(names)}


def replay(config: dict[str, Any], columns: Columns) -> Columns:
    """The recording's columns, as `engine=vllm` makes them, but for flushes, drops and refusals of a step."""
    plain = engine_of({**config, "groups": None})
    watched = WatchedHost(HearsAtOnce(**{one.name: getattr(plain, one.name) for one in fields(VLLM)}))
    size, costs = config["block_size"], [config[name] / 1e9 for name in ("step_ns", "token_ns", "context_token_ns")]
    host_memory = Tier(
        bytes=float(config["host_blocks"]),
        load_rate=1e9 / config["load_block_ns"],
        store_rate=1e9 / config["store_block_ns"],
        latency_s=config["load_latency_ns"] / 1e9,
    )
    with mock.patch.object(host.Host, "_under_way", _one_after_the_other):
        outcome = simulate(
            workload_of(columns, max_new_tokens=columns["output_tokens"], priority=columns["priority"]),
            gpus=1,
            policy=RoundRobin(),
            hardware=LinearCost(*costs, kv_tokens=config["num_blocks"] * size, context_length=config["max_model_len"]),
            engine=watched,
            lengths=Max(),
            overhead=Overhead(),
            duration_s=1.0,
            horizon="drain",
            seed=0,
            tiers=Tiering(kv_bytes=1.0 / size, host=host_memory, prompts_only=config.get("offload_prompt_only", True)),
            on_event=watched,
        )
    seen = {"preemptions": watched.mine.preemptions, "first_loaded_tokens": outcome.host_tokens}
    return watched.columns() | of_requests(columns, outcome) | seen


def _one_after_the_other(self: host.Host, owners: dict[int, links.Links]) -> links.UnderWay:
    made, first, places = links.joined(owners)
    self.links = Plug(None, one_after_the_other, made, addresses.LINK, LINK)
    return links.UnderWay(made.control, self.links.record, first, places)


NOT_COMPARED = {NAMES_OF_BLOCKS, "scheduled_blocks", "step_flush_ns", "step_host_dropped", "step_host_refused"}


EQUAL: set[str] = set()
"""recordings whose every column is the same"""
DIFFERENT = "vLLM hears of loads with a step's results, and offers blocks when it schedules the step that fills them"


def replays(path: Path) -> None:
    """Asserts that `engine=vllm` makes the columns of a recording, and no other."""
    config, recorded = load(path)
    ours = replay(config, recorded)
    assert set(ours) == set(recorded) - OF_STREAMS - NOT_COMPARED
    equal(ours, recorded)
