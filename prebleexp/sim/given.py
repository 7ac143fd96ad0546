"""What a run is given, and what of it does not go together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from prebleexp.errors import InvalidInput
from prebleexp.sim.migration import Migration
from prebleexp.sim.pools import DECODE, PREFILL, Disaggregation, with_legs
from prebleexp.sim.protocols import Accelerator, Batcher, DecisionCost, Entrance, Forecast, Router
from prebleexp.sim.tiering import Tiering
from prebleexp.sim.types import Setup, Workload


@dataclass(frozen=True)
class Given:
    """What a run is given (see `prebleexp.sim.simulate.simulate`)."""

    workload: Workload
    gpus: int
    policy: Router
    kinds: tuple[tuple[int, Accelerator], ...]
    engine: Batcher
    lengths: Forecast
    overhead: DecisionCost
    duration_s: float
    horizon: str
    seed: int
    reports_ms: float
    check: bool
    timeline: Any
    retries: bool
    pools: Disaggregation | None
    gateway: Entrance | None
    tiers: Tiering | None
    migration: Migration | None

    @property
    def hardware(self) -> Accelerator:
        """Of the first GPU."""
        return self.kinds[0][1]

    @cached_property
    def impatient(self) -> bool:
        """Whether requests may give up."""
        return bool(np.isfinite(self.workload.patience_s).any())

    @cached_property
    def rows(self) -> Workload:
        """What routers are asked about."""
        return self.workload if self.pools is None else with_legs(self.workload, self.pools.whole)

    def setup(self, kind: int | None = None) -> Setup:
        """For a kind of GPUs, or for routers, who know the first."""
        of, rows = self.kinds[kind or 0][1], self.rows
        if kind is not None and self.pools is not None and self.pools.whole and self.pools.roles[kind] == PREFILL:
            rows = with_legs(self.workload, False)
        sizes = (len(rows), of.kv_tokens, of.context_length)
        seams = (self.pools is not None, self.tiers is not None, self.migration is not None)
        store = () if self.tiers is None else (self.tiers.store_s,)
        return Setup(self.gpus, self.seed, *sizes, rows, of.gpu_name, of.gpu_memory_gib, *seams, *store)

    def refused(self, kind: int, setup: Setup) -> Any:
        """(n,) which requests a kind of GPUs could never do its part of."""
        rows = np.asarray(self.engine.refuses(setup))
        if self.pools is None:
            return rows
        requests, legs = np.split(rows, 2)
        return requests if self.pools.roles[kind] == DECODE else legs


def check_together(given: Given) -> None:
    """Raises InvalidInput for what the engine cannot do, and for what is not modelled at once."""
    engine, name = given.engine, type(given.engine).__name__
    faults, roles = len(given.timeline) > 0, given.pools is not None
    if faults and not engine.loses:
        raise InvalidInput(f"engine {name} has no lose, and GPUs have faults")
    others = {"GPUs have faults": faults, "requests have patience_s": given.impatient}
    if given.pools is not None:
        if not engine.pulls:
            raise InvalidInput(f"engine {name} has no pull, arrive and let_go, and GPUs have roles")
        engine.check_roles()
        _refuse_beside("GPUs have roles", others | {"requests pass a gateway": given.gateway is not None})
    if given.tiers is not None:
        if not engine.fetches:
            raise InvalidInput(f"engine {name} has no fetch, offload and landed, and there are tiers")
        engine.check_tiers()
        _refuse_beside("there are tiers", others | {"GPUs have roles": roles})
    if given.migration is not None:
        if not engine.moves:
            raise InvalidInput(f"engine {name} has no move, copied, stop and abandon, and requests are moved")
        engine.check_moves()
        kinds = {
            "GPUs are of several kinds": len(given.kinds) > 1,
            "requests pass a gateway": given.gateway is not None,
        }
        _refuse_beside(
            "requests are moved", kinds | {"GPUs have roles": roles, "there are tiers": given.tiers is not None}
        )


def _refuse_beside(what: str, others: dict[str, bool]) -> None:
    for other, there in others.items():
        if there:
            raise InvalidInput(f"{other}, and {what}; only one of the two is modelled at once")
