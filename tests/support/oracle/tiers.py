"""The second simulator with tiers of KV behind the caches of vLLM, written from docs/core.md in plain Python.

GPUs are `tests.support.reference.vllm`'s scheduler, with what its offloading connector adds to it.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
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
from tests.support.oracle.linear import alone_s
from tests.support.oracle.pools import Puller
from tests.support.reference.host_memory import Host, Used
from tests.support.reference.vllm import Blocks, Request

NAMES = ("host", "disk", "shared", "peer")
HOST, _, SHARED, PEERS = range(4)


class Place:
    """Copies of blocks by key. Which are dropped is as in the plain model of vLLM's."""

    def __init__(self, tier: Tier, blocks: int) -> None:
        policy = "arc" if tier.adaptive else "lru"
        self.config = {"host_blocks": blocks, "eviction_policy": policy, "store_threshold": tier.store_threshold}
        self.blocks = blocks
        self.empty()

    def empty(self) -> None:
        self.host = Host(self.config)

    @property
    def copies(self) -> Any:
        return self.host.policy.copies


class Ticketed(Blocks):
    """Of those that are being stored, or will be, of who has left, it is known whose they were: whoever takes or finds
    some waits for these stores."""

    def __init__(self, count: int, caching: bool) -> None:
        super().__init__(count, caching)
        self.left: dict[int, tuple[int, Any]] = {}  # by block: the request, and the block's key
        self.wanted: set[tuple[int, Any]] = set()

    def take(self, count: int) -> list[int]:
        taken = super().take(count)
        for block in taken:
            if block in self.left:
                self.wanted.add(self.left.pop(block))
        return taken

    def want_all(self, blocks: list[int]) -> None:
        for block in blocks:
            if block in self.left:
                self.wanted.add(self.left[block])

    def find(self, blocks: list[int]) -> None:
        self.want_all(blocks)
        Blocks.share(self, blocks)


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

    pool: Ticketed

    def __init__(self, config: dict[str, Any], gpu: TieredGpu) -> None:
        super().__init__(config, BOTH)
        self.pool = Ticketed(config["num_blocks"], config["enable_prefix_caching"])
        self.gpu = gpu
        self.loads: dict[Request, list[tuple[int, int]]] = {}  # of those in `skipped`, by tier
        self.coming: dict[Request, int] = {}  # unheard, and transfers of each that are under way
        self.found = self.cut = self.reserved = 0
        self.ended: list[Request] = []  # finished since the last scheduling

    def leave(self, request: Request) -> None:
        """What a load writes to is held until that is heard of."""
        self.gpu.part(request)
        held = [list(request.blocks[0]) if request in self.coming else []]
        self.pool.share(held[0])
        super().leave(request)
        request.blocks = held

    def busy(self) -> bool:
        return bool(set(self.skipped) - set(self.coming)) or bool(self.gpu.landed) or super().busy()

    def schedule(self) -> dict[str, Any]:
        self.found = self.cut = self.reserved = 0
        return super().schedule()

    def _keeps_blocks(self, victim: Request) -> bool:
        return self.lookahead and victim.under_way > 0

    def _preempt(self, request: Request) -> None:
        if self.gpu.unheard(request):
            self.pool.wanted |= {(request.index, key) for one in self.gpu.stores_of(request) for key in one.keys}
        super()._preempt(request)

    def _release(self, request: Request) -> None:
        if request.done and request.running:
            self.gpu.part(request)
        super()._release(request)

    def take_up(self, step: dict[str, Any], script: Any = None) -> tuple[list[Request], list[Request]]:
        served, finished = super().take_up(step, script)
        self.ended += finished
        return served, finished

    def _place(
        self, request: Request, new: int, hits: Any = None, headroom: int = 0, whole: bool = False
    ) -> list[int] | None:
        share, self.pool.share = self.pool.share, self.pool.find  # type: ignore[method-assign]
        taken = super()._place(request, new, hits, headroom, whole)
        self.pool.share = share  # type: ignore[method-assign]
        return taken

    def _promised(self) -> int:
        loading = [r for r in self.coming if not r.done]
        return super()._promised() + sum(max(0, -(-r.tokens // self.block) - len(r.blocks[0])) for r in loading)

    def _admit(self, chosen: dict[Request, int], budget: int, cap: int) -> dict[Request, int]:
        admitted: dict[Request, int] = {}
        passed: list[Request] = []
        whole = self.config["reserve_full_isl"]
        while budget > 0 and len(self.running) < self.config["max_num_seqs"]:
            there = [r for r in self.skipped if r not in self.coming]
            headroom = self.kept_free if self.running else 0
            if there:
                request = there[0]
                new = self._go_on(request, budget, cap, headroom)
                if not new:
                    break
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

    def _go_on(self, request: Request, budget: int, cap: int, headroom: int) -> int:
        """Tokens of one that has blocks for what was loaded, or for all since it was moved; 0: there is no room."""
        if request in self.loads:
            self._remember(request, request.computed)
            if request.computed == request.tokens:
                request.computed -= 1
                self.cut += request.tokens == request.prompt
        new = min(request.tokens - request.computed, cap or budget, budget)
        if request in self.loads:
            if self._place(request, new, None, headroom, self.config["reserve_full_isl"]) is None:
                return 0
        else:
            more = max(0, -(-request.tokens // self.block) - len(request.blocks[0]))
            if more + headroom > len(self.pool.free):
                return 0
            request.blocks[0] += self.pool.take(more)
            self._remember(request, request.computed + new)
        self.pool.want_all(request.blocks[0])
        self.skipped.remove(request)
        self.loads.pop(request, None)
        return new

    def _fetch(self, request: Request) -> str:
        for tried in self.gpu.world.tried:
            tried[request.index] = 0
        if self.gpu.unheard(request):
            return "deferred"
        (hits,) = self._hits(request)
        most, at = request.tokens // self.block, len(hits)
        keys = [request.key(end * self.block) for end in range(1, most + 1)]
        parts = []
        for tier in range(4):
            until = self.gpu.find(request, keys[: (request.tokens - 1) // self.block], at) if tier == PEERS else at
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
            if not all(self.gpu.place(tier).copies[key].ready for key in keys[low:high]):
                return "deferred"
        mine = set(keys[len(hits) : at])
        for other in self.coming:
            low, high = self.loads[other][0][0], self.loads[other][-1][1]
            if mine & {other.key(end * self.block) for end in range(low + 1, high + 1)}:
                return "deferred"
        spent = sum(self.pool.holders[b] == 0 for b in hits) + (self.kept_free if self.running else 0)
        all_of_it = -(-request.tokens // self.block) - len(hits)
        if self.config["reserve_full_isl"] and all_of_it + spent > len(self.pool.free):
            return "no room"
        need = at - len(hits)
        if need + spent + self._promised() > len(self.pool.free):
            return "no room"
        self.waiting.remove(request)
        self.pool.find(hits)
        request.blocks, request.keyed = [hits + self.pool.take(need)], len(hits)
        self.skipped.append(request)
        self.loads[request] = parts
        self.coming[request] = 0
        self.reserved += 1
        self.gpu.load(request, keys, parts)
        return "loads"

    def _worth(self, request: Request, tier: int, low: int, until: int) -> bool:
        of, gpu, tokens = self.gpu.world.tiers[tier], self.gpu, (until - low) * self.block
        if of.choose in (ALWAYS, THRESHOLD):
            return of.choose == ALWAYS or tokens >= of.least_tokens
        world = gpu.world
        blocks = until - low
        if of.sharing == FIFO:  # behind what steps have found, and is not asked for yet
            blocks += sum(self.loads[r][tier][1] - self.loads[r][tier][0] for r in self.coming if r in gpu.unasked)
        load_s = world.ways.takes(gpu.ports(tier, request), blocks * world.block_bytes, world.now)
        new = request.tokens - low * self.block
        return load_s + gpu.prefill_s(new - tokens, request.tokens) < gpu.prefill_s(new, request.tokens)


class TieredGpu(FaultyGpu):
    of: Fetcher

    def _scheduler(self, config: dict[str, Any]) -> Puller:
        self.begin_anew()
        return Fetcher(config, self)

    def begin_anew(self) -> None:
        self.landed: list[Any] = []  # requests, and numbers of stores, that no step has asked for
        self.line: list[int] = []  # stores that are to be sent
        self.unasked: dict[Request, Any] = {}  # loads, and the step that found each
        self.since: dict[Request, int] = {}  # of loads, the number of that step
        self.under_way: set[int] = set()  # loads, asked for or not
        self.scheduled = self.over = 0

    def unheard(self, request: Request) -> bool:
        """Whether there are stores of it that the GPU has not heard of."""
        return any(one.whose is request and one.counts for one in self.world.stores.values())

    def stores_of(self, request: Request) -> list[Any]:
        return [one for one in self.world.stores.values() if one.whose.index == request.index and one.gpu is self]

    def prefill_s(self, new: int, length: int) -> float:
        return alone_s(self.cost, new, length)

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
            while there < len(keys) and keys[there] in copies and copies[keys[there]].ready:
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
            for key in reversed(keys):
                lender.place(HOST).copies[key].loads += 1
                lender.place(HOST).host.policy.touch(key)
        else:
            blocks = [next(iter(lender.of.pool.cached[0, key])) for key in keys]
            lender.of.pool.share(blocks)
            self.world.lent[request.index] = (lender, blocks)
            self.world.show(lender)

    def take_back(self, request: Request, keys: list[Any]) -> None:
        lender, blocks = self.world.lent[request.index]
        if blocks is True:
            for key in keys:
                lender.place(HOST).copies[key].loads -= 1
        else:
            lender.of.pool.release(blocks)
            self.world.show(lender)  # unless it is down
            self.world._wake(lender, self.world.now)

    def _may_wait(self) -> bool:
        return True

    def publish(self) -> None:
        super().publish()
        if not self.up:
            return
        loads = getattr(self.of, "loads", {})
        waits = [r for r in self.of.skipped if r not in self.with_blocks()]
        self.seen.waiting_tokens += sum(r.tokens - min(loads[r][-1][1] * self.block, r.tokens - 1) for r in waits)

    def begin(self, now: float) -> float | None:
        waits = False
        self._send(now)
        while True:
            while not waits and len(self.flight) < self.depth and self.of.busy():
                step, seconds = self._schedule(now)
                waits = not (step["chosen"] or step["preempted"] or self.of.running or self.of.reserved)
            if not self.flight:
                self.idle_s = now
                self._send(now)
                return None
            if self.flight[0][0]["waits"]:
                return None
            self.step, seconds, counts = self.flight.popleft()
            self.totals.update(counts)
            if self.step["chosen"]:
                self.stepping = True
                return seconds
            self.over += 1
            waits = waits and not self.step["landed"] and not self.step["news"]
            self.of.hear(self.step)
            self.hear(self.step, now)

    def end(self, now: float) -> None:
        super().end(now)
        self.over += 1
        self.hear(self.step, now)

    def _schedule(self, now: float) -> tuple[Any, float]:
        landed, self.landed = self.landed, []
        made = super()._schedule(now)
        step, _, counts = self.flight[-1]
        counts["hit"] += self.of.found
        counts["prefilled"] -= self.of.cut
        step |= {"number": self.scheduled, "waits": set(), "landed": landed}
        self.scheduled += 1
        for request, found_in in self.unasked.items():
            if not found_in:
                self.unasked[request], self.since[request] = step, step["number"]
        self._offer_all(step)
        self._send(now)
        self._ask_for_loads(now)
        return made

    # ------------------------------------------------------------ stores
    def _offer_all(self, step: dict[str, Any]) -> None:
        world, size, fresh = self.world, self.block, []
        for request, *_ in step["chosen"]:
            fresh += self._offer(step, request, self._most(request, min(request.computed, request.tokens)) // size)
        for request in self.of.ended:
            fresh += self._offer(step, request, self._at_its_end(request))
        for request in self.of.ended:
            self._finish_uses(request)
        self.of.ended = []
        wanted, self.of.pool.wanted = self.of.pool.wanted, set()
        for number, one in sorted(world.stores.items()):
            if one.gpu is self and not one.over and any((one.whose.index, key) in wanted for key in one.keys):
                step["waits"].add(number)
        self.line += [number for number in fresh if number in step["waits"]]
        self.line += [number for number in fresh if number not in step["waits"]]

    def _most(self, request: Request, tokens: int) -> int:
        return min(tokens, request.prompt) if self.world.prompts_only else tokens

    def _at_its_end(self, request: Request) -> int:
        return self._most(request, max(request.prompt, request.tokens - 1)) // self.block

    def _offer(self, step: dict[str, Any], request: Request, full: int) -> list[int]:
        world, made = self.world, []
        for tier in range(PEERS):
            place, tried = self.place(tier), world.tried[tier].get(request.index, 0)
            if not place.blocks or full <= tried:
                continue
            keys = [(request.key((at + 1) * self.block), (at + 1) * self.block) for at in range(tried, full)]
            missing = place.host.offer(keys, self._used(tier, request))
            dropped, place.host.policy.dropped = place.host.policy.dropped, []
            world.news += [("dropped", copy.note[0], self._number(tier), copy.note[1]) for copy in dropped]
            if missing is None:
                continue
            world.tried[tier][request.index] = full
            if missing:
                number = world.free_stores.pop() if world.free_stores else world.numbers
                world.numbers += number == world.numbers
                for key, position in keys:
                    if key in missing:
                        place.copies[key].note = request.index, position - self.block, number
                of = {"gpu": self, "tier": tier, "whose": request, "counts": True, "keys": missing, "high": full}
                world.stores[number] = SimpleNamespace(**of, step=step["number"], over=False)
                made.append(number)
        return made

    def _used(self, tier: int, request: Request) -> Used:
        return self.world.used[tier].setdefault(request, Used())

    def _finish_uses(self, request: Request) -> None:
        for tier in range(PEERS):
            self.place(tier).host.policy.finish(self.world.used[tier].pop(request, Used()))
            self.world.tried[tier].pop(request.index, None)

    def _send(self, now: float) -> None:
        world = self.world
        while self.line:
            number = self.line[0]
            one = world.stores[number]
            urgent = any(number in step["waits"] and step["number"] == one.step for step, *_ in self.flight)
            if one.step >= self.over and not urgent:  # a later step that waits for it waits for the one under way too
                break
            del self.line[0]
            subject, ports = 4 * len(world.jobs) + number, [(0, one.tier, 1, self.number), (1, one.tier, 2, 0)]
            world.ways.ask(subject, ports, len(one.keys) * world.block_bytes, now)

    def part(self, request: Request, holds: bool = True) -> None:
        """It is about to give its blocks back: whose they were stays known while they are stored."""
        world, pool = self.world, self.of.pool
        if self.unheard(request) or request.done:
            full = self._at_its_end(request) if request.done else 0
            theirs = {key for one in self.stores_of(request) for key in one.keys}
            for at, block in enumerate(request.blocks[0] if holds else []):
                offered = any(
                    self.place(tier).blocks and world.tried[tier].get(request.index, 0) <= at < full
                    for tier in range(PEERS)
                )
                key = request.key((at + 1) * self.block)
                if (offered or key in theirs) and pool.key[block] is not None:
                    pool.left[block] = request.index, key
        if not request.done:
            self._finish_uses(request)
            for one in world.stores.values():
                one.counts = one.counts and one.whose.index != request.index

    # ------------------------------------------------------------ what is over
    def lands(self, what: Any, now: float) -> None:
        """A step hears of it that waits for stores, if none behind it asked for that, else the next one scheduled."""
        since = self.since[what] if isinstance(what, Request) else self.world.stores[what].step
        waiting = next((step for step, *_ in self.flight if step["waits"] and step["number"] >= since), None)
        (self.landed if waiting is None else waiting["landed"]).append(what)
        if waiting is None and not self.stepping:
            looks_s = self.idle_s + math.ceil((now - self.idle_s) / self.poll_s) * self.poll_s if self.poll_s else now
            self.world.wake_at(self, max(now, looks_s), now)

    def hear(self, step: dict[str, Any], now: float) -> None:
        for what in (one for one in step["landed"] if isinstance(one, Request)):
            self.hear_of_load(what)
        for what in (one for one in step["landed"] if not isinstance(one, Request)):
            self.world.hear_of_store(what)
        step["landed"] = []

    def hear_of_load(self, request: Request) -> None:
        of = self.of
        self.need_not_keep(request)
        del of.coming[request]
        if request.done:
            of._release(request)
            return
        request.computed = of.loads[request][-1][1] * self.block
        self.world.jobs[request.index].state = State.QUEUED

    def need_not_keep(self, request: Request) -> None:
        for tier, (low, high) in enumerate(self.of.loads[request][:PEERS]):
            for end in range(low + 1, high + 1):
                self.place(tier).copies[request.key(end * self.block)].loads -= 1

    def submit(self, job: oracle.Job) -> None:
        self._look_anew(job)
        super().submit(job)

    def receive(self, job: oracle.Job, now: float) -> None:
        self._look_anew(job)
        super().receive(job, now)

    def _look_anew(self, job: oracle.Job) -> None:
        """Nothing of whoever comes was offered to a tier, whatever was when it was here before."""
        for tried in self.world.tried:
            tried.pop(job.index, None)

    def lose(self) -> list[oracle.Job]:
        world, n = self.world, len(self.world.jobs)
        for request in list(self.of.coming):
            for tier in range(4):
                subject = tier * n + request.index
                if subject in world.ways.asked:
                    world.ways.drop(subject, world.now)
                low, high = self.of.loads[request][tier]
                if tier == PEERS and high > low and (subject in self.under_way or request in self.unasked):
                    self.take_back(request, self.keys(request, low, high))
            self.need_not_keep(request)
        for borrower in world.gpus:
            for request in list(borrower.of.coming):
                subject = PEERS * n + request.index
                lent = world.lent.get(request.index, (None,))[0] is self and subject in borrower.under_way
                if lent and borrower is not self:
                    if subject in world.ways.asked:
                        world.ways.drop(subject, world.now)
                    borrower.loses_loan(request)
        for number, one in sorted(world.stores.items()):
            if one.gpu is self:
                if 4 * n + number in world.ways.asked:
                    world.ways.drop(4 * n + number, world.now)
                for key in one.keys:
                    self.place(one.tier).host.policy.remove(key)
                world.end_store(number, None)
        self.place(HOST).empty()
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
            if high == low:
                continue
            if tier == PEERS:
                self.lend(request, keys[low:high])
            else:
                at = [(key, end * self.block) for end, key in enumerate(keys[low:high], low + 1)]
                self.place(tier).host.load(at, self._used(tier, request))
                if (low, high) == (parts[0][0], parts[-1][1]):
                    world.tried[tier][request.index] = high
            self.of.coming[request] += 1
            self.under_way.add(tier * len(world.jobs) + request.index)
        self.unasked[request] = None

    def _ask_for_loads(self, now: float) -> None:
        """In order, as far as their steps do not wait for blocks that are being stored."""
        world = self.world
        for request, step in list(self.unasked.items()):
            if step["waits"]:
                return
            del self.unasked[request]
            for tier, (low, high) in enumerate(self.of.loads[request]):
                if high > low:
                    subject = tier * len(world.jobs) + request.index
                    world.ways.ask(subject, self.ports(tier, request), (high - low) * world.block_bytes, now)

    def keys(self, request: Request, low: int, high: int) -> list[Any]:
        return [request.key(end * self.block) for end in range(low + 1, high + 1)]

    def has_come(self, tier: int, request: Request, now: float) -> None:
        self.under_way.discard(tier * len(self.world.jobs) + request.index)
        if tier == PEERS:
            self.take_back(request, self.keys(request, *self.of.loads[request][PEERS]))
        self.of.coming[request] -= 1
        if not self.of.coming[request]:
            self.lands(request, now)

    def loses_loan(self, request: Request) -> None:
        """Its lender is lost: it computes what was to come from there."""
        world, size, job = self.world, self.block, self.world.jobs[request.index]
        low, high = self.of.loads[request][PEERS]
        self.take_back(request, self.keys(request, low, high))
        self.under_way.discard(PEERS * len(world.jobs) + request.index)
        self.of.loads[request][PEERS] = (low, low)
        self.of.coming[request] -= 1
        lacks = min(request.prompt, high * size) - min(request.prompt, low * size)
        self.totals["peer"] -= lacks
        if not request.preemptions:
            job.prefilled_tokens += lacks
            world.loaded[request.index] = (*world.loaded[request.index][:PEERS], 0)
        world.show(self)
        if not self.of.coming[request]:
            self.lands(request, world.now)

    def _number(self, tier: int) -> int:
        """Of its place, for routers."""
        return 2 * len(self.world.gpus) if tier == SHARED else tier * len(self.world.gpus) + self.number

    def tell_copied(self, tier: int, request: Request, high: int) -> None:
        copies, tokens = self.place(tier).copies, 0
        for end in range(1, high + 1):
            copy = copies.get(request.key(end * self.of.block))
            if copy is None or not copy.ready:
                break
            tokens = end * self.of.block
        if tokens:
            self.world.news.append(("copied", request.index, self._number(tier), tokens))


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
        kinds = zip(self.tiers, blocks, counts, strict=True)
        self.places = [[Place(tier, size) for _ in range(count)] for tier, size, count in kinds]
        self.tried: list[dict[int, int]] = [{} for _ in range(PEERS)]
        self.used: list[dict[Request, Used]] = [{} for _ in range(PEERS)]
        self.stores: dict[int, Any] = {}
        self.free_stores: list[int] = []
        self.numbers = 0
        self.loaded: list[tuple[int, ...]] = [(0, 0, 0, 0)] * len(self.rows)
        super().__init__(workload, of, False)
        self.ways = Ways(self.tiers, self.heap)

    def _gpu(self, g: int, engine: Any, hardware: Any) -> Any:
        return TieredGpu(g, BOTH, engine, hardware, self.rows, self)

    def show(self, gpu: Any) -> None:
        """Let routers see what it is, unless they wait for reports."""
        gpu.publish()
        if not self.reports_s:
            self.view.gpus[gpu.number] = gpu.seen

    def _finds_nothing(self, g: int, now: float) -> None:
        self._tell(g, now)

    def _happens(self, kind: int, subject: int, now: float) -> None:
        if kind != ARRIVED:
            super()._happens(kind, subject, now)
            return
        n = len(self.jobs)
        if not self.ways.arrives(subject, now):
            return
        if subject < 4 * n:
            tier, index = divmod(subject, n)
            gpu = self.gpus[self.jobs[index].gpu]
            gpu.has_come(tier, gpu.requests[index], now)
            return
        number = subject - 4 * n
        gpu = self.stores[number].gpu
        self.stores[number].over = True
        gpu.lands(number, now)
        for step, *_ in list(gpu.flight):
            if number in step["waits"]:
                step["waits"].remove(number)
                if not step["waits"]:
                    gpu._ask_for_loads(now)
                    self._wake(gpu, now)

    def wake_at(self, gpu: Any, at_s: float, now: float) -> None:
        if at_s == now:
            self._wake(gpu, now)
        elif gpu.up and not gpu.awake:
            heapq.heappush(self.heap, (at_s, START, gpu.number))

    def hear_of_store(self, number: int) -> None:
        one = self.stores[number]
        for key in one.keys:
            one.gpu.place(one.tier).copies[key].ready = True
        one.gpu.tell_copied(one.tier, one.whose, one.high)
        self.end_store(number, one.gpu)

    def end_store(self, number: int, by: Any) -> None:
        tier = self.stores.pop(number).tier
        self.free_stores.append(number)
        for other in self.gpus if tier == SHARED else []:
            if other is not by and other.seen.queued > 0:
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
