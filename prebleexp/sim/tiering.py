"""What a run with tiers of KV is given: their sizes, their links, and when KV is loaded from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from prebleexp.sim import links
from prebleexp.sim.arrays import unset
from prebleexp.sim.children import slots
from prebleexp.sim.keeping import MOST_OFFERED
from prebleexp.sim.records import NONE
from prebleexp.sim.tiers import (
    ALWAYS,
    COPY,
    FETCH,
    ORDER,
    ORDERS,
    PEERS,
    PLACE,
    SHARED,
    STOCK,
    STORE,
    TIER,
    TIERS,
    WANTED,
    Tiers,
)
from prebleexp.sim.types import ONE_TABLE, Tables, records


@dataclass(frozen=True)
class Tier:
    """One tier, as a run is given it."""

    bytes: float
    """of each place"""
    load_rate: float
    """bytes a second to each GPU"""
    store_rate: float
    """… and from each"""
    latency_s: float
    choose: int = ALWAYS
    least_tokens: int = 0
    sharing: int = links.FIFO
    """of its links (see `prebleexp.sim.links`)"""
    total_rate: float = float("inf")
    """bytes a second of all loads together, and of all stores"""
    adaptive: bool = False
    """whether it drops by ARC's rule, not by LRU's"""
    store_threshold: int = 0
    """offers of a block, of which the last stores it; 0 or 1: the first"""

    @property
    def fastest(self) -> float:
        """Bytes a second of a load that is alone."""
        return min(self.load_rate, self.total_rate)


@dataclass(frozen=True)
class Tiering:
    """What a run with tiers is given."""

    kv_bytes: float
    """of a token"""
    host: Tier | None = None
    """of each GPU"""
    shared: Tier | None = None
    """of all"""
    disk: Tier | None = None
    """of each GPU, behind the host"""
    peers: Tier | None = None
    """what other GPUs have: of no bytes, at the rates at which each receives (`load_rate`) and sends (`store_rate`)"""

    prompts_only: bool = False
    """whether blocks that have a generated token are not stored"""

    @property
    def loads_s(self) -> tuple[tuple[float, float], ...]:
        """Of each of them: seconds that a load takes which is alone, and a token of it; infinite without one."""
        return tuple((one.latency_s, self.kv_bytes / one.fastest) if one else (np.inf, np.inf) for one in self._given())

    def each(self) -> list[Tier]:
        """All tiers in the order of `prebleexp.sim.tiers`; one that is not there has no room."""
        return [one or NO_TIER for one in self._given()]

    def _given(self) -> tuple[Tier | None, ...]:
        return self.host, self.disk, self.shared, self.peers

    def tiers(
        self, gpus: int, block_tokens: int, context_blocks: Any, held: int, again: bool, tables: Tables = ONE_TABLE
    ) -> Tiers:
        """Empty ones. `context_blocks`: (n,) full blocks that each request has at most, in each table; `held`: blocks
        of all GPUs; `again`: whether a request may come to one GPU after the other."""
        context_blocks = context_blocks * tables.number
        n, block_bytes = len(context_blocks), self.kv_bytes * block_tokens * tables.share
        of_all = int(context_blocks.sum())
        control, tiers = records(1, STOCK), records(TIERS, TIER)
        control.free_copy = control.free_store = NONE
        control.numbers, control.kv_bytes = int(context_blocks.max(initial=0)) + 1, block_bytes
        control.block_tokens, control.peers = block_tokens, self.peers is not None
        control.tables, control.told = tables.number, tables.number - 1 - tables.told
        control.prompts_only = self.prompts_only
        copies = other = 0
        for kind, one in enumerate(self.each()):
            tiers[kind].blocks = min(int(one.bytes // block_bytes), 2**40)
            tiers[kind].rule, tiers[kind].least_tokens = one.choose, one.least_tokens
            tiers[kind].adaptive, tiers[kind].threshold = one.adaptive, one.store_threshold
            tiers[kind].in_line = one.sharing == links.FIFO
            tiers[kind].first = kind * _places(gpus)
            alike, all_there = 1 if kind == SHARED else gpus, of_all * (gpus if again else 1)
            copies += min(int(tiers[kind].blocks) * alike, all_there)
            other += min(2 * int(tiers[kind].blocks) * alike, all_there) if one.adaptive else 0
            other += min(MOST_OFFERED * alike, all_there) if one.store_threshold > 1 else 0
        places, fetches = records(_places(gpus), PLACE), records(n, FETCH)
        orders = records(_places(gpus) * ORDERS, ORDER).reshape(_places(gpus), ORDERS)
        orders.oldest = orders.newest = fetches.next = fetches.holds = NONE
        slot_keys, slot_nodes = slots(max(1, copies + other))
        stores = unset(min(PEERS * of_all * (gpus if again else 1), copies), STORE)  # each brings a copy
        return Tiers(
            control=control,
            tiers=tiers,
            places=places,
            orders=orders,
            copies=unset(copies + other + PEERS * n, COPY),  # and one for each request where its begin in the order
            slot_keys=slot_keys,
            slot_nodes=slot_nodes,
            stores=stores,
            wanted=records(gpus * n * tables.number, WANTED).reshape(gpus, n, tables.number),
            turns=np.ones(gpus, np.int64),
            wants=np.zeros(gpus, np.int64),
            unsent=np.full((gpus, 2), NONE),
            fetches=fetches,
            ends=np.zeros((TIERS, n), np.int32),
            loading=np.full(gpus, NONE),
            tried=np.zeros((PEERS, n), np.int32),
            jobs=np.zeros(n, np.int64),
            uses=np.zeros((PEERS, of_all), np.uint8),
            first=np.append(0, np.cumsum(context_blocks)),
            markers=np.full((PEERS, n), NONE, np.int32),
            tokens=np.zeros((TIERS, n), np.int32),
            totals=np.zeros((TIERS, gpus), np.int64),
            looked=np.zeros(gpus, np.int64),
            ended=np.zeros(gpus, np.int64),
        )

    def links(self, gpus: int, requests: int, stores: int) -> links.Links:
        """Of loads, subject tier · n + request, and of so many stores at once, subject `TIERS` · n + its number."""
        at_once = TIERS * requests + stores
        made = links.made_links(at_once, TIERS * _places(gpus), links.FIFO, np.inf, 0.0)
        for kind, one in enumerate(self.each()):
            for side in (0, TIERS * _places(gpus)):
                ports = made.ports[side + kind * _places(gpus) :][: _places(gpus)]
                ports.sharing, ports.latency_s = one.sharing, one.latency_s
                ports.rate[:gpus], ports.rate[gpus : 2 * gpus] = one.load_rate, one.store_rate
                ports.rate[2 * gpus :] = one.total_rate
        return made


NO_TIER = Tier(bytes=0.0, load_rate=1.0, store_rate=1.0, latency_s=0.0)


def _places(gpus: int) -> int:
    return 2 * gpus + 1
