"""A plain model of vLLM's V1 scheduler (0.33.0) for one GPU: groups of layers, drafts, LoRA; no KV connector.

    python -m tests.support.reference.vllm ../shared/fidelity/vllm/*.npz    # replays and compares every column

`replay(config, workload)` returns the columns of a recording (the README beside the recordings). Times are whole
nanoseconds. engines.md and engine-features.md say in words what this file does.
"""

from __future__ import annotations

import bisect
import sys
import zlib
from collections import OrderedDict, deque
from typing import Any

import numpy as np

from tests.support.recordings.columns import Columns
from tests.support.recordings.engines import compare

ROW = ("step_schedule_ns", "step_start_ns", "step_ns", "step_requests", "step_admitted", "step_preempted",
       "step_free_blocks", "step_evicted_blocks", "step_waiting", "step_running", "step_blocks_crc32")  # fmt: skip
LISTS = ("scheduled_request", "scheduled_tokens", "admitted_request", "admitted_hit_tokens", "preempted_request",
         "finished_request")  # fmt: skip


class Blocks:
    """The KV blocks of a GPU. A block is free (in `free`, the next to be taken first) or held by requests; either way
    it may be cached, that is, found by the key of the prefix that it ends."""

    def __init__(self, count: int, caching: bool) -> None:
        self.caching = caching
        self.free: OrderedDict[int, None] = OrderedDict((b, None) for b in range(1, count))  # block 0 is never used
        self.holders = [0] * count
        self.key: list[Any] = [None] * count
        self.cached: dict[Any, dict[int, None]] = {}  # copies of one prefix, the oldest first
        self.evicted = 0

    def take(self, count: int) -> list[int]:
        """Blocks from the front of the free list; what they cached is forgotten."""
        taken = []
        for _ in range(count):
            block, _ = self.free.popitem(last=False)
            key = self.key[block]
            if key is not None:
                self.key[block] = None
                del self.cached[key][block]
                if not self.cached[key]:
                    del self.cached[key]
                self.evicted += 1
            self.holders[block] = 1
            taken.append(block)
        return taken

    def without_key(self) -> int:
        """How many free ones cache nothing."""
        return [self.key[b] for b in self.free].count(None)

    def share(self, blocks: list[int]) -> None:
        for block in blocks:
            if self.holders[block] == 0:
                del self.free[block]
            self.holders[block] += 1

    def release(self, blocks: list[int]) -> None:
        """A request's blocks, in order of position. The last position is the first to be taken again: those without a
        key go to the front of the free list, those with one to its end."""
        for block in blocks:
            self.holders[block] -= 1
        idle = [b for b in reversed(blocks) if self.holders[b] == 0]
        for block in reversed([b for b in idle if self.key[b] is None]):
            self.free[block] = None
            self.free.move_to_end(block, last=False)
        for block in idle:
            if self.key[block] is not None:
                self.free[block] = None


OF_DRAFTS = ("scheduled_drafts", "sampled_request", "sampled_tokens")

NULL = 0
"""stands for a block that is behind a window; block 0 is never used"""


class Group:
    """Layers of one kind: they have their blocks in common."""

    def __init__(self, number: int, kind: str, window: int, config: dict[str, Any]) -> None:
        self.number, self.kind, self.window, self.block = number, kind, window, config["block_size"]
        flight = (2 if config["async_scheduling"] else 1) * config["max_num_batched_tokens"]
        most = {"full": None, "sliding": window - 1 + flight, "chunked": window + flight}[kind]
        sliding = kind == "sliding"
        self.cap = None if most is None else -(-min(most, config["max_model_len"]) // self.block) + sliding
        self.tail = -(-(window - 1) // self.block) if sliding else 0  # blocks that a hit must have at its end
        self.retention = config.get("prefix_cache_retention_interval", 0)

    def behind(self, computed: int) -> int:
        """Blocks that nobody needs who has computed so many positions."""
        if self.kind == "full":
            return 0
        tokens = computed - self.window + 1 if self.kind == "sliding" else computed // self.window * self.window
        return int(max(0, tokens) // self.block)

    def keeps(self, block: int, request: Request) -> bool:
        """Whether a full block is to be found later."""
        if self.kind != "sliding" or self.retention is None:
            return True
        each = self.retention // self.block
        if each and (self.tail >= each or block % each >= each - self.tail):
            return True
        ends = [(request.prompt - 1) // self.block, request.junction // self.block]
        return any(end - self.tail <= block < end for end in ends)


class Request:
    def __init__(self, index: int, workload: Columns, groups: int, ahead: int = 0) -> None:
        self.index = index
        rows = slice(int(workload["segment_offsets"][index]), int(workload["segment_offsets"][index + 1]))
        self.segments = [int(s) for s in workload["segment_ids"][rows]]
        self.ends = [int(e) for e in np.cumsum(workload["segment_tokens"][rows])]
        self.prompt = self.tokens = self.ends[-1]  # tokens: prompt and generated ones that are known
        self.target = int(workload["output_tokens"][index])
        answer = int(workload["output_segment"][index])
        self.answer = answer if answer >= 0 else -1 - index  # generated tokens of its own, or those of a segment
        self.rank = (int(workload["priority"][index]), int(workload["arrival_ns"][index]))
        self.lora = int(workload["lora"][index]) if "lora" in workload else 0
        self.ahead = ahead  # tokens behind a block that its key covers
        self.keys: dict[int, Any] = {}
        self.computed = 0  # positions scheduled so far, those under way, and their drafts, included
        self.blocks: list[list[int]] = [[] for _ in range(groups)]
        self.keyed = 0  # of its blocks, in each group, how many were looked at to be cached, or found
        self.junction = 0  # a prefix that some groups have, and others are to keep
        self.running = self.done = False
        self.preemptions = 0
        self.drafts = 0  # for its next step
        self.verified = self.proposed = 0  # steps with drafts that were verified; after which drafts were proposed
        self.partial = False  # the step last scheduled does not reach the end of what is known
        # Only under asynchronous scheduling, where a step is scheduled before the one before it is done:
        self.expected = 0  # tokens that steps under way will generate
        self.under_way = 0  # scheduled positions whose step is not yet processed
        self.stale = 0  # of these, how many belong to a time before it was preempted

    def key(self, end: int) -> Any:
        """Stands for the tokens before position `end`: a segment id stands for its whole path."""
        if end not in self.keys:  # asked for again and again by who waits
            last = end + self.ahead
            of = self.answer if last > self.prompt else self.segments[bisect.bisect_left(self.ends, last)]
            self.keys[end] = self.lora, of, last
        return self.keys[end]


class Scheduler:
    drops = False
    """whether an output that was under way at a preemption is thrown away, so that nobody waits for it"""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.block = config["block_size"]
        self.pool = Blocks(config["num_blocks"], config["enable_prefix_caching"])
        given = config.get("groups") or [{"kind": "full"}]
        self.groups = [Group(i, one["kind"], one.get("window", 0), config) for i, one in enumerate(given)]
        self.k, method = config.get("num_speculative_tokens", 0), config.get("spec_method", "ngram")
        self.spare = 0 if method == "ngram" else self.k  # positions behind a step's own that need blocks too
        self.slots = int(method == "draft_model")  # of the budget, that a request takes beside its tokens
        self.ahead, self.gives_up = int(method == "eagle"), 0  # the latter: blocks at the end of what is found
        self.drafted: dict[Request, int] = {}  # of the step in hand, how many drafts each has, …
        self.padded: set[Request] = set()  # … and who has placeholders for them
        self.prefills = False  # whether anybody in it who runs is part-way in its prompt
        self.max_loras = config.get("max_loras", 0)
        self.by_priority = config["policy"] == "priority"
        self.lookahead = config["async_scheduling"]
        self.kept_free = int(config["watermark"] * config["num_blocks"])
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.interval = config.get("prefill_schedule_interval", 1)
        self.executed, self.last, self.bound, self.held_back = 0, -self.interval, False, False
        self.deferred: set[Request] = set()  # were passed over once, and wait since then
        self.flush = False  # requests finished since the last schedule: the engine makes one more, perhaps empty, step

    def busy(self) -> bool:
        return bool(self.waiting or self.running or self.flush)

    def _queued(self) -> int:
        return len(self.waiting)

    # ------------------------------------------------------------ cache
    def _found(self, groups: list[Group], request: Request, number: int) -> list[int] | None:
        """The oldest copies of a block, if all these groups have it."""
        key, found = request.key((number + 1) * self.block), list[int]()
        for group in groups:
            copies = self.pool.cached.get((group.number, key))
            if not copies:
                return None
            found.append(next(iter(copies)))
        return found

    def _from_left(self, groups: list[Group], request: Request, first: int, most: int) -> list[list[int]]:
        rows = [[NULL] * len(groups) for _ in range(first)]
        while len(rows) < most and (row := self._found(groups, request, len(rows))):
            rows.append(row)
        return rows

    def _from_right(self, groups: list[Group], request: Request, most: int) -> list[list[int]]:
        rows, run = [[NULL] * len(groups) for _ in range(most)], 0
        for number in range(most - 1, -1, -1):
            row = self._found(groups, request, number)
            run = run + 1 if row else 0
            if row:
                rows[number] = row
                if run >= groups[0].tail:
                    return rows[: number + run]
        return rows[:run]

    def _hits(self, request: Request) -> list[list[int]]:
        """Cached blocks of each group, equally many; at least the last known token is computed anew."""
        hits: list[list[int]] = [[] for _ in self.groups]
        if not self.pool.caching:
            return hits
        kinds: dict[tuple[str, int], list[Group]] = {}
        for group in sorted(self.groups, key=lambda group: group.kind != "full"):
            kinds.setdefault((group.kind, group.window), []).append(group)
        most, longest, full = (request.tokens - 1) // self.block, 0, None
        while True:
            length = most
            for (kind, window), groups in kinds.items():
                if kind == "full" and full is not None:
                    length = min(length, full)
                    continue
                if kind == "sliding":
                    rows = self._from_right(groups, request, length)
                else:
                    first = length * self.block // window * window // self.block if window else 0
                    rows = self._from_left(groups, request, first, length)
                length = len(rows)
                full = length if kind == "full" else full
                for at, group in enumerate(groups):
                    hits[group.number] = [row[at] for row in rows]
                longest = max(longest, length)
            shrunk, most = length < most, length
            if not shrunk or (len(kinds) == 2 and full is not None):
                break
        request.junction = longest * self.block if longest > most else 0
        return [found[: max(0, most - self.gives_up)] for found in hits]

    # ------------------------------------------------------------ blocks
    def _need(self, request: Request, positions: int, computed: int, hits: list[list[int]], capped: bool) -> int:
        """Blocks that leave the free list if the request is to hold so many positions."""
        need = 0
        for group, mine, found in zip(self.groups, request.blocks, hits, strict=True):
            wanted, behind = -(-positions // self.block), group.behind(computed)
            if capped and group.cap is not None:
                wanted = min(wanted, group.cap)
            need += max(0, wanted - max(0 if mine else behind, len(mine) + len(found)))
            need += sum(self.pool.holders[block] == 0 for block in found[behind:])
        return need

    def _place(
        self, request: Request, new: int, hits: list[list[int]] | None = None, headroom: int = 0, whole: bool = False
    ) -> list[int] | None:
        """Blocks for `new` more positions; None if too few. Full blocks are cached now, before they are computed."""
        hits = hits or [[] for _ in self.groups]
        computed, free = request.computed + len(hits[0]) * self.block, len(self.pool.free)
        if whole and self._need(request, request.tokens, computed, hits, True) + headroom > free:
            return None
        self._give_up(request, computed - request.under_way)
        positions = computed + new
        if self.k:
            positions = min(positions + self.spare, self.config["max_model_len"])
        if self._need(request, positions, computed, hits, False) + headroom > len(self.pool.free):
            return None
        for group, mine, found in zip(self.groups, request.blocks, hits, strict=True):
            behind = group.behind(computed) if found else 0
            self.pool.share(found[behind:])
            mine += [NULL] * behind + found[behind:]
        request.keyed += len(hits[0])
        taken = []
        for mine in request.blocks:
            more = self.pool.take(max(0, -(-positions // self.block) - len(mine)))
            mine += more
            taken += more
        self._remember(request, min(computed + new, request.tokens))
        return taken

    def _give_up(self, request: Request, processed: int) -> None:
        """Blocks behind the windows; what is under way still needs its own."""
        for group, mine in zip(self.groups, request.blocks, strict=True):
            low = until = min(group.behind(max(0, processed)), len(mine))
            while low > 0 and mine[low - 1] != NULL:
                low -= 1
            self.pool.release(mine[low:until])
            mine[low:until] = [NULL] * (until - low)

    def _remember(self, request: Request, known: int) -> None:
        if not self.pool.caching:
            return
        for at in range(request.keyed, min(known, request.tokens - self.ahead) // self.block):
            request.keyed = at + 1
            for group, mine in zip(self.groups, request.blocks, strict=True):
                if mine[at] != NULL and group.keeps(at, request):
                    key = group.number, request.key((at + 1) * self.block)
                    self.pool.key[mine[at]] = key
                    self.pool.cached.setdefault(key, {})[mine[at]] = None

    def _release(self, request: Request) -> None:
        for mine in request.blocks:
            self.pool.release([block for block in mine if block != NULL])
            mine.clear()
        request.keyed = 0

    def _give_back(self, request: Request) -> None:
        self._release(request)

    # ------------------------------------------------------------ scheduling
    def schedule(self) -> dict[str, Any]:
        """What the next step computes: {request: tokens}, in the order in which its results are taken up."""
        budget, cap = self.config["max_num_batched_tokens"], self.config["long_prefill_token_threshold"]
        if len(self.running) + self._queued() < 2:
            cap = 0
        budget -= self.slots
        self.drafted, self.padded, self.prefills = {}, set(), False
        self.pool.evicted, self.flush = 0, False
        chosen: dict[Request, int] = {}
        fresh: dict[Request, list[int]] = {}
        preempted: list[Request] = []
        early = self.executed + 1 - self.last < self.interval and not self.bound
        self.held_back = early and any(not r.partial for r in self.running)
        part = {r for r in self.running if r.partial}
        at = 0
        while at < len(self.running) and budget > 0:
            request = self.running[at]
            settled = request.computed - request.expected
            last_is_due = request.expected and settled + 2 >= request.prompt + request.target
            new = min(request.tokens + request.drafts - settled, cap or budget, budget)
            new = min(new, self.config.get("max_model_len", new + request.computed + 1) - request.computed - 1)
            if last_is_due or new == 0 or (self.held_back and request.partial):
                at += 1
                continue
            while (taken := self._place(request, new)) is None:
                victim = max(self.running, key=lambda r: r.rank) if self.by_priority else self.running[-1]
                if self._keeps_blocks(victim):
                    break
                place = self.running.index(victim)
                del self.running[place]
                at -= place < at
                if victim in chosen:
                    budget += chosen.pop(victim) + self.slots
                    self.drafted.pop(victim)
                    del fresh[victim]
                self._preempt(victim)
                preempted.append(victim)
                if victim is request:
                    break
            if taken is None:
                if self.by_priority and not request.running:
                    continue
                break
            chosen[request], fresh[request] = new, taken
            self.prefills |= request.partial
            self.drafted[request] = min(request.drafts, max(0, new + settled - request.tokens))
            request.drafts = 0
            budget -= new + self.slots
            at += 1
        admitted = {} if preempted else self._admit(chosen, budget, cap)
        self.executed += bool(chosen)
        if part & set(chosen) or any(computed < r.tokens - 1 for r, computed in admitted.items()):
            self.last = self.executed
        for request, new in chosen.items():
            request.computed += new
            request.under_way += new
            request.partial = request.computed < request.tokens + request.expected
            if self.lookahead and not request.partial:
                request.expected += 1 + self.drafted.get(request, 0)
                request.drafts = self.k
        crc = 0
        for request, new in chosen.items():
            blocks = fresh.get(
                request, [block for mine in request.blocks for block in mine]
            )  # of those just admitted all
            crc = zlib.crc32(np.array([request.index, new, *blocks], np.int32).tobytes(), crc)
        row = (len(self.pool.free), self.pool.evicted, len(self.waiting), len(self.running), crc)
        told = [(r, n, not r.partial) for r, n in chosen.items()]
        held = [len(mine) - mine.count(NULL) for r in chosen for mine in r.blocks]
        step = {"chosen": told, "admitted": list(admitted.items()), "preempted": preempted, "row": row, "held": held}
        return step | {"drafts": [self.drafted.get(r, 0) for r in chosen], "padded": self.padded}

    def _admit(self, chosen: dict[Request, int], budget: int, cap: int) -> dict[Request, int]:
        admitted: dict[Request, int] = {}
        passed: list[Request] = []
        loras = {r.lora for r in self.running if r.lora}
        while budget > 0 and self.waiting and len(self.running) < self.config["max_num_seqs"]:
            request = min(self.waiting, key=lambda r: (*r.rank, r.index)) if self.by_priority else self.waiting[0]
            no_slot = self.max_loras and request.lora and request.lora not in loras and len(loras) == self.max_loras
            if (request.stale and not self.drops) or no_slot:  # stale: it waits for results under way
                self.waiting.remove(request)
                self.deferred.add(request)
                passed.append(request)
                continue
            hits = self._hits(request)
            found = len(hits[0]) * self.block
            lacks, padding = request.tokens - found, 0
            if self.held_back and lacks > 1:
                break
            first = not self.prefills and (len(chosen) > len(admitted) or found)
            if self.k and lacks == 1 and first and found + 2 + self.k <= self.config["max_model_len"]:
                padding = self.k
                if 1 + padding > budget:
                    break
            new = min(lacks + padding, cap or budget, budget)
            headroom = self.kept_free if self.running else 0
            if self._place(request, new, hits, headroom, self.config["reserve_full_isl"]) is None:
                break
            self.waiting.remove(request)
            self.deferred.discard(request)
            self.running.append(request)
            request.running = True
            request.computed = found
            loras |= {request.lora} - {0}
            admitted[request] = request.computed
            chosen[request] = new
            budget -= new + self.slots
            if padding:
                self.drafted[request] = padding
                self.padded.add(request)
        self.waiting.extendleft(reversed(passed))
        self.bound = self.bound if self.held_back else len(self.waiting) > len(self.deferred)
        return admitted

    def _keeps_blocks(self, victim: Request) -> bool:
        """Whether it is not preempted in this step, nor anybody else."""
        return False

    def _preempt(self, request: Request) -> None:
        """It loses its place and its blocks, but what is cached of them may be found again."""
        self._release(request)
        request.running, request.computed, request.expected, request.drafts = False, 0, 0, 0
        request.stale = request.under_way
        request.preemptions += 1
        self.waiting.appendleft(request)

    def take_up(self, step: dict[str, Any], script: Columns | None = None) -> tuple[list[Request], list[Request]]:
        """The step is done; returns the requests that got tokens (`step["got"]`: how many), and those that thereby
        finished. `script`: what is accepted of drafts, and how many are proposed."""
        served, finished, step["got"] = [], [], []
        for (request, new, samples), drafts in zip(step["chosen"], step["drafts"], strict=True):
            request.under_way -= new
            stale = request.stale > 0
            request.stale -= new * stale
            if request.done or not samples or (stale and self.drops):
                continue
            got = 1 + self._accepted(request, drafts, request in step["padded"], script)
            kept = min(got, request.prompt + request.target - request.tokens)
            request.tokens += kept
            served.append(request)
            step["got"].append(kept)
            request.done = request.tokens - request.prompt >= request.target
            if not stale and (request.expected or self.k):
                request.computed -= drafts + 1 - kept
                request.expected -= (drafts + 1) * (request.expected > 0)
                if request.running:
                    self._remember(request, min(request.computed - request.under_way, request.tokens))
            if request.done:
                self._give_back(request)
                finished.append(request)
        for request, _, samples in step["chosen"] if self.k and not self.lookahead else ():
            if not request.done:
                request.drafts = self._proposed(request, script) if samples else 0
        self.running = [r for r in self.running if not r.done]
        self.waiting = deque(r for r in self.waiting if not r.done)
        self.deferred -= set(finished)
        self.flush = self.flush or bool(finished)
        return served, finished

    def _accepted(self, request: Request, drafts: int, padded: bool, script: Columns | None) -> int:
        """Of the drafts of a step: of placeholders none, but where a recording was asynchronous."""
        if not drafts or (padded and not self.lookahead):
            return 0
        assert script is not None
        row = script["accepts"][request.index]
        request.verified += 1
        return min(drafts, int(row[(request.verified - 1) % len(row)]))

    def _proposed(self, request: Request, script: Columns | None) -> int:
        if script is None or "drafts" not in script:
            return int(self.k)
        row = script["drafts"][request.index]
        request.proposed += 1
        return int(row[(request.proposed - 1) % len(row)])


def replay(config: dict[str, Any], workload: Columns) -> Columns:
    """Drive the scheduler. A step of T tokens that ends at contexts C costs step_ns + T token_ns + sum(C)
    context_token_ns; the host costs nothing. With asynchronous scheduling a second step waits while the first runs."""
    n, arrival = len(workload["arrival_ns"]), [int(a) for a in workload["arrival_ns"]]
    scheduler = Scheduler(config)
    rows: list[tuple[int, ...]] = []
    after: list[list[int]] = []
    several = len(scheduler.groups) > 1
    more = (*(("scheduled_blocks",) if several else ()), *(OF_DRAFTS if scheduler.k else ()))
    lists: dict[str, list[int]] = {name: [] for name in (*LISTS, *more)}
    first, finish, hit = np.full(n, -1, np.int64), np.full(n, -1, np.int64), np.full(n, -1, np.int32)
    requests: list[Request] = []
    depth = 2 if config["async_scheduling"] else 1
    flight: deque[tuple[dict[str, Any], int, int]] = deque()
    now = gpu = 0
    while True:
        if not scheduler.busy() and not flight:
            if len(requests) == n:
                break
            now = max(now, arrival[len(requests)])
        while len(requests) < n and arrival[len(requests)] <= now:
            requests.append(Request(len(requests), workload, len(scheduler.groups), scheduler.ahead))
            scheduler.waiting.append(requests[-1])
        if scheduler.busy():
            step, row, start, cost = scheduler.schedule(), -1, now, 0
            if step["chosen"]:
                tokens = sum(new for _, new, _ in step["chosen"])
                context = sum(r.computed for r, _, _ in step["chosen"])
                cost = config["step_ns"] + config["token_ns"] * tokens + config["context_token_ns"] * context
                start = max(now, gpu)
                gpu = start + cost
            if step["chosen"] or step["preempted"]:
                row = len(rows)
                sizes = (len(step["chosen"]), len(step["admitted"]), len(step["preempted"]))
                rows.append((now, start, cost, *sizes, *step["row"]))
                after.append([0, 0])
                lists["scheduled_request"] += [r.index for r, _, _ in step["chosen"]]
                lists["scheduled_tokens"] += [new for _, new, _ in step["chosen"]]
                if scheduler.k:
                    lists["scheduled_drafts"] += step["drafts"]
                if several:
                    lists["scheduled_blocks"] += step["held"]
                lists["admitted_request"] += [r.index for r, _ in step["admitted"]]
                lists["admitted_hit_tokens"] += [cached for _, cached in step["admitted"]]
                lists["preempted_request"] += [r.index for r in step["preempted"]]
                hit[[r.index for r, _ in step["admitted"] if not r.preemptions]] = [
                    cached for r, cached in step["admitted"] if not r.preemptions
                ]
            flight.append((step, start + cost, row))
            if len(flight) < depth and (step["chosen"] or scheduler.busy()):
                continue
        elif not flight:
            continue
        step, done, row = flight.popleft()
        now = max(now, done)
        served, finished = scheduler.take_up(step, workload)
        if scheduler.k:
            lists["sampled_request"] += [r.index for r in served]
            lists["sampled_tokens"] += step["got"]
        for request in (r for r in served if first[r.index] < 0):
            first[request.index] = now
        for request in finished:
            finish[request.index] = now
            lists["finished_request"].append(request.index)
        if row >= 0:
            after[row] = [len(finished), len(scheduler.pool.free)]
    table = np.array(rows, np.int64).T
    result: Columns = dict(zip(ROW, table, strict=True))
    result["step_finished"], result["step_free_blocks_after"] = np.array(after, np.int64).T
    result.update({name: np.array(values, np.int32) for name, values in lists.items()})
    result.update(first_token_ns=first, finish_ns=finish, first_cached_tokens=hit)
    result["preemptions"] = np.array([r.preemptions for r in requests], np.int32)
    result["output_seen"] = np.array([r.tokens - r.prompt for r in requests], np.int32)
    return result


if __name__ == "__main__":
    compare(replay, sys.argv[1:])
