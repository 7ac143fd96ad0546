"""A plain model of SGLang's scheduler (0.5.23) for one GPU, full attention, page size 1, no speculation.

    python -m tests.support.reference.sglang ../shared/fidelity/sglang/*.npz    # replays and compares every column

`replay(config, workload)` returns the columns of a recording (the README beside the recordings). Times are whole
nanoseconds. The rules:

**Drive.** A step: requests with arrival ≤ now join the queue; a batch is scheduled; results are taken up. Without
overlap the results are the batch's own, at its end. With overlap they are those of the batch before, so the next step
is scheduled when this batch starts. If nothing can be scheduled, the batch before is taken up all the same; if there is
none either, the engine is idle: the ratio starts anew, and the next arrival is awaited.

**Scheduling.** First the part-way request (at most one) gives the tree its last chunk, computed or not. If the last
batch was a prefill, its requests go to the end of `running`, but not those done and not the part-way one; with overlap
their first tokens are still under way. Those done leave `running`. Then a prefill if there can be one, else a decode.

**Full.** No admissions while this is set. Set by a candidate that does not fit while others run or are chosen, by a
choice that leaves no room, and by a want of slots. Cleared when a request leaves `running` in whatever way, when one of
the last prefill does not go there, and when the last prefill comes to an empty `running`.

**Prefill.** None if there is no part-way request and it is full, or nobody waits, or `running` has all slots. Else the
queue is put in order. fcfs: as it is, but on the first, 33rd, ... pass with somebody waiting the first 128 are looked
up, from the back, only to refresh what they share. lpm with more than 128 waiting: the same. lpm: all are looked up in
turn and sorted by tokens found (at most all but one), most first, equals as before; the order stays. One that found
≤ 32 and shares ≥ 32 with an earlier one that found ≤ 32 and was not itself put back is put behind all.
The part-way request takes min(rest, chunk). Then those waiting, in order, until one does not fit: look up all that it
knows (prompt, and what it generated before a retraction) but the last token; it fits if
    new + min(max_new − generated, 4096) + 1 < free + evictable − reserved,
evictable without what it found, reserved = Σ over `running` of min(max_new − generated, 4096) · ratio + Σ over this
batch of new + 1 + min(max_new, 4096) (no − generated; and no max_new for who does not get to its end). Who wants more
than is left of the chunk is cut to it and is the next part-way request. `running` and batch together have at most
max_running_requests. Room for all is made at the end.

**Decode.** A token for each of `running`. Where no eviction makes room, requests are retracted, at least one, until
there is: the fewest generated first, of equals the longest prompt, of equals the last. What is its own is freed, what
it locked unlocked, and at once 20 tokens for each one left are made free. `running` is left in the order of that
choice, most generated first; the retracted go to the end of the queue. ratio = (generated + 20 n) / (max_new + 1),
summed over those left, at most 1. In a decode without retraction it falls, down to its least.

**Results.** In the batch's order each request gets a token, but not if done or retracted meanwhile or if the prompt
goes on. At its last it gives the tree all tokens that have KV and is released. With overlap it was decoded once too
often, so these include the last, unless the step between was a prefill. Else, if this was a prefill, it gives the tree
what the prefill covered.

**Tree.** Nodes bear the time of last use. A look-up stamps the path it found, an insertion every node it comes by;
either splits a node that it leaves midway, and the rest of it is stamped too. To insert more than the prompt is also to
insert the prompt alone, so that a node ends there. Copies of what was there are freed; the lock moves to the new path.
Evicted is the unlocked leaf used longest ago, whole, one by one until there is room; then its parent may be a leaf.

**Skipping.** (Read from the source; the recordings are without it.) With skip_finishing_decode and overlap, a request
whose last token by max_new_tokens is under way leaves `running` when a decode is scheduled, and is not in it. If
nobody is left, or the others find no room, nothing is scheduled: that result frees some.

Left out, as it cannot bind here: a chunk cut to the room, rows of the request pool, max_prefill_tokens (16384) while
the chunk is not larger.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tests.support.recordings.columns import Columns
from tests.support.recordings.engines import compare

ROW = ("step_schedule_ns", "step_start_ns", "step_ns", "step_prefill", "step_requests", "step_retracted",
       "step_free_tokens", "step_evictable_tokens", "step_ratio", "step_waiting")  # fmt: skip
LISTS = ("scheduled_request", "scheduled_tokens", "scheduled_from", "retracted_request")
SEGMENT = 1 << 24  # a token is (its segment, its place in the segment); a segment id stands for its whole path
CLIP_MAX_NEW_TOKENS = 4096
RETRACT_DECODE_STEPS = 20
RATIO = 0.7  # · schedule_conservativeness
LEAST_RATIO = 0.14  # of that
DECAY_STEPS = 600
REFRESH_INTERVAL = 32  # passes
MATCHED_WAITING = 128  # requests
IN_BATCH_PREFIX = 32  # tokens


def shared(a: np.ndarray, b: np.ndarray) -> int:
    """Length of the common prefix."""
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n


class Node:
    def __init__(self, tokens: np.ndarray, parent: Node | None, used: int) -> None:
        self.tokens = tokens
        self.parent = parent
        self.used = used
        self.children: dict[int, Node] = {}  # by first token
        self.locks = 0


class Cache:
    """The KV tokens of a GPU: free, or in the radix tree, or a request's own. What is in the tree is evictable unless
    a request locks it."""

    def __init__(self, tokens: int) -> None:
        self.free = tokens
        self.evictable = 0
        self.clock = 0
        self.root = Node(np.empty(0, np.int64), None, 0)
        self.leaves: set[Node] = set()

    def _now(self) -> int:
        self.clock += 1
        return self.clock

    def _split(self, node: Node, at: int) -> Node:
        """Its first `at` tokens become a node of their own, which is returned."""
        assert node.parent is not None
        upper = Node(node.tokens[:at], node.parent, self._now())
        upper.locks = node.locks
        upper.children[int(node.tokens[at])] = node
        node.parent.children[int(node.tokens[0])] = upper
        node.tokens, node.parent, node.used = node.tokens[at:], upper, self._now()
        return upper

    def match(self, tokens: np.ndarray) -> tuple[int, Node]:
        """How many of the tokens are in the tree, and the node that ends there (split off if need be)."""
        node, found = self.root, 0
        while found < len(tokens) and (child := node.children.get(int(tokens[found]))):
            same = shared(child.tokens, tokens[found:])
            found += same
            node = child if same == len(child.tokens) else self._split(child, same)
            if node is not child:
                break
        now, at = self._now(), node
        while at.parent is not None:
            at.used, at = now, at.parent
        return found, node

    def insert(self, tokens: np.ndarray) -> tuple[int, Node]:
        """Put the tokens into the tree; how many were there already, and the node that ends there."""
        node, found = self.root, 0
        while found < len(tokens) and (child := node.children.get(int(tokens[found]))):
            child.used = self._now()
            same = shared(child.tokens, tokens[found:])
            found += same
            node = child if same == len(child.tokens) else self._split(child, same)
        if found < len(tokens):
            leaf = Node(tokens[found:], node, self._now())
            node.children[int(tokens[found])] = leaf
            self.leaves.discard(node)
            self.leaves.add(leaf)
            self.evictable += len(leaf.tokens)
            node = leaf
        return found, node

    def lock(self, node: Node, by: int) -> None:
        """Lock (1) or unlock (-1) a path."""
        while node.parent is not None:
            held = node.locks > 0
            node.locks += by
            self.evictable += (held - (node.locks > 0)) * len(node.tokens)
            node = node.parent

    def make_room(self, tokens: int) -> bool:
        """Evict leaves, the least recently used first, until so many tokens are free."""
        while self.free < tokens and (idle := [leaf for leaf in self.leaves if leaf.locks == 0]):
            leaf = min(idle, key=lambda node: node.used)
            assert leaf.parent is not None
            self.free += len(leaf.tokens)
            self.evictable -= len(leaf.tokens)
            self.leaves.remove(leaf)
            del leaf.parent.children[int(leaf.tokens[0])]
            if not leaf.parent.children and leaf.parent is not self.root:
                self.leaves.add(leaf.parent)
        return self.free >= tokens


class Request:
    def __init__(self, index: int, workload: Columns, root: Node) -> None:
        self.index = index
        rows = slice(int(workload["segment_offsets"][index]), int(workload["segment_offsets"][index + 1]))
        runs = [
            (int(s), int(n))
            for s, n in zip(workload["segment_ids"][rows], workload["segment_tokens"][rows], strict=True)
        ]
        self.prompt = sum(tokens for _, tokens in runs)
        self.target = int(workload["output_tokens"][index])
        self.max_new = int(workload["max_new_tokens"][index])
        answer = int(workload["output_segment"][index])
        runs.append((answer if answer >= 0 else -1 - index, self.target))  # tokens of its own, or those of a segment
        self.tokens = np.concatenate([s * SEGMENT + np.arange(n, dtype=np.int64) for s, n in runs])
        self.generated = 0  # tokens known
        self.cached = 0  # where its next prefill begins
        self.end = 0  # and where its last one ends
        self.computed = 0  # positions that have KV, those under way included
        self.protected = 0  # of these, how many are the tree's
        self.lock = root  # its path there
        self.done = self.retracted = False

    @property
    def known(self) -> int:
        return self.prompt + self.generated

    @property
    def reserve(self) -> int:
        """Tokens that it may still generate."""
        return min(max(self.max_new - self.generated, 0), CLIP_MAX_NEW_TOKENS)


class Batch:
    def __init__(self, prefill: bool, requests: list[Request], chunked: Request | None = None) -> None:
        self.prefill = prefill
        self.requests = requests
        self.chunked = chunked  # the request of it that goes on with its prompt
        begins = [r.cached if prefill else r.computed - 1 for r in requests]
        self.rows = [(r, begin, r.computed - begin) for r, begin in zip(requests, begins, strict=True)]
        self.context = sum(r.computed for r in requests)


class Scheduler:
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.cache = Cache(config["max_total_tokens"])
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.chunked: Request | None = None
        self.last: Batch | None = None  # the batch scheduled before
        self.full = False
        self.first_ratio = min(RATIO * config.get("schedule_conservativeness", 1.0), 1.0)
        self.ratio = self.first_ratio
        self.passes = 0
        self.retracted: list[Request] = []

    # Memory

    def _allocate(self, tokens: int) -> None:
        if not self.cache.make_room(tokens):
            raise MemoryError(f"{tokens} tokens wanted, {self.cache.free} free")
        self.cache.free -= tokens

    def _checkpoint(self, request: Request, end: int) -> None:
        """Give the tree the request's tokens up to `end`. Its own copies of what is there already are dropped."""
        found, node = self.cache.insert(request.tokens[:end])
        self.cache.free += max(0, found - request.protected)
        if request.prompt < end:
            self.cache.insert(request.tokens[: request.prompt])  # splits, so that the output can be evicted alone
        self.cache.lock(request.lock, -1)
        self.cache.lock(node, 1)
        request.lock, request.protected = node, end

    def _release(self, request: Request) -> None:
        """Drop what is the request's own; what it has in the tree becomes evictable."""
        self.cache.free += request.computed - request.protected
        self.cache.lock(request.lock, -1)
        request.lock, request.protected, request.computed = self.cache.root, 0, 0

    # Scheduling

    def schedule(self) -> Batch | None:
        self.retracted = []
        if self.chunked:
            self._checkpoint(self.chunked, self.chunked.end)
            self.chunked.cached = self.chunked.end
        if self.last and self.last.prefill:
            joining = [r for r in self.last.requests if not r.done and r is not self.last.chunked]
            if len(joining) < len(self.last.requests) or (joining and not self.running):
                self.full = False
            self.running = self.running + joining
        self._keep([r for r in self.running if not r.done])
        batch = self._prefill()
        if batch is None and self.running:
            batch = self._decode()
        self.last = batch
        return batch

    def _finishing(self) -> list[Request]:
        """Of those running, whose last token by length is under way."""
        if not self.config.get("skip_finishing_decode", False) or not self.config["overlap"] or self.last is None:
            return []
        return [r for r in self.running if r in self.last.requests and r.generated + 1 >= r.max_new]

    def _keep(self, requests: list[Request]) -> None:
        if len(requests) < len(self.running):
            self.full = False
        self.running = requests

    def _order(self) -> None:
        """Put the queue in order; whoever is looked up is used."""
        by_prefix = self.config["schedule_policy"] == "lpm" and len(self.waiting) <= MATCHED_WAITING
        if not by_prefix:
            if self.waiting:
                if self.passes % REFRESH_INTERVAL == 0:
                    for request in reversed(self.waiting[:MATCHED_WAITING]):
                        self.cache.match(request.tokens[: request.known])
                self.passes += 1
            return
        firsts: list[np.ndarray] = []
        rank: dict[Request, float] = {}
        for request in self.waiting:
            tokens = request.tokens[: request.known]
            found, _ = self.cache.match(tokens)
            rank[request] = -min(found, len(tokens) - 1)
            if found <= IN_BATCH_PREFIX:
                if any(shared(first, tokens) >= IN_BATCH_PREFIX for first in firsts):
                    rank[request] = np.inf
                else:
                    firsts.append(tokens)
        self.waiting.sort(key=lambda r: rank[r])

    def _prefill(self) -> Batch | None:
        """A batch of prompts, or None."""
        cache, slots = self.cache, self.config["max_running_requests"] - len(self.running)
        if self.chunked is None:
            if self.full or not self.waiting:
                return None
            if slots <= 0:
                self.full = True
                return None
        self._order()
        chunk_left = self.config["chunked_prefill_size"]
        reserved = sum([r.reserve * self.ratio for r in self.running])
        chosen: list[Request] = []

        def room() -> float:
            return cache.free + cache.evictable - reserved

        def take(request: Request) -> None:
            nonlocal chunk_left, reserved
            rest = request.known - request.cached
            new = min(rest, chunk_left)
            self.chunked = request if new < rest else None
            request.end = request.cached + new
            chunk_left -= new
            reserved += new + 1 + (min(request.max_new, CLIP_MAX_NEW_TOKENS) if new == rest else 0)
            chosen.append(request)

        if self.chunked:
            take(self.chunked)
        for request in self.waiting:
            if chunk_left == 0 and room() > 0:
                break
            self.full = self.full or len(chosen) >= slots
            if self.full:
                break
            request.cached, node = cache.match(request.tokens[: request.known - 1])
            cache.lock(node, 1)
            if fits := request.known - request.cached + request.reserve + 1 < room():
                request.lock, request.protected = node, request.cached
                take(request)
            else:
                cache.lock(node, -1)
            if not fits or room() <= 0:
                self.full = bool(chosen or self.running)
                break
        if not chosen:
            return None
        self.waiting = [r for r in self.waiting if r not in chosen]
        self._allocate(sum(r.end - r.cached for r in chosen))
        for request in chosen:
            request.retracted, request.computed = False, request.end
        return Batch(True, chosen, self.chunked)

    def _decode(self) -> Batch | None:
        finishing = self._finishing()
        self._keep([r for r in self.running if r not in finishing])
        if not self.running:
            return None
        if not self.cache.make_room(len(self.running)):
            if finishing:
                return None
            self._retract()
        else:
            least = self.first_ratio * LEAST_RATIO
            self.ratio = max(self.ratio - (self.first_ratio - least) / DECAY_STEPS, least)
        self._allocate(len(self.running))
        for request in self.running:
            request.computed += 1
        return Batch(False, self.running)

    def _retract(self) -> None:
        """Until the rest can decode. The last one stays."""
        kept = sorted(self.running, key=lambda r: (r.generated, -r.prompt), reverse=True)
        while len(kept) > 1 and (not self.retracted or not self.cache.make_room(len(kept))):
            request = kept.pop()
            self._release(request)
            self.cache.make_room(len(kept) * RETRACT_DECODE_STEPS)
            request.retracted = True
            self.retracted.append(request)
        self._keep(kept)
        self.waiting += self.retracted
        most = sum(r.max_new for r in kept) + 1
        self.ratio = min(1.0, (sum(r.generated for r in kept) + RETRACT_DECODE_STEPS * len(kept)) / most)

    # Results

    def take_up(self, batch: Batch) -> list[Request]:
        """The batch is done; returns the requests that got a token."""
        served = []
        for request, begin, new in batch.rows:
            if request.done or request.retracted or request is batch.chunked:
                continue
            request.generated += 1
            request.done = request.generated >= request.target
            served.append(request)
            if request.done:
                self._checkpoint(request, request.computed)
                self._release(request)
            elif batch.prefill:
                self._checkpoint(request, begin + new)
        return served


def replay(config: dict[str, Any], workload: Columns) -> Columns:
    """Drive the scheduler. A step of T tokens that ends at contexts C costs step_ns + T token_ns + sum(C)
    context_token_ns; the host costs nothing. With overlap a batch is scheduled before the results of the one before."""
    n, arrival = len(workload["arrival_ns"]), [int(a) for a in workload["arrival_ns"]]
    scheduler = Scheduler(config)
    cache = scheduler.cache
    rows: list[tuple[Any, ...]] = []
    lists: dict[str, list[int]] = {name: [] for name in LISTS}
    first, finish, hit = np.full(n, -1, np.int64), np.full(n, -1, np.int64), np.full(n, -1, np.int32)
    joined = now = gpu = 0
    before: tuple[Batch, int] | None = None  # whose results are out, and when they come
    while True:
        while joined < n and arrival[joined] <= now:
            scheduler.waiting.append(Request(joined, workload, cache.root))
            joined += 1
        batch, flight = scheduler.schedule(), None
        if batch is not None:
            tokens = sum(new for _, _, new in batch.rows)
            cost = config["step_ns"] + config["token_ns"] * tokens + config["context_token_ns"] * batch.context
            start = max(now, gpu)
            gpu = start + cost
            state = (cache.free, cache.evictable, scheduler.ratio, len(scheduler.waiting))
            rows.append((now, start, cost, batch.prefill, len(batch.rows), len(scheduler.retracted), *state))
            for request, begin, new in batch.rows:
                lists["scheduled_request"].append(request.index)
                lists["scheduled_tokens"].append(new)
                lists["scheduled_from"].append(begin)
                if hit[request.index] < 0:
                    hit[request.index] = begin
            lists["retracted_request"] += [r.index for r in scheduler.retracted]
            flight = (batch, gpu)
            if not config["overlap"]:
                before, flight = flight, None
        elif before is None:
            if scheduler.waiting:
                raise MemoryError(f"request {scheduler.waiting[0].index} does not fit the empty memory")
            if joined == n:
                break
            scheduler.ratio = scheduler.first_ratio
            now = max(now, arrival[joined])
        if before is not None:
            done, now = before[0], max(now, before[1])
            for request in scheduler.take_up(done):
                if first[request.index] < 0:
                    first[request.index] = now
                if request.done:
                    finish[request.index] = now
        before = flight
    result: Columns = {name: np.array(column) for name, column in zip(ROW, zip(*rows, strict=True), strict=True)}
    result.update({name: np.array(values, np.int32) for name, values in lists.items()})
    result.update(first_token_ns=first, finish_ns=finish, first_cached_tokens=hit)
    return result


if __name__ == "__main__":
    compare(replay, sys.argv[1:])
