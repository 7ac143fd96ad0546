"""What a run is given, and what of it does not go together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from prebleexp.errors import InvalidInput
from prebleexp.sim import records
from prebleexp.sim.changes import NOTHING, Terms
from prebleexp.sim.compatibility import FEATURES, PROTOCOLS, refuse
from prebleexp.sim.migration import Migration
from prebleexp.sim.pools import DECODE, NAMES, PREFILL, PULL, Disaggregation, with_legs
from prebleexp.sim.protocols import Accelerator, Batcher, DecisionCost, Entrance, Faulty, Forecast, Router
from prebleexp.sim.replicated import Replication
from prebleexp.sim.scaling import Scaled, Scales
from prebleexp.sim.tiering import Tiering
from prebleexp.sim.types import Setup, Steps, Workload
from prebleexp.sim.warmth import Before

MODES = {"none": records.NO_OVERHEAD, "recorded": records.RECORDED, "serial": records.SERIAL}
PAUSE = 1 << 15
"""events between two looks at signals: some milliseconds"""


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
    faults: Faulty | None
    pools: Disaggregation | None
    gateway: Entrance | None
    tiers: Tiering | None
    replicas: Replication | None
    autoscaler: Scales | None
    migration: Migration | None
    gaps_of_each: bool
    before: Before | None = None
    engines: tuple[Batcher, ...] = ()

    @property
    def hardware(self) -> Accelerator:
        """The hardware of the first kind of GPU."""
        return self.kinds[0][1]

    def engine_of(self, kind: int) -> Batcher:
        return self.engines[kind] if self.engines else self.engine

    @property
    def retries(self) -> bool:
        """Whether requests that are lost are routed again …"""
        return self.faults is not None and self.faults.retries

    @property
    def resumes(self) -> bool:
        """… and continue after what was shown."""
        return self.faults is not None and self.faults.resumes

    @property
    def terms(self) -> Terms:
        """On which GPUs come and go."""
        if self.faults is None:
            return Terms((0.0,) * self.gpus, False, math.inf)
        start_s = [self.faults.start_s(hardware) for count, hardware in self.kinds for _ in range(count)]
        return Terms(tuple(start_s), self.faults.requeues, self.faults.limit_s)

    def scaled(self) -> list[Scaled]:
        """GPUs whose number an autoscaler says: all, or those of each role that it has a rule for."""
        if self.autoscaler is None:
            return []
        if self.pools is None:
            rule = self.autoscaler.of_role(None)
            return [] if rule is None else [Scaled(rule, self.setup(), np.arange(self.gpus), 0)]
        second = DECODE if self.pools.prompts_first else PREFILL
        of = np.repeat(self.pools.roles, [count for count, _ in self.kinds])
        rules = {role: self.autoscaler.of_role(NAMES[role]) for role in dict.fromkeys(self.pools.roles)}
        return [
            Scaled(rule, self.setup(self.pools.roles.index(role)), np.flatnonzero(of == role), int(role == second))
            for role, rule in rules.items()
            if rule is not None
        ]

    @cached_property
    def impatient(self) -> bool:
        """Whether any request has a patience, in seconds, after which its client gives up."""
        return bool(np.isfinite(self.workload.patience_s).any())

    @property
    def wanders(self) -> bool:
        """Whether a request may come to one GPU after another."""
        return FEATURES["faults"](self) or self.migration is not None

    @cached_property
    def rows(self) -> Workload:
        """The stream that routers are asked about: requests, or their legs where prefill and decode are apart."""
        return self.workload if self.pools is None else with_legs(self.workload, self.pools.whole)

    def setup(self, kind: int | None = None) -> Setup:
        """For a kind of GPUs, or for routers, who know the first."""
        of, rows = self.kinds[kind or 0][1], self.rows
        if kind is not None and self.pools is not None and self.pools.roles[kind] == PREFILL:
            if FEATURES["resume"](self):  # what is shown comes behind prompts
                rows = with_legs(self.workload, True).changed(answer_segment=rows.answer_segment)
            elif self.pools.whole:
                rows = with_legs(self.workload, False)
        sizes = (len(rows), of.kv_tokens, of.context_length)
        pulls = self.pools is not None and self.pools.protocol == PULL
        seams = (self.pools is not None, pulls, self.tiers is not None, self.migration is not None)
        loads = Setup.loads_s if self.tiers is None else self.tiers.loads_s
        known = (of.gpu_name, of.gpu_memory_gib, of.layer_kinds)
        counted = self.overhead.mode != "none"
        first = sum(count for count, _ in self.kinds[: kind or 0])
        reads = self.pools is not None and pulls and self.pools.roles[kind or 0] == DECODE
        together: dict[str, Any] = {"ranks": of.ranks, "first": first, "stages": of.stages, "reads": reads}
        together["decodes"] = reads and self.pools is not None and self.pools.prompts_first
        made = Setup(self.gpus, self.seed, *sizes, rows, *known, *seams, loads, counted, **together)
        return made if kind is not None else replace(made, steps=self._steps())

    def _steps(self) -> tuple[Steps, ...]:
        """Of each GPU."""
        kinds = enumerate(self.kinds)
        return tuple(one for k, (n, _) in kinds for one in (self.engine_of(k).steps(self.setup(k)),) * n)

    def refused(self, kind: int, setup: Setup) -> Any:
        """(n,) which requests a kind of GPUs could never do its part of."""
        rows = np.asarray(self.engine_of(kind).refuses(setup))
        if self.pools is None:
            return rows
        requests, legs = np.split(rows, 2)
        return requests if self.pools.roles[kind] == DECODE else legs


def given_of(
    workload: Workload,
    *,
    gpus: int,
    hardware: Accelerator,
    kinds: Sequence[tuple[int, Accelerator]],
    duration_s: float,
    seed: int,
    faults: Faulty | None,
    **rest: Any,
) -> Given:
    """What a run is given, gathered from the arguments of `prebleexp.sim.simulate.simulate`, which says what they
    mean."""
    return Given(
        workload=workload,
        gpus=gpus,
        kinds=tuple(kinds) or ((gpus, hardware),),
        duration_s=duration_s,
        seed=seed,
        faults=faults,
        timeline=NOTHING if faults is None else faults.timeline(gpus, duration_s, seed),
        **rest,
    )


def check_together(given: Given) -> None:
    """Raises InvalidInput for what the engine cannot do, and for what is not modelled at once."""
    engine, name = given.engine, type(given.engine).__name__
    faults = FEATURES["faults"](given)
    if faults and not engine.loses:
        raise InvalidInput(f"engine {name} has no lose, and GPUs have faults")
    if faults and given.resumes and not engine.resumes:
        raise InvalidInput(f"engine {name} has no resumes, and requests that are lost continue after what was shown")
    if given.before is not None and engine.own_loop() is not None:
        raise InvalidInput(f"engine {name} has a loop of its own, and requests are served before time 0")
    if given.pools is not None:
        protocol = PROTOCOLS[given.pools.protocol]
        if protocol not in engine.protocols:
            raise InvalidInput(f"engine {name} has no protocol {protocol}, and GPUs have roles")
        for one in given.engines or (engine,):
            one.check_roles(protocol)
    if given.tiers is not None:
        if not engine.fetches:
            raise InvalidInput(f"engine {name} has no fetch, offload and landed, and there are tiers")
        for one in given.engines or (engine,):
            one.check_tiers(given.tiers.peers is not None)
    for _, hardware in given.kinds:
        if hardware.ranks * hardware.stages > 1 and not engine.parallel:
            raise InvalidInput(f"engine {name} is not parallel, and hardware has ranks that step together, or stages")
        if hardware.stages > 1:
            engine.check_stages()
    if given.migration is not None:
        if not engine.moves:
            raise InvalidInput(f"engine {name} has no move, copied, stop and abandon, and requests are moved")
        for one in given.engines or (engine,):
            one.check_moves()
        lengths = sorted({hardware.context_length for _, hardware in given.kinds}, reverse=True)
        if len(lengths) > 1:
            sizes = " and ".join(f"{length:,}" for length in lengths)
            raise InvalidInput(f"GPUs with contexts of {sizes} tokens; where requests are moved it must be the same")
    if given.gaps_of_each and engine.own_loop() is not None:
        raise InvalidInput(
            f"engine {name} does not count gaps between tokens, and slo limits them; it must have no slo.gap_p99_s and "
            "slo.gap_top10_s, or the engine be one without a loop of its own"
        )
    refuse(given)
