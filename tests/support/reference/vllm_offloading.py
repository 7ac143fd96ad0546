"""A plain model of vLLM's offloading to host memory (0.33.0, the native connector), beside the scheduler in `vllm`.

    python -m tests.support.reference.vllm_offloading ../shared/fidelity/vllm_features/offload_*.npz

`replay(config, workload)` returns the columns of a recording (the README beside the recordings). Section 5 of
engine-features.md says in words what this file does, but for what a load must leave to others.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

import numpy as np

from tests.support.recordings.columns import Columns
from tests.support.recordings.engines import compare
from tests.support.reference.host_memory import Copy, Host, Used
from tests.support.reference.vllm import LISTS, NULL, ROW, Request, Scheduler

STEPS = (*ROW[:10], "step_loads", "step_flush_ns", "step_host_dropped", "step_host_refused", "step_host_held")
LOADS = ("load_request", "load_hit_tokens", "load_tokens", "load_start_ns", "load_end_ns")
STORES = ("store_request", "store_blocks", "store_start_ns", "store_end_ns")


class Job:
    """A store, or a load."""

    def __init__(self, request: Request, keys: list[Any], stores: bool) -> None:
        self.request, self.keys, self.stores = request, keys, stores
        self.blocks: list[int] = []  # that are read, and may be taken once their request has finished
        self.slides: list[int] = []  # likewise, at any time
        self.from_ns = 0  # not before
        self.start_ns = self.end_ns = -1


class Offloading(Scheduler):
    """An engine with a host's memory behind its cache."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.host = Host(config)
        self.prompts_only = config.get("offload_prompt_only", True)
        if len(self.groups) == 1:  # the keys of connectors do not cover the next token
            self.gives_up, self.ahead = self.ahead, 0
        self.late: list[Request] = []  # finished, but a step under way has them
        self.holding: deque[Request] = deque()  # they wait and have blocks
        self.filling: set[Request] = set()  # part-way in what they know, or loading
        self.loads: list[Job] = []  # of this scheduling
        self.loading: set[Any] = set()
        self.jobs: dict[Request, list[Job]] = {}
        self.fenced: dict[int, list[Job]] = {}  # by block
        self.heard: set[Request] = set()
        self.used: dict[Request, Used] = {}
        self.mark: dict[Request, list[int]] = {}  # blocks that need no more be offered
        self.table: dict[Request, list[list[int]]] = {}
        self.finished: list[Request] = []  # since the last scheduling

    def busy(self) -> bool:
        return bool(self.holding or self.jobs) or super().busy()

    def _queued(self) -> int:
        return len(self.waiting) + len(self.holding)

    # ------------------------------------------------------------ loads
    def _key(self, group: int, request: Request, number: int) -> Any:
        return group, request.key((number + 1) * self.block)

    def _window(self, group: Any, tokens: int = 0) -> int:
        """Blocks that a load must have at its end, in a group that looks back so far."""
        if group.kind == "chunked":
            return -(-group.window // self.block)
        padding = -tokens % self.block
        return int(max(-(-group.window // self.block), -(-(group.window - 1 + padding) // self.block)))

    def _lookup(self, request: Request, here: int) -> int | None:
        """Until which token it may be loaded, where all but the last have KV in the host: of layers that look back to a
        window that one is computed anew, of others only if it is among them; None: some of that is on its way."""
        slides = sorted((g for g in self.groups if g.kind != "full"), key=self._window, reverse=True)
        full = [g for g in self.groups if g.kind == "full"]
        tokens, block = request.tokens - bool(slides), self.block
        found, defer, groups = 0, False, [*full, *slides]
        while groups:
            again: list[Any] = []
            slid = False
            for group in groups:
                tokens = min(tokens, request.tokens // block * block)
                if tokens - here * block < block:
                    return here * block
                high = min(-(-tokens // block), request.tokens // block)
                copies = [self.host.find(self._key(group.number, request, n)) for n in range(here, high)]
                if group.kind == "full":
                    got = next((n for n, copy in enumerate(copies) if copy is None), len(copies))
                    waits = not all(copy.ready for copy in copies[:got])
                else:
                    got, waits = self._slide(
                        copies, self._window(group, min(tokens, high * block)), self._window(group)
                    )
                if waits:
                    defer = True
                elif got == 0:
                    return here * block
                else:
                    tokens = min(tokens, block * (here + got))
                if tokens - here * block < block:
                    return here * block
                if tokens - here * block < found:
                    if defer:
                        defer, again = False, [*full, *slides]
                    elif slid and not again:
                        again = slides
                slid |= group.kind != "full"
                found = tokens - here * block
            groups = again
        if defer:
            return None
        found = max(0, found - self.gives_up * block)
        high = -(-(here * block + found) // block)
        for group in self.groups:
            low = here if group.kind == "full" else max(here, high - self._window(group, here * block + found))
            if any(self._key(group.number, request, n) in self.loading for n in range(low, high)):
                return None
        return here * block + found

    def _slide(self, copies: list[Copy | None], first: int, window: int) -> tuple[int, bool]:
        run, waits, needed = 0, False, first
        for at in range(len(copies) - 1, -1, -1):
            copy = copies[at]
            if copy is None:
                run, waits, needed = 0, False, window
            else:
                run += 1
                waits |= not copy.ready
            if run == needed:
                return at + needed, waits
        return run, waits

    def _promised(self) -> int:
        nothing: list[list[int]] = [[] for _ in self.groups]
        more = 1 + self.k + self.spare if self.k else 0  # a first step
        first = len(self.groups) * -(-more // self.block)  # of who loads
        return first + sum(self._need(r, r.tokens + more, r.computed, nothing, True) for r in self.filling)

    def _load(self, request: Request, hits: list[list[int]], here: int, computed: int) -> bool:
        """Take blocks for what is loaded, beside what those need to whom they are promised."""
        until = -(-computed // self.block)
        headroom, free = self.kept_free if self.running else 0, len(self.pool.free)
        length = request.tokens
        if self.config["reserve_full_isl"] and self._need(request, length, computed, hits, True) + headroom > free:
            return False
        if self._need(request, computed, computed, hits, False) + headroom + self._promised() > free:
            return False
        job = Job(request, [], False)
        keys = []
        for group, mine, found in zip(self.groups, request.blocks, hits, strict=True):
            behind = group.behind(computed)
            self.pool.share([block for block in found[behind:] if block != NULL])
            mine += [NULL] * min(behind, until) + found[behind:]
        for group, mine in zip(self.groups, request.blocks, strict=True):
            low = max(here, len(mine))
            mine += self.pool.take(max(0, until - len(mine)))
            keys += [(self._key(group.number, request, n), (n + 1) * self.block) for n in range(low, until)]
        request.keyed = here
        request.computed = computed
        job.keys = [key for key, _ in keys]
        self.host.load(keys, self.used.setdefault(request, Used()))
        self.loading |= set(job.keys)
        self.jobs[request] = [job]
        self.mark[request] = [until] * len(self.groups)
        self.filling.add(request)
        self.loads.append(job)
        self.found[request] = here
        return True

    def _admit(self, chosen: dict[Request, int], budget: int, cap: int) -> dict[Request, int]:
        admitted: dict[Request, int] = {}
        passed: list[Request] = []
        loras = {r.lora for r in self.running if r.lora}
        self.found = {}
        while budget > 0 and len(self.running) < self.config["max_num_seqs"] and (self.holding or self.waiting):
            queue = self.holding or self.waiting
            request = queue[0]
            no_slot = self.max_loras and request.lora and request.lora not in loras and len(loras) == self.max_loras
            loading = request.computed > 0 and request in self.jobs
            if loading or (request.stale and not self.drops):
                passed.append(queue.popleft())
                continue
            hits = None
            found = 0
            if request in self.heard:
                self.heard.discard(request)
                self._remember(request, request.computed)
                request.computed -= request.computed == request.tokens
            if no_slot:
                passed.append(queue.popleft())
                continue
            if not request.computed:
                hits = self._hits(request)
                here = len(hits[0])
                self.table.pop(request, None)
                self.mark[request] = [0] * len(self.groups)
                until = None if self.jobs.get(request) else self._lookup(request, here)
                if until is None:
                    passed.append(queue.popleft())
                    continue
                if until > here * self.block:
                    if not self._load(request, hits, here, until):
                        break
                    passed.append(queue.popleft())
                    continue
                found = here * self.block
            lacks, padding, ready = request.tokens - request.computed - found, 0, request.computed + found
            first = not self.prefills and (len(chosen) > len(admitted) or ready)
            if self.k and lacks == 1 and first and ready + 2 + self.k <= self.config["max_model_len"]:
                padding = self.k
                if 1 + padding > budget:
                    break
            new = min(lacks + padding, cap or budget, budget)
            headroom = self.kept_free if self.running else 0
            if self._place(request, new, hits, headroom, self.config["reserve_full_isl"]) is None:
                break
            queue.popleft()
            self.running.append(request)
            request.running = True
            request.computed += found
            loras |= {request.lora} - {0}
            admitted[request] = request.computed
            if request.computed + new < request.tokens:
                self.filling.add(request)
            chosen[request] = new
            budget -= new + self.slots
            if padding:
                self.drafted[request] = padding
                self.padded.add(request)
        self.holding.extendleft(reversed([r for r in passed if r.computed]))
        self.waiting.extendleft(reversed([r for r in passed if not r.computed]))
        return admitted

    def _keeps_blocks(self, victim: Request) -> bool:
        return self.lookahead and victim.under_way > 0

    def _preempt(self, request: Request) -> None:
        self.filling.discard(request)
        super()._preempt(request)

    def _give_back(self, request: Request) -> None:
        """What is behind its windows first, and the others when no step has it any more."""
        self._give_up(request, request.computed - request.under_way)
        if self._keeps_blocks(request):
            self.late.append(request)
        else:
            self._release(request)

    def _release_late(self, request: Request) -> None:
        """All of it is in one list by then, and the last block of the last group is the first to be taken again."""
        held = [block for mine in request.blocks for block in mine if block != NULL]
        self.pool.release(held)
        for mine in request.blocks:
            mine.clear()
        request.keyed = 0

    # ------------------------------------------------------------ stores
    def schedule(self) -> dict[str, Any]:
        self.loads = []
        self.host.dropped = self.host.refused = 0
        step = super().schedule()
        for request, _, samples in step["chosen"]:
            if samples:
                self.filling.discard(request)
        taken = self._taken(step)
        flush = [job for request in step["preempted"] for job in self.jobs.get(request, ()) if job not in self.loads]
        flush += [job for block in taken for job in self.fenced.get(block, ())]
        stores = []
        for request, _, _ in step["chosen"]:
            stores += self._offer(request, min(request.computed, request.tokens))
        for request in self.finished:
            made = self._offer(request, max(request.prompt, request.tokens - 1))
            for job in made:
                for block in job.blocks:
                    self.fenced.setdefault(block, []).append(job)
                flush += [job] * bool(taken & set(job.blocks))
            stores += made
        for request in self.finished:
            self.host.policy.finish(self.used.pop(request, Used()))
        self.finished = []
        free, evicted, waiting, running, _ = step["row"]
        step["row"] = (free, evicted, waiting + len(self.holding), running)
        return step | {"loads": self.loads, "stores": stores, "flush": list(dict.fromkeys(flush))}

    def _taken(self, step: dict[str, Any]) -> set[int]:
        """Blocks that are anybody's since this scheduling, cached ones included."""
        taken: set[int] = set()
        ends: dict[Request, list[int]] = {}
        for request, _, _ in step["chosen"]:
            mine = self.table.setdefault(request, [[] for _ in self.groups])
            ends[request] = [len(one) for one in mine]
            for one, blocks in zip(mine, request.blocks, strict=True):
                taken |= set(blocks[len(one) :])
                one += blocks[len(one) :]
        for job in self.loads:
            taken |= {block for blocks in job.request.blocks for block in blocks}
        taken.discard(NULL)
        for request, mine in self.table.items():
            for group, blocks in zip(self.groups, mine, strict=True):
                if group.kind != "full":
                    end = ends[request][group.number] if request in ends else len(blocks)
                    for at in range(self.mark.get(request, [0] * len(self.groups))[group.number], end):
                        if blocks[at] in taken:
                            blocks[at] = NULL
        return taken

    def _offer(self, request: Request, tokens: int) -> list[Job]:
        """What is full then is offered to the host."""
        if request not in self.table:
            return []
        tokens = min(tokens, request.prompt) if self.prompts_only else tokens
        late = self.gives_up * (tokens > request.prompt and not request.done)  # it may be written again
        mark = self.mark.setdefault(request, [0] * len(self.groups))
        offers, read, ends = [], {}, []
        for group, mine in zip(self.groups, self.table[request], strict=True):
            end = min(tokens // self.block - late, len(mine), request.tokens // self.block)
            ends.append(end)
            for at in range(mark[group.number], end):
                if mine[at] != NULL and group.keeps(at, request):
                    key = self._key(group.number, request, at)
                    offers.append((key, (at + 1) * self.block))
                    read[key] = mine[at], group.kind != "full"
        missing = self.host.offer(offers, self.used.setdefault(request, Used())) if offers else []
        if missing is None:
            return []
        self.mark[request] = [max(old, end) for old, end in zip(mark, ends, strict=True)]
        if not missing:
            return []
        job = Job(request, missing, True)
        job.blocks = [read[key][0] for key in missing if not read[key][1]]
        job.slides = [read[key][0] for key in missing if read[key][1]]
        for block in job.slides:
            self.fenced.setdefault(block, []).append(job)
        self.jobs.setdefault(request, []).append(job)
        return [job]

    # ------------------------------------------------------------ results
    def take_up(self, step: dict[str, Any], script: Columns | None = None) -> tuple[list[Request], list[Request]]:
        for request in self.late if step["chosen"] else ():
            self._release_late(request)
        self.late = [] if step["chosen"] else self.late
        served, finished = super().take_up(step, script)
        for request in finished:
            self.finished.append(request)
            for job in self.jobs.get(request, ()):
                for block in job.blocks:
                    self.fenced.setdefault(block, []).append(job)
        for job in step["news"]:
            self._hear(job)
        return served, finished

    def _hear(self, job: Job) -> None:
        copies = self.host.policy.copies
        for key in job.keys:
            if job.stores:
                copies[key].ready = True
            else:
                copies[key].loads -= 1
                self.loading.discard(key)
        for block in [*job.blocks, *job.slides]:
            if job in self.fenced.get(block, ()):
                self.fenced[block].remove(job)
        self.jobs[job.request].remove(job)
        if not self.jobs[job.request]:
            del self.jobs[job.request]
        if not job.stores:
            self.heard.add(job.request)


class Engine:
    """Its loop, with a link for loads and one for stores."""

    def __init__(self, config: dict[str, Any], workload: Columns) -> None:
        self.config, self.workload = config, workload
        self.of = Offloading(config)
        self.n = len(workload["arrival_ns"])
        self.depth = 2 if config["async_scheduling"] else 1
        self.flight: deque[dict[str, Any]] = deque()
        self.gpu = self.free = 0
        self.free_ns = {False: 0, True: 0}
        self.under_way: list[Job] = []
        self.unsent: list[Job] = []
        self.rows: list[tuple[int, ...]] = []
        self.after: list[list[int]] = []
        self.lists: dict[str, list[int]] = {name: [] for name in (*LISTS, *LOADS, *STORES)}
        self.first, self.finish = np.full(self.n, -1, np.int64), np.full(self.n, -1, np.int64)
        self.cached, self.loaded = np.full(self.n, -1, np.int32), np.full(self.n, -1, np.int32)
        self.requests: list[Request] = []

    def _send(self, job: Job, now: int) -> None:
        kind = "store" if job.stores else "load"
        job.start_ns = max(now, self.free_ns[job.stores], job.from_ns)
        blocks = len(job.keys)
        job.end_ns = job.start_ns + self.config[f"{kind}_latency_ns"] + blocks * self.config[f"{kind}_block_ns"]
        self.free_ns[job.stores] = job.end_ns
        self.under_way.append(job)
        lists, block = self.lists, self.of.block
        if job.stores:
            row: tuple[int, ...] = (job.request.index, blocks, job.start_ns, job.end_ns)
        else:
            here = self.of.found[job.request] * block
            row = (job.request.index, here, job.request.computed - here, job.start_ns, job.end_ns)
        for name, value in zip(STORES if job.stores else LOADS, row, strict=True):
            lists[name].append(value)

    def schedule(self, now: int) -> dict[str, Any]:
        of = self.of
        step = of.schedule() | {"ends": now, "row_at": -1}
        submitted = [*self.unsent, *(job for job in step["stores"] if job in step["flush"])]
        self.unsent = [job for job in step["stores"] if job not in step["flush"]]
        for job in submitted:
            self._send(job, now)
        flush = max([0, *(job.end_ns - now for job in step["flush"])])
        for job in step["loads"]:
            self._send(job, now + flush)
        cost, start, step["ends"] = 0, now, now + flush
        self.gpu = max(self.gpu, now + flush)  # steps behind it are not launched before
        if step["chosen"]:
            tokens = sum(new for _, new, _ in step["chosen"])
            context = sum(r.computed for r, _, _ in step["chosen"])
            cost = self.config["step_ns"] + self.config["token_ns"] * tokens + self.config["context_token_ns"] * context
            start = max(now, self.gpu)
            self.gpu = step["ends"] = start + cost
        for job in self.unsent:
            if job in step["stores"]:
                job.from_ns = step["ends"]
        if step["chosen"] or step["preempted"] or step["loads"]:
            step["row_at"] = len(self.rows)
            sizes = (len(step["chosen"]), len(step["admitted"]), len(step["preempted"]))
            host = (flush, of.host.dropped, of.host.refused, len(of.host.policy.copies))
            self.rows.append((now, start, cost, *sizes, *step["row"], len(step["loads"]), *host))
            self.after.append([0, 0])
            lists = self.lists
            lists["scheduled_request"] += [r.index for r, _, _ in step["chosen"]]
            lists["scheduled_tokens"] += [new for _, new, _ in step["chosen"]]
            lists["admitted_request"] += [r.index for r, _ in step["admitted"]]
            lists["admitted_hit_tokens"] += [computed for _, computed in step["admitted"]]
            lists["preempted_request"] += [r.index for r in step["preempted"]]
        for request, computed in [
            *step["admitted"],
            *((job.request, of.found[job.request] * of.block) for job in step["loads"]),
        ]:
            if self.cached[request.index] < 0:
                self.cached[request.index] = computed
                self.loaded[request.index] = request.computed - computed if request in of.found else 0
        step["news"] = [job for job in self.under_way if job.end_ns <= now + flush]
        self.under_way = [job for job in self.under_way if job.end_ns > now + flush]
        return step

    def take_up(self, step: dict[str, Any], now: int) -> None:
        served, finished = self.of.take_up(step, self.workload)
        for request in served:
            if self.first[request.index] < 0:
                self.first[request.index] = now
        for request in finished:
            self.finish[request.index] = now
            self.lists["finished_request"].append(request.index)
        if step["row_at"] >= 0:
            self.after[step["row_at"]] = [len(finished), len(self.of.pool.free)]

    def run(self) -> Columns:
        arrival = [int(a) for a in self.workload["arrival_ns"]]
        now, quiet = 0, 0
        while True:
            while len(self.requests) < self.n and arrival[len(self.requests)] <= now:
                self.requests.append(Request(len(self.requests), self.workload, len(self.of.groups), self.of.ahead))
                self.of.waiting.append(self.requests[-1])
                quiet = 0
            if self.of.busy() and quiet < 4:
                step = self.schedule(now)
                self.flight.append(step)
                quiet = 0 if step["row_at"] >= 0 or step["news"] or self.unsent else quiet + 1
                if len(self.flight) < self.depth and (step["chosen"] or self.of.busy()):
                    continue
            if not self.flight:
                times = [*(job.end_ns for job in self.under_way), *arrival[len(self.requests) : len(self.requests) + 1]]
                if not times:
                    break
                now, quiet = max(now, min(times)), 0
                continue
            step = self.flight.popleft()
            now = max(now, step["ends"])
            self.take_up(step, now)
            if step["chosen"] or step["news"]:
                quiet = 0
        made = dict(zip(STEPS, np.array(self.rows, np.int64).T, strict=True))
        made["step_finished"], made["step_free_blocks_after"] = np.array(self.after, np.int64).T
        made |= {name: np.array(values, np.int64) for name, values in self.lists.items()}
        made["admitted_computed_tokens"] = made.pop("admitted_hit_tokens")
        made |= {"first_token_ns": self.first, "finish_ns": self.finish}
        made |= {"first_cached_tokens": self.cached, "first_loaded_tokens": self.loaded}
        made["preemptions"] = np.array([request.preemptions for request in self.requests])
        return made


def replay(config: dict[str, Any], workload: Columns) -> Columns:
    """Drive the scheduler as the recordings' was driven."""
    return Engine(config, workload).run()


if __name__ == "__main__":
    compare(replay, sys.argv[1:])
