"""Recordings of vLLM's engine with its offloading connector, and `engine=vllm` driven and watched as they were."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partialmethod
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import numpy as np

from prebleexp.engines.vllm.engine import VLLM
from prebleexp.engines.vllm.records import STEPS
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
from prebleexp.sim.tiers import SENT, UNHEARD
from tests.support.costs.linear_cost import LinearCost
from tests.support.hears_at_once import HearsAtOnce
from tests.support.recordings import one_after_the_other
from tests.support.recordings.columns import Columns, load
from tests.support.recordings.engines import ns, of_requests, recordings
from tests.support.recordings.vllm import (
    NAMES_OF_BLOCKS,
    OF_STREAMS,
    Grouped,
    Scripted,
    Watched,
    engine_of,
    equal,
    stream_of,
)
from tests.support.shared_code import shares_code

OFFLOADS = recordings("vllm_features", "offload_*.npz")
RESERVED = int(State.RESERVED)


@shares_code(VLLM)
@dataclass(frozen=True)
class GroupedHearsAtOnce(Grouped):
    idle_poll_s: ClassVar[float] = 0.0


class WatchedHost(Watched):
    """An engine with a host behind its cache: its loads and its stores, too."""

    tells_groups = False

    def __init__(self, engine: VLLM) -> None:
        super().__init__(engine)
        self.loading: dict[int, list[int]] = {}
        self.storing: dict[tuple[int, int], list[int]] = {}
        self.loads: list[list[int]] = []
        """of each its request, tokens that the GPU had, tokens, when it was asked for, when it was over, in ns"""
        self.stores: list[list[int]] = []
        """of each its request, blocks, when it was asked for, when it was over, in ns"""

    def __call__(self, world: Any) -> None:
        super().__call__(world)
        now, tiers, size = round(float(world.control.now) * 1e9), world.tiers, self.mine.settings.block_size
        coming, row = [], int(tiers.loading[0])
        while row != NONE:
            if tiers.fetches[row].asked and tiers.fetches[row].coming != UNHEARD:
                coming.append(row)
            row = int(tiers.fetches[row].next)
        for row in [row for row in self.loading if row not in coming]:
            self.loading.pop(row).append(now)
        for row in coming:
            if row not in self.loading:
                low = int(tiers.fetches[row].low)
                groups, end = self.mine.groups, int(tiers.ends[0, row]) * size
                if groups is not None and groups.full < len(groups.order):  # the last token is not of it
                    end = min(end, int(self.mine.jobs[row].known) - 1)
                self.loads.append([row, low * size, end - low * size, now])
                self.loading[row] = self.loads[-1]
        stores = tiers.stores[: int(tiers.control[0].stores)]
        sent = {(int(one.step), at): one for at, one in enumerate(stores) if one.gpu == 0 and one.stage == SENT}
        for store in [store for store in self.storing if store not in sent]:
            self.storing.pop(store).append(now)
        for store in sorted(set(sent) - set(self.storing)):
            self.stores.append([int(sent[store].request), int(sent[store].blocks), now])
            self.storing[store] = self.stores[-1]
        for row in self.rows[-STEPS:]:
            if row["of"] >= self.seen - STEPS:
                row["waited_s"] = float(self.mine.steps[0, int(row["slot"])].waited_s)

    def forget_from(self, time_s: float) -> None:
        """As if nothing had been scheduled from then on."""
        kept = sum(row["scheduled_s"] < time_s for row in self.rows)
        self.rows = self.rows[:kept]
        self.lists = {name: values[:kept] for name, values in self.lists.items()}

    def columns(self) -> Columns:
        made = super().columns()
        made["admitted_computed_tokens"] = made.pop("admitted_hit_tokens")
        for name, field in OF_HOST.items():
            made[name] = np.array([row[field] for row in self.rows])
        waits = [max(0.0, row["waited_s"] - row["scheduled_s"]) for row in self.rows]
        made["step_flush_ns"] = ns(waits)
        made |= _listed("load", ("request", "hit_tokens", "tokens", "start_ns", "end_ns"), self.loads)
        return made | _listed("store", ("request", "blocks", "start_ns", "end_ns"), self.stores)


OF_HOST = {
    "step_loads": "reserved",
    "step_host_held": "kept",
    "step_host_dropped": "dropped",
    "step_host_refused": "refused",
}


def _listed(kind: str, names: tuple[str, ...], rows: list[list[int]]) -> Columns:
    """In the order in which they were asked for, with the time at which a copy began: after those before it."""
    before = 0
    rows = sorted(rows, key=lambda row: row[-2:])
    for row in rows:
        row[-2] = before = max(row[-2], before)
        before = row[-1]
    return {f"{kind}_{name}": np.array([row[at] for row in rows], np.int64) for at, name in enumerate(names)}


def replay(config: dict[str, Any], columns: Columns) -> Columns:
    """The recording's columns, as `engine=vllm` makes them."""
    engine = engine_of(config)
    at_once = GroupedHearsAtOnce if config.get("groups") else HearsAtOnce
    served: Any = at_once(**{one.name: getattr(engine, one.name) for one in fields(engine)})
    longer = _with_one_more(columns)
    watched = WatchedHost(Scripted(served, longer) if "accepts" in columns else served)
    size, costs = config["block_size"], [config[name] / 1e9 for name in ("step_ns", "token_ns", "context_token_ns")]
    host_memory = Tier(
        bytes=float(config["host_blocks"]),
        load_rate=1e9 / config["load_block_ns"],
        store_rate=1e9 / config["store_block_ns"],
        latency_s=config["load_latency_ns"] / 1e9,
        adaptive=config.get("eviction_policy") == "arc",
        store_threshold=config.get("store_threshold", 0),
    )
    store_latency_s = config["store_latency_ns"] / 1e9
    with mock.patch.object(host.Host, "_under_way", partialmethod(_one_after_the_other, store_latency_s)):
        outcome = simulate(
            stream_of(longer, longer["priority"]),
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
    watched.forget_from(LATER_S)
    n = len(columns["arrival_ns"])
    made = watched.columns()
    found = {"first_cached_tokens": outcome.hit_tokens[:n], "first_loaded_tokens": outcome.host_tokens[:n]}
    never = ~np.isin(np.arange(n), [*made["admitted_request"], *made["load_request"]])
    found = {name: np.where(never, -1, values) for name, values in found.items()}
    of_all = {name: values[:n] for name, values in of_requests(longer, outcome).items()}
    return made | of_all | found | {"preemptions": watched.mine.preemptions[:n]}


LATER_S = 1e6
"""when one request more comes: a run ends with its last request, and a recording with its last store"""


def _with_one_more(columns: Columns) -> Columns:
    """… of a token that nobody else has."""
    ends = {
        "arrival_ns": round(LATER_S * 1e9),
        "output_tokens": 1,
        "priority": 0,
        "prefix_group": -1,
        "output_segment": -1,
        "segment_offsets": columns["segment_offsets"][-1] + 1,
        "segment_ids": max(columns["segment_ids"].max(), columns["output_segment"].max()) + 1,
        "segment_tokens": 1,
    }
    ends |= {"lora": 0} if "lora" in columns else {}
    scripts = {name: np.pad(columns[name], ((0, 1), (0, 0))) for name in ("accepts", "drafts") if name in columns}
    return scripts | {name: np.append(columns[name], values) for name, values in ends.items()}


def _one_after_the_other(self: host.Host, store_latency_s: float, owners: dict[int, links.Links]) -> links.UnderWay:
    made, first, places = links.joined(owners)
    made.ports.latency_s[1] = store_latency_s
    self.links = Plug(None, one_after_the_other, made, addresses.LINK, LINK)
    return links.UnderWay(made.control, self.links.record, first, places)


def replays(path: Path) -> None:
    """Asserts that `engine=vllm` makes the columns of a recording, and no other."""
    config, recorded = load(path)
    ours = replay(config, recorded)
    assert set(ours) == set(recorded) - OF_STREAMS - {NAMES_OF_BLOCKS}
    equal(ours, recorded)
