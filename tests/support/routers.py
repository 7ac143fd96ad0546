"""A policy by itself: asked and told as the event loop does, with made-up GPUs."""

from __future__ import annotations

import copy
from typing import Any

from prebleexp.hardware.preble import PrebleFit
from prebleexp.policies.base import Policy
from prebleexp.sim import world
from prebleexp.sim.addresses import COST
from prebleexp.sim.handles import Block
from prebleexp.sim.plug import Plug
from prebleexp.sim.records import NONE, REPORT, View
from prebleexp.sim.signatures import COST as COSTS
from prebleexp.sim.types import Floats, Setup, Workload, records


def cost_of_a_token(ms: float = 1.0, kv_tokens: int = 1 << 30) -> PrebleFit:
    """Every new token of a prefill, and every running request of a decode step, takes `ms`."""
    return PrebleFit(((0, 0, ms, 0),), (0, 0, 0, 0), (0, 0), (1 << 40, 0, 0, 0, 0), 1, kv_tokens)


class Router:
    """Holds what the policy remembers, what it sees, and what was routed where."""

    def __init__(
        self,
        policy: Policy,
        workload: Workload,
        gpus: int,
        hardware: PrebleFit,
        expected: Floats | None = None,
        **more: Any,
    ) -> None:
        self.policy, self.workload = policy, workload
        sizes = (len(workload), hardware.kv_tokens, hardware.context_length)
        setup = Setup(gpus, 0, *sizes, workload, **more)
        cache = world.told(world.made_cache(setup, gpus), expected)
        reports = records(gpus, REPORT)
        reports.kv_free = hardware.kv_tokens
        self._cost = Plug(hardware, hardware.kernels(), hardware.start(), COST, COSTS)
        self._view = Block(world.made_view(cache.requests, cache.prompts, reports, self._cost.repeated(gpus)))
        self._memory = Block(policy.start(setup))
        self.routed: list[int] = []
        """the GPU of each request so far"""
        self.unfinished: list[int] = []

    def __deepcopy__(self, memo: Any) -> Router:
        """With arrays of its own."""
        other = copy.copy(self)
        other._view = Block(_copied(self._view.value._replace(costs=NONE))._replace(costs=self._view.value.costs))
        other._memory = Block(_copied(self._memory.value))
        other.routed, other.unfinished = list(self.routed), list(self.unfinished)
        return other

    @property
    def memory(self) -> Any:
        return self._memory.value

    @property
    def seen(self) -> View:
        view: View = self._view.value
        return view

    @property
    def gpus(self) -> Any:
        """What GPUs report."""
        return self.seen.gpus

    @property
    def sent(self) -> Any:
        return self.seen.sent

    @property
    def requests(self) -> Any:
        return self.seen.requests

    @property
    def handles(self) -> tuple[Any, Any]:
        """What compiled functions are given: the policy's memory, and the view."""
        return self._memory.handle, self._view.handle

    def route(self, now: float) -> int:
        """Route the next request."""
        request, kind = len(self.routed), type(self.policy)
        if hasattr(kind, "lacks_room") and kind.lacks_room(self.policy, *self.handles, request):
            self._memory = Block(kind.with_more_room(self.policy, *self.handles, request))
        gpu = int(self.policy.route(*self.handles, request, float(now)))  # of the type that the loop has it
        assert gpu in self.seen.candidates
        self.unfinished.append(request)
        self.routed.append(gpu)
        self.requests[request].gpu = gpu
        self.sent[gpu].outstanding += 1
        return gpu

    def finish(self, request: int, now: float, ttft_s: float = 0.0, tpot_s: float = 0.0) -> None:
        """`tpot_s`: (latency − TTFT) / output tokens."""
        row = self.requests[request]
        self.unfinished.remove(request)
        self.sent[row.gpu].outstanding -= 1
        row.ttft_s, row.latency_s, row.output_seen = ttft_s, ttft_s + tpot_s, 1
        self.policy.finished(*self.handles, request, float(now))

    def lose(self, gpu: int, now: float) -> None:
        """The GPU is lost, which ends its requests, and comes back."""
        for request in [one for one in self.unfinished if self.requests[one].gpu == gpu]:
            self.unfinished.remove(request)
            self.sent[gpu].outstanding -= 1
            self.requests[request].output_seen = 0
            self.policy.finished(*self.handles, request, float(now))
        for _ in range(2 if hasattr(self.policy, "changed") else 0):
            self.policy.changed(*self.handles, gpu, float(now))

    def evicted(self, request: int, gpu: int, tokens: int, now: float = 0.0) -> None:
        if hasattr(self.policy, "evicted"):
            self.policy.evicted(*self.handles, request, gpu, tokens, float(now))


def _copied(value: Any) -> Any:
    if hasattr(value, "_fields"):
        return type(value)(*map(_copied, value))
    return value.copy() if hasattr(value, "copy") else value


def links_of(tree: Any, node: int) -> list[int]:
    """The links of a node."""
    found, link = [], node
    while link != NONE and tree.rows[link].gpu != NONE:
        found.append(link)
        link = int(tree.rows[link].next)
    return found


def path_of(tree: Any, leaf: int) -> list[int]:
    """The nodes from a leaf up to the root, without it."""
    found = []
    while leaf != 0:
        found.append(leaf)
        leaf = int(tree.rows[leaf].parent)
    return found


def free_rows(rows: Any, field: str, head: int, used: int) -> list[int]:
    """The rows of a free list, and those that were never used."""
    found = []
    while head != NONE:
        found.append(head)
        head = int(rows[field][head])
    return [*found, *range(used, len(rows))]
