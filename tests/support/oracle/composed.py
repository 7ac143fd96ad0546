"""The second simulator of several features at once: their layers, one above the other, and what they share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from prebleexp.sim.pools import BOTH, RESERVE_FIRST
from prebleexp.sim.types import Outcome, State, Workload
from tests.support.oracle.core import ARRIVED, Job, Oracle
from tests.support.oracle.faults import FaultyOracle
from tests.support.oracle.gateway import LinearGateway
from tests.support.oracle.gateway_pools import BeforeRoles, GatedPools, GatedReserving
from tests.support.oracle.lockstep import Lockstep
from tests.support.oracle.moves import MovesGpu, MovesOracle
from tests.support.oracle.pipelined import PipelinedOracle
from tests.support.oracle.pools import Linked, PoolsOracle, Puller
from tests.support.oracle.replicas import GatedReplicas, ReplicasOracle
from tests.support.oracle.reserving import ReservingOracle
from tests.support.oracle.scaling import ScaledOracle
from tests.support.oracle.split_faults import SplitOracle
from tests.support.oracle.tiered_pools import HANDOFFS, PullsAndFetches, SplitTieredGpu, TieredPools
from tests.support.oracle.tiers import Fetcher, TieredGpu, TiersOracle
from tests.support.reference.vllm import Request

USUAL = {"reports_ms": 0.0, "kinds": (), "faults": None, "pools": None}
FEATURES = ("tiers", "autoscaler", "migration", "gateway", "replicas")
MOVES = 1 << 30
"""what is under way of moves comes after all that is of tiers"""


class MovingGpu(MovesGpu, TieredGpu):
    """With tiers. Whoever was moved and whoever has loaded its KV wait in the order in which they took blocks."""

    def _scheduler(self, config: dict[str, Any]) -> Puller:
        self.begin_anew()
        self.moved = set[Request]()
        return self._fetcher(config)

    def _fetcher(self, config: dict[str, Any]) -> Puller:
        return Fetcher(config, self)

    def moved_in(self) -> set[Request]:
        self.moved &= set(self.of.skipped)
        return set(self.moved)

    def goes_on(self, request: Request) -> None:
        request.running = False
        self.of.skipped.append(request)
        self.moved.add(request)

    def ready(self) -> bool:
        return any(request not in self.of.coming for request in self.of.skipped)

    def _may_wait(self) -> bool:
        return True


class MovingTiers(MovesOracle, TiersOracle):
    """Requests that are moved, and tiers, over links that are one."""

    def _gpu(self, g: int, engine: Any, hardware: Any) -> Any:
        return MovingGpu(g, BOTH, engine, hardware, self.rows, self)

    def link(self, of: Any) -> None:
        rates = dict.fromkeys(("load_rate", "store_rate", "total_rate"), of.rate)
        self.tiers.append(SimpleNamespace(sharing=of.sharing, latency_s=of.latency_s, **rates))  # type: ignore[arg-type]

    def _send_part(self, source: int, target: int, size: float, now: float) -> None:
        of = len(self.tiers) - 1
        self.ways.ask(MOVES + source, [(0, of, 0, source), (1, of, 0, target)], size, now)

    def _is_move(self, subject: int) -> bool:
        return MOVES <= subject < HANDOFFS

    def _is_of(self, subject: int) -> int:
        return subject - MOVES

    def _has_come(self, source: int, now: float) -> bool:
        return self.ways.arrives(MOVES + source, now)

    def _hand_to(self, request: Request, source: Any, target: Any, now: float) -> None:
        source.part(request, holds=False)
        super()._hand_to(request, source, target, now)


class BetweenRoles(MovesOracle, SplitOracle):
    """Whose prompt is computed anew, of both of its parts policies hear anew."""

    def _finds_nothing(self, g: int, now: float) -> None:
        PoolsOracle._finds_nothing(self, g, now)

    def _go_on(self, job: Job, now: float) -> None:
        if job.index >= self.n or job.state not in (State.HELD, State.UNROUTED):
            self.closed[self._leg(job).index] = False
        super()._go_on(job, now)


class MovingPools(BetweenRoles):
    """Requests that are moved between GPUs of one role: what is under way of moves comes before prompts."""

    def _gpu(self, g: int, engine: Any, hardware: Any) -> Any:
        return MovesGpu(g, self.roles[g], engine, hardware, self.rows, self)

    def _is_move(self, subject: int) -> bool:
        return subject < len(self.gpus)

    def _send_part(self, source: int, target: int, size: float, now: float) -> None:
        Linked.send(self, source, source, target, size, now, link=1)

    def _has_come(self, source: int, now: float) -> bool:
        return Linked._arrives(self, source, now)

    def send(self, subject: int, source: int, target: int, size: float, now: float, link: int = 0) -> None:
        super().send(len(self.gpus) + subject, source, target, size, now)

    def drop(self, subject: int, now: float) -> None:
        super().drop(len(self.gpus) + subject, now)

    def _arrives(self, index: int, now: float) -> bool:
        return super()._arrives(len(self.gpus) + index, now)

    def _handed_over(self, kind: int, subject: int) -> int:
        return subject - len(self.gpus) if kind == ARRIVED else subject


class MovingTieredPools(MovingTiers, BetweenRoles, TieredPools):
    def _gpu(self, g: int, engine: Any, hardware: Any) -> Any:
        return MovingSplitGpu(g, self.roles[g], engine, hardware, self.rows, self)

    def _ports(self, source: int, target: int) -> Any:
        of = len(self.tiers) - 2  # what moves go over is behind it
        return [(0, of, 0, source), (1, of, 0, target)]


class MovingSplitGpu(MovingGpu, SplitTieredGpu):
    def _fetcher(self, config: dict[str, Any]) -> Puller:
        return PullsAndFetches(config, self)

    def with_blocks(self) -> set[Request]:
        return self.moved_in() | SplitTieredGpu.with_blocks(self)

    def ready(self) -> bool:
        return bool(self.of._ready())  # type: ignore[attr-defined]


class GatedTieredPools(BeforeRoles, TieredPools):
    """GPUs with roles and tiers, behind a gateway."""


def layers(of: Any) -> list[type[Oracle]]:
    """Those that a run has, the highest first: the last says what GPUs are."""
    hardware = [one for _, one in of.kinds] or [of.hardware]
    above: list[type[Oracle]] = [Lockstep] if any(one.ranks > 1 for one in hardware) else []
    above += [ScaledOracle] if of.autoscaler is not None else []
    if of.replicas is not None:
        above.append(ReplicasOracle if of.gateway is None else GatedReplicas)
    if of.pools is not None:
        return [*above, *_of_pools(of)]
    above += [LinearGateway] if of.gateway is not None else []
    if of.migration is not None:
        return [*above, MovesOracle if of.tiers is None else MovingTiers]
    if of.tiers is not None:
        return [*above, TiersOracle]
    return [*above, PipelinedOracle if any(one.stages > 1 for one in hardware) else FaultyOracle]


def _of_pools(of: Any) -> list[type[Oracle]]:
    if of.pools.protocol == RESERVE_FIRST:
        return [ReservingOracle if of.gateway is None else GatedReserving]
    if of.migration is not None:
        gateway: list[type[Oracle]] = [] if of.gateway is None else [BeforeRoles]
        return [*gateway, MovingPools if of.tiers is None else MovingTieredPools]
    if of.tiers is not None:
        return [TieredPools if of.gateway is None else GatedTieredPools]
    if of.gateway is not None:
        return [GatedPools]
    return [PoolsOracle if of.faults is None and of.autoscaler is None else SplitOracle]


def simulate(workload: Workload, **given: Any) -> Outcome:
    """As `prebleexp.sim.simulate.simulate` with `engine=vllm`, of lengths Max."""
    of = SimpleNamespace(**{**USUAL, **dict.fromkeys(FEATURES), **given})
    return type("Composed", tuple(layers(of)), {})(workload, of).run()
