"""The second simulator with tiers of KV behind the caches of vLLM, written from docs/core.md in plain Python.

GPUs are `tests.support.reference.vllm`'s scheduler, with what its offloading connector adds to it.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, OrderedDict
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from prebleexp.sim.links import FAIR, FIFO
from prebleexp.sim.pools import BOTH
from prebleexp.sim.tiering import Tier, Tiering
from prebleexp.sim.tiers import ALWAYS, THRESHOLD
from prebleexp.sim.types import Outcome, State, Workload
from tests.support.oracle import core as oracle
from tests.support.oracle.core import ARRIVED, START
from tests.support.oracle.faults import FaultyGpu
from tests.support.oracle.pools import Puller
from tests.support.reference.vllm import Request

NAMES = ("host", "disk", "shared", "peer")
HOST, _, SHARED, PEERS = range(4)


class Place:
    """Copies of blocks by key, that used longest ago first."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.copies: OrderedDict[Any, Any] = OrderedDict()
        self.dropped: list[Any] = []

    def make_room(self, copies: int) -> bool:
        idle = [key for key, copy in self.copies.items() if not copy.pins]
        excess = max(0, len(self.copies) + copies - self.blocks)
        if excess > len(idle):
            return False
        self.dropped = [self.copies.pop(key) for key in idle[:excess]]
        return True


class Ways:
    """The links of all tiers. Ports are (0: out, 1: in; tier; 0: loads, 1: stores, 2: all of them together; GPU)."""

    def __init__(self, tiers: list[Tier], heap: list[Any]) -> None:
        self.tiers, self.heap = tiers, heap
        self.free_s: dict[Any, float] = {}
        self.coming: dict[int, Any] = {}
        self.moving: dict[int, Any] = {}
        self.changed_s = 0.0
        self.asked: dict[int, Any] = {}  # under way: over which ports, from when to when

    def _begins_s(self, ports: Any, now: float) -> float:
        free_s = [self.free_s.get(port, 0.0) for port in ports]
        of = self.tiers[ports[0][1]]
        return max([now + of.latency_s, *(free_s if of.sharing == FIFO else [])])

    def _rate(self, port: Any) -> float:
        of = self.tiers[port[1]]
        return (of.load_rate, of.store_rate, of.total_rate)[port[2]]

    def takes(self, ports: Any, size: float, now: float) -> float:
        return self._begins_s(ports, now) - now + size / min(map(self._rate, ports))

    def ask(self, subject: int, ports: Any, size: float, now: float) -> None:
        begins_s = self._begins_s(ports, now)
        self.asked[subject] = (ports, begins_s, math.nan)
        if self.tiers[ports[0][1]].sharing == FAIR:
            self.coming[subject] = SimpleNamespace(left=size, rate=0.0, ends_s=math.inf, ports=ports)
            if begins_s == now:
                self.begin(subject, now)
            else:
                heapq.heappush(self.heap, (begins_s, ARRIVED, subject))
            return
        ends_s = begins_s + size / min(map(self._rate, ports))
        self.asked[subject] = (ports, begins_s, ends_s)
        self.free_s |= {port: ends_s for port in ports if self._rate(port) < math.inf}
        heapq.heappush(self.heap, (ends_s, ARRIVED, subject))

    def begin(self, subject: int, now: float) -> None:
        self._advance(now)
        self.moving[subject] = self.coming.pop(subject)
        self._share(now)

    def arrives(self, subject: int, now: float) -> bool:
        if subject in self.coming:
            self.begin(subject, now)
            return False
        if subject in self.moving:
            self._advance(now)
            del self.moving[subject]
            self._share(now)
        del self.asked[subject]
        return True

    def drop(self, subject: int, now: float) -> None:
        ports, begins_s, ends_s = self.asked[subject]
        for port in ports:
            if self.free_s.get(port) == ends_s:
                self.free_s[port] = begins_s
        self.coming.pop(subject, None)
        self.heap[:] = [one for one in self.heap if one[1:] != (ARRIVED, subject)]
        heapq.heapify(self.heap)
        self.arrives(subject, now)

    def _advance(self, now: float) -> None:
        for flow in self.moving.values():
            flow.left = 0.0 if flow.ends_s <= now else max(0.0, flow.left - flow.rate * (now - self.changed_s))
        self.changed_s = now

    def _share(self, now: float) -> None:
        """Max-min."""
        without = list(self.moving.values())
        ports = sorted({port for flow in without for port in flow.ports})
        room = {port: self._rate(port) for port in ports}
        while without:
            users = {port: [flow for flow in without if port in flow.ports] for port in ports}
            narrow = min((port for port in ports if users[port]), key=lambda port: room[port] / len(users[port]))
            share = room[narrow] / len(users[narrow])
            for flow in users[narrow]:
                flow.rate, flow.ends_s = share, now + flow.left / share
                for port in flow.ports:
                    room[port] -= share
                without.remove(flow)
        mine = set(self.moving)
        self.heap[:] = [one for one in self.heap if one[1] != ARRIVED or one[2] not in mine]
        self.heap += [(flow.ends_s, ARRIVED, subject) for subject, flow in self.moving.items()]
        heapq.heapify(self.heap)


class Fetcher(Puller):
    """Beside what the reference does: requests whose KV is loaded before they are admitted."""

    def __init__(self, config: dict[str, Any], gpu: TieredGpu) -> None:
        super().__init__(config, BOTH)
        self.gpu = gpu
        self.loads: dict[Request, list[tuple[int, int]]] = {}  # of those in `skipped`, by tier
        self.coming: dict[Request, int] = {}  # transfers under way
        self.found = 0

    def leave(self, request: Request) -> None:
        """What a load writes to is held until it is over."""
        held = [list(request.blocks[0]) if request in self.coming else []]
        self.pool.share(held[0])
        super().leave(request)
        request.blocks = held

    def busy(self) -> bool:
        return bool(set(self.skipped) - set(self.coming)) or super().busy()

    def _admit(self, chosen: dict[Request, int], budget: int, cap: int) -> dict[Request, int]:
        admitted: dict[Request, int] = {}
        passed: list[Request] = []
        while budget > 0 and len(self.running) < self.config["max_num_seqs"]:
            there = [r for r in self.skipped if r not in self.coming]
            headroom = self.kept_free if self.running else 0
            if there:
                request = there[0]
                more = max(0, -(-request.tokens // self.block) - len(request.blocks[0]))
                if more + headroom > len(self.pool.free):
                    break
                self.skipped.remove(request)
                request.blocks[0] += self.pool.take(more)
                new = min(request.tokens - request.computed, cap or budget, budget)
                self._remember(request, request.computed + new)
                admitted[request] = -1
            elif not self.waiting:
                break
            else:
                request = self.waiting[0]
                fate = "deferred" if request.stale else self._fetch(request)
                if fate == "deferred":
                    self.waiting.remove(request)
                    passed.append(request)
                    continue
                if fate == "loads":
                    continue
                hits = self._hits(request)
                found = len(hits[0]) * self.block
                new = min(request.tokens - found, cap or budget, budget)
                whole = self.config["reserve_full_isl"]
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

    def _fetch(self, request: Request) -> str:
        (hits,) = self._hits(request)
        most, at = (request.tokens - 1) // self.block, len(hits)
        keys = [request.key(end * self.block) for end in range(1, most + 1)]
        parts = []
        for tier in range(4):
            until = self.gpu.find(request, keys, at) if tier == PEERS else at
            while tier != PEERS and until < most and keys[until] in self.gpu.place(tier).copies:
                until += 1
            if until > at and not self._worth(request, tier, at, until):
                break
            parts.append((at, until))
            at = until
        parts += [(at, at)] * (4 - len(parts))
        if at == len(hits):
            return "go on"
        for tier, (low, high) in enumerate(parts[:PEERS]):
            if any(self.gpu.place(tier).copies[key].store is not None for key in keys[low:high]):
                return "deferred"
        mine = set(keys[len(hits) : at])
        for other in self.coming:
            low, high = self.loads[other][0][0], self.loads[other][-1][1]
            if mine & {other.key(end * self.block) for end in range(low + 1, high + 1)}:
                return "deferred"
        need = -(-request.tokens // self.block) - len(hits)
        spent = sum(self.pool.holders[b] == 0 for b in hits) + (self.kept_free if self.running else 0)
        if need + spent + self._promised() > len(self.pool.free):
            return "no room"
        self.waiting.remove(request)
        self.pool.share(hits)
        request.blocks, request.keyed = [hits + self.pool.take(need)], len(hits)
        self.skipped.append(request)
        self.loads[request] = parts
        self.coming[request] = 0
        self.gpu.load(request, keys, parts)
        return "loads"

    def _worth(self, request: Request, tier: int, low: int, until: int) -> bool:
        of, gpu, tokens = self.gpu.world.tiers[tier], self.gpu, (until - low) * self.block
        if of.choose in (ALWAYS, THRESHOLD):
            return of.choose == ALWAYS or tokens >= of.least_tokens
        world = gpu.world
        load_s = world.ways.takes(gpu.ports(tier, request), (until - low) * world.block_bytes, world.now)
        new = request.tokens - low * self.block
        return load_s + gpu.prefill_s(new - tokens, request.tokens) < gpu.prefill_s(new, request.tokens)


class TieredGpu(FaultyGpu):
    fresh: list[Request]

    def _scheduler(self, config: dict[str, Any]) -> Puller:
        self.fresh = []
        return Fetcher(config, self)

    def prefill_s(self, new: int, length: int) -> float:
        return self.cost.step_s + self.cost.token_s * new + self.cost.context_token_s * length

    def place(self, tier: int) -> Place:
        return self.world.places[tier][0 if tier == SHARED else self.number]

    def ports(self, tier: int, request: Request) -> Any:
        """Of a load."""
        source = (1, self.world.lent[request.index][0].number) if tier == PEERS else (2, 0)
        return [(0, tier, *source), (1, tier, 0, self.number)]

    def find(self, request: Request, keys: list[Any], low: int) -> int:
        """Until where another GPU has blocks from `low` on, in its cache or its host."""
        most = low
        for other in self.world.gpus if self.world.has_peers else []:
            if other is self:
                continue
            copies, here, there = other.place(HOST).copies, other.computed_until(keys), low
            while there < len(keys) and keys[there] in copies and copies[keys[there]].store is None:
                there += 1
            if max(here, there) > most:
                most = max(here, there)
                self.world.lent[request.index] = (other, there > here)
        return most

    def computed_until(self, keys: list[Any]) -> int:
        """Of a context's first blocks those that the cache has, before the first that a step under way computes."""
        size = self.of.block
        until = next((at for at, key in enumerate(keys) if (0, key) not in self.of.pool.cached), len(keys))
        for one in self.requests.values():
            if not one.under_way or one.done:
                continue
            begin = (one.computed - one.under_way) // size if one.running else 0
            end = (min(one.computed, one.tokens) if one.running else one.tokens) // size
            if begin < min(end, until) and one.key((begin + 1) * size) == keys[begin]:
                until = begin
        return until

    def lend(self, request: Request, keys: list[Any]) -> None:
        lender, copied = self.world.lent[request.index]
        if copied:
            _pin(lender.place(HOST), keys)
        else:
            blocks = [next(iter(lender.of.pool.cached[0, key])) for key in keys]
            lender.of.pool.share(blocks)
            self.world.lent[request.index] = (lender, blocks)
            self.world.show(lender)

    def take_back(self, request: Request, keys: list[Any]) -> None:
        lender, blocks = self.world.lent[request.index]
        if blocks is True:
            for key in keys:
                lender.place(HOST).copies[key].pins -= 1
        else:
            lender.of.pool.release(blocks)
            self.world.show(lender)  # unless it is down
            self.world._wake(lender, self.world.now)

    def _may_wait(self) -> bool:
        return True

    def with_blocks(self) -> set[Request]:
        """Those that wait and have all that they need, for they have been moved."""
        return set()

    def publish(self) -> None:
        super().publish()
        if not self.up:
            return
        loads = getattr(self.of, "loads", {})
        waits = [r for r in self.of.skipped if r not in self.with_blocks()]
        self.seen.waiting_tokens += sum(r.tokens - loads[r][-1][1] * self.block for r in waits)

    def begin(self, now: float) -> float | None:
        for request in self.fresh:
            if (request.running or request.done) and self.requests.get(request.index) is request:  # it was not moved
                computed = min(request.computed - request.under_way, request.tokens)
                for tier in range(PEERS):
                    self._store(tier, request, (request.tokens - 1 if request.done else computed) // self.block, now)
        self.fresh = []
        return super().begin(now)

    def end(self, now: float) -> None:
        super().end(now)
        self.fresh = [request for request, *_ in self.step["chosen"]]

    def _schedule(self, now: float) -> tuple[Any, float]:
        self.of.found = 0
        made = super()._schedule(now)
        self.flight[-1][2]["hit"] += self.of.found
        return made

    def submit(self, job: oracle.Job) -> None:
        super().submit(job)
        for tried in self.world.tried:
            tried.pop(job.index, None)

    def lose(self) -> list[oracle.Job]:
        world, n = self.world, len(self.world.jobs)
        for request in reversed(self.of.coming):
            for tier in range(4):
                if tier * n + request.index in world.ways.asked:
                    world.ways.drop(tier * n + request.index, world.now)
                    self.end_load(tier, request)
        for borrower in world.gpus:
            for request in reversed(list(borrower.of.coming)):
                subject = PEERS * n + request.index
                if subject in world.ways.asked and world.lent[request.index][0] is self:
                    world.ways.drop(subject, world.now)
                    borrower.end_load(PEERS, request)
                    borrower.does_without(request)
        for number, (gpu, tier, keys, *_) in sorted(world.stores.items()):
            if gpu is self and 4 * n + number in world.ways.asked:
                world.ways.drop(4 * n + number, world.now)
                for key in keys:
                    del self.place(tier).copies[key]
                world.end_store(number, tier)
        self.place(HOST).copies.clear()
        self.fresh = []
        return super().lose()

    def _admitted(self, request: Request, cached: int, resumed: bool, counts: Counter[str]) -> None:
        if cached >= 0:
            if not resumed:
                self.world.loaded[request.index] = (0, 0, 0, 0)
            super()._admitted(request, cached, resumed, counts)
        elif request.tokens > request.prompt:
            self.world.jobs[request.index].state = State.RUNNING

    def load(self, request: Request, keys: list[Any], parts: list[tuple[int, int]]) -> None:
        world, job = self.world, self.world.jobs[request.index]
        job.state = State.RESERVED
        here, *found = (min(request.prompt, at * self.block) for at in (parts[0][0], *(part[1] for part in parts)))
        self.of.found += here
        loaded = tuple(until - before for until, before in zip(found, (here, *found), strict=False))
        self.totals.update(dict(zip(NAMES, loaded, strict=True)))
        if not request.preemptions:
            job.hit_tokens, job.prefilled_tokens = here, request.prompt - found[-1]
            world.loaded[request.index] = loaded
            self.of.looked.append((here, request.prompt))
        for tier, (low, high) in enumerate(parts):
            if high > low:
                if tier == PEERS:
                    self.lend(request, keys[low:high])
                else:
                    _pin(self.place(tier), keys[low:high])
                self.of.coming[request] += 1
                subject = tier * len(world.jobs) + request.index
                world.ways.ask(subject, self.ports(tier, request), (high - low) * world.block_bytes, world.now)

    def does_without(self, request: Request) -> None:
        """Its lender is lost: it computes what was to come from there."""
        world, size, job = self.world, self.block, self.world.jobs[request.index]
        low, high = self.of.loads[request][PEERS]
        self.of.loads[request][PEERS] = (low, low)
        lacks = min(request.prompt, high * size) - min(request.prompt, low * size)
        self.totals["peer"] -= lacks
        if not request.preemptions:
            job.prefilled_tokens += lacks
            world.loaded[request.index] = (*world.loaded[request.index][:PEERS], 0)
        self.is_there(request)
        if not self.of.coming.get(request):
            world._wake(self, world.now)
        world.show(self)

    def end_load(self, tier: int, request: Request) -> None:
        low, high = self.of.loads[request][tier]
        keys = [request.key(end * self.block) for end in range(low + 1, high + 1)]
        if tier == PEERS:
            self.take_back(request, keys)
        else:
            for key in keys:
                self.place(tier).copies[key].pins -= 1
        self.of.coming[request] -= 1

    def loaded(self, tier: int, request: Request) -> None:
        self.end_load(tier, request)
        self.is_there(request)

    def is_there(self, request: Request) -> None:
        """If nothing of it is under way any more."""
        of = self.of
        if not of.coming[request]:
            del of.coming[request]
            if request.done:
                of._release(request)
                return
            request.computed = of.loads[request][-1][1] * self.block
            of._remember(request, request.computed)
            self.world.jobs[request.index].state = State.QUEUED

    def _store(self, tier: int, request: Request, full: int, now: float) -> None:
        world, pool, place = self.world, self.of.pool, self.place(tier)
        full = min(full, request.prompt // self.block) if world.prompts_only else full
        tried = world.tried[tier].get(request.index, 0)
        keys = [request.key(end * self.block) for end in range(1, full + 1)]
        there = next((at for at, key in enumerate(keys) if (0, key) not in pool.cached), full)
        if there <= tried or not place.blocks:
            return
        world.tried[tier][request.index] = there
        keys = keys[tried:there]
        had = [place.copies[key] for key in keys if key in place.copies]
        missing = [key for key in keys if key not in place.copies]
        for copy in had:
            copy.pins += 1
        room = bool(missing) and place.make_room(len(missing))
        for copy in place.dropped:
            world.news.append(("dropped", copy.owner, self._number(tier), copy.tokens))
        place.dropped = []
        for copy in had:
            copy.pins -= 1
        if room:
            number = world.free_stores.pop() if world.free_stores else len(world.stores)
            blocks = [next(iter(pool.cached[0, key])) for key in missing]
            pool.share(blocks)
            for at, key in reversed(list(enumerate(keys, tried))):
                if key in missing:
                    of = {"owner": request.index, "tokens": at * self.of.block}
                    place.copies[key] = SimpleNamespace(pins=1, store=number, **of)
            world.stores[number] = (self, tier, missing, blocks, request, there)
            subject, ports = 4 * len(world.jobs) + number, [(0, tier, 1, self.number), (1, tier, 2, 0)]
            world.ways.ask(subject, ports, len(missing) * world.block_bytes, now)

    def _number(self, tier: int) -> int:
        """Of its place, for routers."""
        return 2 * len(self.world.gpus) if tier == SHARED else tier * len(self.world.gpus) + self.number

    def tell_copied(self, tier: int, request: Request, high: int) -> None:
        copies, tokens = self.place(tier).copies, 0
        for end in range(1, high + 1):
            copy = copies.get(request.key(end * self.of.block))
            if copy is None or copy.store is not None:
                break
            tokens = end * self.of.block
        if tokens:
            self.world.news.append(("copied", request.index, self._number(tier), tokens))


def _pin(place: Place, keys: list[Any]) -> None:
    """They are used, the last first."""
    for key in reversed(keys):
        place.copies[key].pins += 1
        place.copies.move_to_end(key)


class TiersOracle(oracle.Oracle):
    def __init__(self, workload: Workload, of: Any, *given: Any) -> None:
        tiering: Tiering = of.tiers
        self.tiers = tiering.each()
        self.rows = getattr(self, "rows", workload)
        self.block_bytes = tiering.kv_bytes * of.engine.block_size
        blocks = [int(one.bytes // self.block_bytes) for one in self.tiers]
        counts = (of.gpus, of.gpus, 1, 0)
        self.has_peers, self.prompts_only = tiering.peers is not None, tiering.prompts_only
        self.lent: dict[int, Any] = {}  # by request: which GPU, and its blocks, or whether its host
        self.places = [[Place(size) for _ in range(count)] for size, count in zip(blocks, counts, strict=True)]
        self.tried: list[dict[int, int]] = [{} for _ in range(PEERS)]
        self.stores: dict[int, Any] = {}
        self.free_stores: list[int] = []
        self.loaded: list[tuple[int, ...]] = [(0, 0, 0, 0)] * len(self.rows)
        self.now = 0.0
        super().__init__(workload, of, False)
        self.ways = Ways(self.tiers, self.heap)

    def _gpu(self, g: int, engine: Any, hardware: Any) -> Any:
        return TieredGpu(g, BOTH, engine, hardware, self.rows, self)

    def show(self, gpu: Any) -> None:
        """Let routers see what it is, unless they wait for reports."""
        gpu.publish()
        if not self.reports_s:
            self.view.gpus[gpu.number] = gpu.seen

    def _wake(self, gpu: Any, now: float) -> None:
        if gpu.up and not gpu.awake:
            gpu.awake = True
            heapq.heappush(self.heap, (now, START, gpu.number))

    def _happens(self, kind: int, subject: int, now: float) -> None:
        self.now = now
        if kind != ARRIVED:
            super()._happens(kind, subject, now)
            if kind == START and not self.gpus[subject].stepping:
                self._tell(subject, now)
            return
        n = len(self.jobs)
        tier, index = divmod(subject, n)
        if subject < 4 * n:
            gpu = self.gpus[self.jobs[index].gpu]
            if self.ways.arrives(subject, now):
                request = gpu.requests[index]
                gpu.loaded(tier, request)
                if request not in gpu.of.coming:
                    self._tell(gpu.number, now)
                    self._wake(gpu, now)
            return
        gpu, tier, keys, blocks, request, high = self.stores[subject - 4 * n]
        if not self.ways.arrives(subject, now):
            return
        for key in keys:
            copy = gpu.place(tier).copies[key]
            copy.pins, copy.store = copy.pins - 1, None
        gpu.of.pool.release(blocks)
        gpu.tell_copied(tier, request, high)
        self.end_store(subject - 4 * n, tier)
        self._tell(gpu.number, now)
        self._wake(gpu, now)

    def end_store(self, number: int, tier: int) -> None:
        self.free_stores.append(number)
        for other in self.gpus if tier == SHARED else []:
            if other.seen.queued > 0:
                self._wake(other, self.now)

    def _awaits(self, gpu: Any) -> bool:
        n = len(self.jobs)
        lends = any(PEERS * n + i in self.ways.asked for i, (lender, _) in self.lent.items() if lender is gpu)
        return bool(gpu.of.coming or gpu.of.waiting or gpu.of.skipped or lends)

    def _outcome(self, end_s: float) -> Outcome:
        made = super()._outcome(end_s)
        loaded = np.array(self.loaded, np.int32).reshape(-1, 4)
        return replace(made, **{f"{name}_tokens": loaded[:, tier].copy() for tier, name in enumerate(NAMES)})


def simulate(workload: Workload, **given: Any) -> Outcome:
    """As `prebleexp.sim.simulate.simulate` with tiers and `engine=vllm`, of lengths Max."""
    return TiersOracle(
        workload, SimpleNamespace(**{"reports_ms": 0.0, "kinds": (), "faults": None, "pools": None, **given})
    ).run()
