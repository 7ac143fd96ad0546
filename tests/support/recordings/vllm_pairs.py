"""Recordings of two of vLLM's engines over NIXL's connector, and `engine=vllm` driven and watched as they were."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from prebleexp.engines.vllm.engine import VLLM
from prebleexp.engines.vllm.groups import Grouping
from prebleexp.engines.vllm.records import PULLED, STEPS
from prebleexp.faults.base import Event
from prebleexp.faults.timeline import Timeline
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim.links import INFINITE
from prebleexp.sim.pools import DECODE, PREFILL, UNCACHED, Disaggregation
from prebleexp.sim.records import NONE
from prebleexp.sim.simulate import simulate
from prebleexp.sim.states import State
from prebleexp.sim.types import Layers, Outcome, Setup
from tests.support.costs.linear_cost import LinearCost
from tests.support.hears_at_once import HearsAtOnce
from tests.support.recordings import pulling_engine
from tests.support.recordings.columns import Columns, load
from tests.support.recordings.engines import ns, recordings
from tests.support.recordings.vllm import OF_STREAMS, Scripted, Watched, engine_of, equal, groups_of, stream_of
from tests.support.shared_code import shares_code

PAIRS = recordings("vllm_features", "pd_*.npz")
FAULTS = Timeline(on_loss="fail", happen=(Event(1e9, 0, "slow", 1.0),))
"""none, but KV may fail to arrive"""
RESERVED, FAILED = int(State.RESERVED), int(State.FAILED)


@dataclass(frozen=True)
class Pulling(HearsAtOnce):
    """One engine of a pair, with the groups and the pool that a recording says."""

    compiles: ClassVar[str] = pulling_engine.__name__
    groups: tuple[Layers, ...] = ()

    def grouping(self, setup: Setup) -> Grouping | None:
        return Grouping(self.groups, setup.kv_tokens // self.block_size) if self.groups else None


@shares_code(Pulling)
@dataclass(frozen=True)
class HearingLater(Pulling):
    """One that hears with a step's results of all that is over by then."""

    hears_at_results: ClassVar[bool] = True


class WatchedPart(Watched):
    """An engine of a pair: its news, too."""

    tells_groups = False

    def __init__(self, engine: VLLM, name: str, legs: int) -> None:
        super().__init__(engine, "pd".index(name))
        self.name, self.first = name, legs
        self.awaits: list[int] = []
        self.failed: dict[int, float] = {}
        self.heard: dict[int, float] = {}

    def __call__(self, world: Any) -> None:
        over = self.over
        super().__call__(world)
        self._note_failed(world, over)
        gpu, steps = self.mine.gpus[self.g], self.mine.steps[self.g]
        news: list[int] = []
        for row in (*(steps[n % STEPS].news for n in range(int(gpu.over), int(gpu.scheduled))), gpu.news):
            while row != NONE:
                news.append(int(row))
                row = self.mine.jobs[row].heap_left
        for row in self.awaits:
            if row not in news:
                self.heard[row - self.first] = float(world.control.now)
        self.awaits = news

    def _note_failed(self, world: Any, over: int) -> None:
        """Requests whose KV did not arrive end behind those that finish with the step that hears of it."""
        failed = set(np.flatnonzero(world.jobs.state == FAILED).tolist()) - set(self.failed)
        if not failed:
            return
        ended = [at for at, one in enumerate(self.rows) if one["of"] < self.over]
        heard = [at for at in ended if self.rows[at]["of"] >= over and self.rows[at]["heard"] > 0]
        for row in sorted(failed) if self.name == "d" else ():
            self.failed[row] = float(world.control.now)
            self.lists["finished_request"][(heard or ended)[-1]].append(row)
            for at in heard[-1:]:  # none, if that was a step without a request
                self.rows[at]["finished"] += 1

    def columns(self) -> Columns:
        made = super().columns()
        for name in ("reserved", "heard"):
            made[f"step_{name}"] = np.array([row[name] for row in self.rows], np.int64)
        made["heard_request"] = np.array(list(self.heard), np.int64)
        for name in made:
            if name.endswith("_request") and name != "heard_request":
                made[name] -= self.first
        return made


class Pair:
    """Both, and what is between them."""

    def __init__(self, config: dict[str, Any], columns: Columns) -> None:
        self.n = len(columns["arrival_ns"])
        self.parts = [
            WatchedPart(_engine(config, columns, name), name, legs) for name, legs in (("p", self.n), ("d", 0))
        ]
        self.fails = columns.get("fails", np.zeros(self.n, np.int64))
        self.reserved: dict[int, tuple[float, int, int, int]] = {}
        """of each request when, tokens found, blocks that were free, blocks that are read"""
        self.arrived: dict[int, float] = {}

    def __call__(self, world: Any) -> None:
        for part in self.parts:
            part(world)
        mine, now = self.parts[1].mine, float(world.control.now)
        rows = [row for row in range(self.n) if row not in self.reserved and mine.jobs[row].filling == PULLED]
        for row in sorted(rows, key=lambda row: int(mine.jobs[row].heap_key)):
            job, size = mine.jobs[row], mine.settings.block_size
            blocks = int(world.jobs[row].transferred_tokens) // size
            self.reserved[row] = now, int(job.keyed) * size, int(world.jobs[row].answer), blocks
            if self.fails[row]:
                job.computed = job.keyed * size if mine.groups is None else 0
        for row in self.reserved:
            if row not in self.arrived and world.jobs[row].state != RESERVED:
                self.arrived[row] = now

    def columns(self, columns: Columns, outcome: Outcome) -> Columns:
        made = {f"{one.name}_{name}": values for one in self.parts for name, values in one.columns().items()}
        reserved = list(self.reserved.values())
        for name, values in (("request", list(self.reserved)), ("hit_tokens", [one[1] for one in reserved])):
            made |= {f"d_reserved_{name}": np.array(values, np.int64), f"p_reserved_{name}": np.zeros(0, np.int64)}
        made["d_reserved_blocks"] = np.array([one[2] for one in reserved], np.int64)
        made["p_reserved_blocks"] = np.zeros(0, np.int64)
        p, d = self.parts
        when = {row: one[0] for row, one in self.reserved.items()}
        for name, known in (("reserved", when), ("arrived", self.arrived), ("heard", d.heard), ("released", p.heard)):
            made[f"{name}_ns"] = self._of_requests(known, 1e9)
        made["transferred_blocks"] = self._of_requests({row: one[3] for row, one in self.reserved.items()})
        made["d_cached_tokens"] = self._of_requests({row: one[1] for row, one in self.reserved.items()})
        remote = columns.get("remote", np.ones(self.n)) != 0
        made["p_cached_tokens"] = np.where(remote, outcome.hit_tokens, -1)
        made["p_preemptions"] = np.bincount(p.columns()["preempted_request"], minlength=self.n)
        made["d_preemptions"] = d.mine.preemptions[: self.n]
        ends = np.where(
            ~remote | np.isnan(outcome.prefill_end_s), -1e-9, outcome.prefill_end_s + columns["arrival_ns"] / 1e9
        )
        made["prefill_end_ns"] = ns(ends)
        made["first_token_ns"] = ns(outcome.ttft_s + columns["arrival_ns"] / 1e9)
        made["finish_ns"] = ns(outcome.finish_s)
        for row, at in d.failed.items():
            made["finish_ns"][row] = round(at * 1e9)
        return made

    def _of_requests(self, known: dict[int, Any], factor: float = 1.0) -> Any:
        made = np.full(self.n, -1, np.int64)
        for row, value in known.items():
            made[row] = round(value * factor)
        return made


def _engine(config: dict[str, Any], columns: Columns, name: str) -> Any:
    own = {**config, **config[name]}
    plain = engine_of(own)
    given = {one.name: getattr(plain, one.name) for one in fields(VLLM)}
    groups = groups_of(own) if own.get("groups") else ()
    kind = HearingLater if config.get("poll") == "results" else Pulling
    given["kv_load_failure_policy"] = config.get("failure_policy", "fail")
    engine = kind(**given, groups=groups)
    if "accepts" not in columns:
        return engine
    legs = {
        name: np.pad(columns[name], ((0, len(columns[name])), (0, 0)))
        for name in ("accepts", "drafts")
        if name in columns
    }
    return Scripted(engine, legs)


def replay(config: dict[str, Any], columns: Columns) -> Columns:
    """The recording's columns, as two of `engine=vllm` make them."""
    pair, n = Pair(config, columns), len(columns["arrival_ns"])
    costs = [config[name] / 1e9 for name in ("step_ns", "token_ns", "context_token_ns")]
    size, longest = config["block_size"], config["max_model_len"]
    kinds = [
        (1, LinearCost(*costs, kv_tokens=config[one]["num_blocks"] * size, context_length=longest)) for one in "pd"
    ]
    stays = 1 - columns.get("remote", np.ones(n, np.int64))
    local = {"decider": UNCACHED, "least_tokens": 1} if stays.any() else {}
    outcome = simulate(
        stream_of(columns, stays),
        gpus=2,
        policy=RoundRobin(),
        hardware=kinds[0][1],
        kinds=kinds,
        engine=pair.parts[0],
        engines=pair.parts,
        lengths=Max(),
        overhead=Overhead(),
        duration_s=1.0,
        horizon="drain",
        seed=0,
        pools=Disaggregation(
            roles=(PREFILL, DECODE),
            decode_policy=RoundRobin(),
            kv_bytes=1.0 / size,
            sharing=INFINITE,
            rate=1e9 / config["link_block_ns"],
            latency_s=config["link_latency_ns"] / 1e9,
            **local,
        ),
        on_event=pair,
        faults=FAULTS if "fails" in columns else None,
    )
    return pair.columns(columns, outcome)


def replays(path: Path) -> None:
    """Asserts that two of `engine=vllm` make every column of a recording, and no other."""
    config, recorded = load(path)
    ours = replay(config, recorded)
    assert set(ours) == set(recorded) - OF_STREAMS - {"remote", "fails"}
    equal(ours, recorded)
