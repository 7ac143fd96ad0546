"""The second simulator with pools of prompts and outputs whose GPUs have tiers of KV, and may lend it each other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from prebleexp.sim.pools import PREFILL
from prebleexp.sim.types import Outcome, State
from tests.support.oracle.core import ARRIVED, Job
from tests.support.oracle.pools import PoolsOracle, Puller
from tests.support.oracle.split_faults import SplitOracle
from tests.support.oracle.tiers import Fetcher, TieredGpu, TiersOracle
from tests.support.reference.vllm import Request

HANDOFFS = 1 << 31
"""what is under way of prompts comes after all that is of tiers"""


class PullsAndFetches(Fetcher):
    """Those that wait for KV are in one line, wherever it comes from, in the order in which they took blocks."""

    def __init__(self, config: dict[str, Any], gpu: Any) -> None:
        super().__init__(config, gpu)
        self.role, self.drops, self.hears_later = gpu.role, gpu.role == PREFILL, gpu.world.pulls
        self.pulled: set[Request] = set()
        self.left: set[Request] = set()

    def _ready(self) -> list[Request]:
        return [r for r in self.skipped if (r in self.arrived if r in self.pulled else r not in self.coming)]

    def busy(self) -> bool:
        return bool(self._ready() or self.news or self.gpu.landed) or super(Puller, self).busy()

    def _reserve(self, request: Request) -> bool:
        found = super()._reserve(request)
        if found:
            self.reserved += 1
            self.pulled.add(request)
            self.gpu.world.loaded[request.index] = (0, 0, 0, 0)
        return found

    def whole(self, request: Request) -> bool:
        found = super().whole(request)
        if found:
            self.pulled.add(request)
        return found

    def leave(self, request: Request) -> None:
        super().leave(request)
        self.pulled.discard(request)
        self.left.add(request)

    def _release(self, request: Request) -> None:
        """Nobody is to read what came for one that gave up meanwhile."""
        (super(Puller, self) if request in self.left else super())._release(request)

    def _admit(self, chosen: dict[Request, int], budget: int, cap: int) -> dict[Request, int]:
        admitted: dict[Request, int] = {}
        passed: list[Request] = []
        whole = self.config["reserve_full_isl"]
        while budget > 0 and len(self.running) < self.config["max_num_seqs"]:
            ready, headroom = self._ready(), self.kept_free if self.running else 0
            if ready and ready[0] in self.pulled:
                request, new = ready[0], 1
                self._remember(request, request.tokens)
                if headroom > len(self.pool.free):
                    break
                self.pool.want_all(request.blocks[0])
                self.skipped.remove(request)
                self.arrived.remove(request)
                self.pulled.remove(request)
                admitted[request] = -1
            elif ready:
                request = ready[0]
                new = self._go_on(request, budget, cap, headroom)
                if not new:
                    break
                admitted[request] = -1
            elif not self.waiting:
                break
            else:
                request = self.waiting[0]
                if request.stale and not self.drops:
                    self.waiting.remove(request)
                    passed.append(request)
                    continue
                if request in self.pulls:
                    if not self._reserve(request):
                        break
                    continue
                fate = self._fetch(request)
                if fate == "deferred":
                    self.waiting.remove(request)
                    passed.append(request)
                    continue
                if fate == "loads":
                    continue
                hits = self._hits(request)
                found = len(hits[0]) * self.block
                new = min(request.tokens - found, cap or budget, budget)
                if fate == "no room" or self._place(request, new, hits, headroom, whole) is None:
                    break
                self.waiting.remove(request)
                request.computed = found
                admitted[request] = request.computed
            self.running.append(request)
            request.running = True
            chosen[request] = new
            budget -= new
        self.waiting.extendleft(reversed(passed))
        return admitted


class SplitTieredGpu(TieredGpu):
    def _scheduler(self, config: dict[str, Any]) -> Puller:
        self.begin_anew()
        return PullsAndFetches(config, self)

    def with_blocks(self) -> set[Request]:
        """Those whose KV comes from where their prompts were computed."""
        return set(self.of.pulled) & set(self.of.skipped)  # type: ignore[attr-defined]


class TieredPools(SplitOracle, TiersOracle):
    """Over links that are one."""

    def _gpu(self, g: int, engine: Any, hardware: Any) -> Any:
        return SplitTieredGpu(g, self.roles[g], engine, hardware, self.rows, self)

    # ------------------------------------------------------------ handoffs
    def link(self, of: Any) -> None:
        rates = dict.fromkeys(("load_rate", "store_rate", "total_rate"), of.rate)
        self.tiers.append(SimpleNamespace(sharing=of.sharing, latency_s=of.latency_s, **rates))  # type: ignore[arg-type]

    def _ports(self, source: int, target: int) -> Any:
        of = len(self.tiers) - 1
        return [(0, of, 0, source), (1, of, 0, target)]

    def send(self, subject: int, source: int, target: int, size: float, now: float) -> None:
        self.ways.ask(HANDOFFS + subject, self._ports(source, target), size, now)

    def _takes_s(self, source: int, target: int, size: float, now: float) -> float:
        return float(self.ways.takes(self._ports(source, target), size, now))

    def drop(self, subject: int, now: float) -> None:
        self.ways.drop(HANDOFFS + subject, now)

    def _arrives(self, index: int, now: float) -> bool:
        return self.ways.arrives(HANDOFFS + index, now)

    def _happens(self, kind: int, subject: int, now: float) -> None:
        if kind == ARRIVED and subject < HANDOFFS:
            TiersOracle._happens(self, kind, subject, now)
        else:
            PoolsOracle._happens(self, kind, subject - HANDOFFS if kind == ARRIVED else subject, now)

    # ------------------------------------------------------------ what else is RESERVED
    def _leave_kv(self, request: Job, now: float) -> None:
        gpu = self.gpus[request.gpu] if request.gpu >= 0 else None
        if gpu is None or gpu.requests.get(request.index) not in gpu.of.coming:
            super()._leave_kv(request, now)

    # ------------------------------------------------------------ who hears
    def _routers(self, kind: str, g: int) -> list[tuple[Any, Any, Any]]:
        if kind not in ("copied", "dropped"):
            return [self._told(g)]
        gpus = len(self.gpus)
        if g < 2 * gpus:
            return [self._told(g % gpus)]
        return [(self.policy, self.mine, self.view), (self.pools.decode_policy, self.second_mine, self.second_view)]

    def _outcome(self, end_s: float) -> Outcome:
        served = (State.QUEUED, State.RUNNING, State.FINISHED, State.LOST)
        by = []
        for i in range(self.n):
            request, leg = self.jobs[i], self.jobs[self.n + i]
            here = leg.gpu < 0 <= request.gpu and request.state in served
            by.append(self.loaded[i if here else self.n + i])
        self.loaded = by
        return super()._outcome(end_s)
