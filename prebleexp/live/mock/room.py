"""What a mock has room for: requests of any length, in rows that are used again."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.live.mock.prompts import IDS
from prebleexp.sim.emptied import Emptied
from prebleexp.sim.host import Host
from prebleexp.sim.records import Prompts
from prebleexp.sim.stepped import Stepped
from prebleexp.sim.types import Workload

ONE = np.ones(1, np.int32)


class Full(Exception):
    """There is no row for one more request."""


class Rows:
    """Of requests: one that has ended may be another's if the engine does not remember it."""

    def __init__(self, host: Host, rows: int) -> None:
        self._host, self._few = host, rows // 8
        self._unused, self._ended = deque(range(rows)), deque[int]()

    def take(self) -> int:
        """One that nobody remembers, the longest unused first. Raises Full."""
        if not self._unused:
            self._reclaim()
            if len(self._unused) < self._few:  # the cache names too many
                for gpu in range(len(self._host.kind_of)):
                    emptied(self._host).forget(gpu)
                self._reclaim()
        if not self._unused:
            raise Full("there is no room for one more request")
        return self._unused.popleft()

    def ended(self, row: int) -> None:
        self._ended.append(row)

    def _reclaim(self) -> None:
        remembered = self._host.batcher.remembers(self._host.kinds[0].engine.mine)
        kept = set(() if remembered is None else remembered.tolist())
        ended, self._ended = self._ended, deque()
        for row in ended:
            (self._ended if row in kept else self._unused).append(row)


def emptied(host: Host) -> Emptied:
    """Empties caches of a host's GPUs when asked to by HTTP: engines, batcher and world that this takes."""
    return Emptied(host.batcher, [kind.engine for kind in host.kind_of], host.world)


def check(cell: Cell) -> None:
    engine = type(cell.engine).__name__
    if engine not in ("VLLM", "SGLang"):
        name = cell.names.get("engine", engine)
        raise InvalidInput(f"engine={name} cannot be a mock: it keeps its cache by all requests; say vllm or sglang")
    if len(cell.sizes) > 1:
        raise InvalidInput("cluster.groups has several kinds of GPUs, and a mock has one; start one for each kind")
    for what, there in (
        ("roles", cell.cluster.pools(cell.policy) is not None),
        ("tiers", cell.cluster.tiers(cell.hardware.kv_bytes) is not None),
        ("migration", cell.cluster.moves(cell.hardware.kv_bytes) is not None),
        ("replicas of the router", cell.gateway.replication is not None),
        ("an autoscaler", runs.asked_of(cell)["autoscaler"] is not None),
    ):
        if there:
            raise InvalidInput(f"the cell has {what}, and GPUs of a mock each have a port of their own")
    if cell.engine.draws:
        raise InvalidInput("engine.speculative_config is not valid with mock: it writes token by token; leave it out")
    if not cell.adapters.changes_nothing:
        raise InvalidInput("adapters= is not valid with mock: it serves one model; take adapters=none")


def room_for(rows: int, context_length: int) -> Workload:
    """Room for so many requests of any length."""
    some = np.arange(rows, dtype=np.int32)
    workload = Workload(np.zeros(1), ONE, ONE, ONE, -ONE, np.arange(2), ONE, ONE)
    columns: dict[str, Any] = {
        name: np.repeat(column[:1], rows)
        for name, column in vars(workload).items()
        if isinstance(column, np.ndarray) and column.shape == (1,)
    }
    columns |= {"segment_offsets": np.arange(rows + 1), "after_offsets": np.zeros(rows + 1, np.int64)}
    columns |= {"output_tokens": np.full(rows, context_length, np.int32), "patience_s": np.ones(rows)}
    columns |= {"max_new_tokens": columns["output_tokens"], "segment_ids": np.where(some == 0, IDS - 1, 0)}
    columns["segment_ids"] = columns["segment_ids"].astype(np.int32)
    return workload.changed(**columns)


def give_room(run: Stepped, segments: int) -> None:
    """For prompts of so many segments, of which none is touched before it is used."""
    rows = Prompts(np.zeros(segments, np.int32), np.zeros(segments, np.int32))
    for names in (("seen", "prompts"), ("decode_seen", "prompts"), ("cache", "prompts")):
        run.host.world.put(names, rows)
    run.host.routers.look(run.host.world)
