"""The arrays of a run: made for a workload, and made larger when a run needs more than was guessed."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.sim import records
from prebleexp.sim.children import copy_children
from prebleexp.sim.engine import NEW_TOKEN_RATIO
from prebleexp.sim.events import ARRIVE, KIND_BITS, STEP, encode, push
from prebleexp.sim.memory import NO_COST, memory, slots
from prebleexp.sim.records import Batches, Cache, Events, Means, Prompts, Scratch, Sim, Window
from prebleexp.sim.types import Floats, Ints, Workload

NONE = -1
MOST_PREFILL_SHARE = 6
"""a prefill may take this fraction of KV memory, or the context length if that is more"""


def _records(rows: int, dtype: np.dtype[Any]) -> Any:
    return np.zeros(rows, dtype).view(np.recarray)


def allocate(
    workload: Workload,
    gpus: int,
    kv_tokens: int,
    context_length: int,
    expected_output: Floats | None = None,
    groups: int = 0,
    slack: int = 0,
    delay_s: float = 0.0,
    refined: tuple[Ints, Floats] | None = None,
) -> Sim:
    """State at time 0: all arrivals and every GPU's first step in the event queue, as the release pushes them. The
    router hears of an arrival `delay_s` later. `refined` is each request's length class, and what is left by class and
    tokens produced."""
    n = len(workload)
    rows = min(max(16, 2 * n // gpus), 2048)
    control = _records(1, records.CONTROL)[0]
    control.unfinished, control.events, control.request, control.parking = n, n + gpus, NONE, 1
    times = np.concatenate([workload.arrival_s + delay_s, np.zeros(2 * gpus + 3)])
    codes = np.zeros(len(times), np.int64)
    codes[:n] = np.arange(n) << KIND_BITS | ARRIVE
    sim = Sim(
        control=control,
        gpus=_gpus(gpus, kv_tokens, max(context_length, kv_tokens // MOST_PREFILL_SHARE), rows),
        requests=_requests(workload, expected_output),
        prompts=_prompts(workload),
        jobs=_jobs(workload),
        events=Events(times, codes),
        cache=_cache(control, gpus, gpus + min(4 * n, 1 << 16)),
        batches=Batches(
            np.zeros(gpus * rows, np.int64), np.zeros(gpus * rows, np.int32), np.zeros(gpus * rows, np.int32)
        ),
        window=Window(np.zeros(gpus * rows), np.zeros(gpus * rows, np.int64), np.zeros(gpus * rows, np.int64)),
        means=_means(workload),
        left=np.zeros((0, 0)) if refined is None else np.ascontiguousarray(refined[1]),
        turns=np.zeros((gpus + 1, groups + 1), np.int64),
        scratch=Scratch(*(np.zeros(n, np.int32) for _ in Scratch._fields)),
    )
    sim.gpus.slack = slack
    if refined is not None:
        sim.requests.length_class = refined[0]
    _push_steps(sim, gpus)
    return sim


def _push_steps(sim: Sim, gpus: int) -> None:
    sim.control.events -= gpus
    for g in range(gpus):
        push(sim.events, sim.control, 0.0, encode(STEP, g))


def _gpus(gpus: int, kv_tokens: int, max_prefill: int, rows: int) -> Any:
    state = _records(gpus, records.GPU)
    state.kv_free = state.least_kv_free = kv_tokens
    state.new_token_ratio = NEW_TOKEN_RATIO
    state.max_prefill = max_prefill
    state.queue_head = state.queue_tail = state.lru = state.partial = NONE
    state.batch_capacity = state.window_capacity = rows
    state.batch_offset = state.window_offset = np.arange(gpus) * rows
    return state


def _means(workload: Workload) -> Means:
    n, groups = len(workload), 2 + int(workload.prefix_group.max(initial=-1))
    return Means(np.zeros(n), np.zeros(n, np.int32), np.zeros(groups, np.int64), np.zeros(groups, np.int64))


def _requests(workload: Workload, expected_output: Floats | None) -> Any:
    state = _records(len(workload), records.REQUEST)
    state.informed = expected_output is not None
    state.expected_output = workload.max_new_tokens if expected_output is None else expected_output
    state.index = np.arange(len(workload))
    state.first_segment = workload.segment_offsets[:-1]
    state.segments = np.diff(workload.segment_offsets)
    for name in ("arrival_s", "prompt_tokens", "max_new_tokens", "prefix_group"):
        state[name] = getattr(workload, name)
    return state


def _prompts(workload: Workload) -> Prompts:
    ends = np.cumsum(workload.segment_tokens, dtype=np.int64)
    first = workload.segment_offsets[:-1]
    before = np.repeat(ends[first] - workload.segment_tokens[first], np.diff(workload.segment_offsets))
    return Prompts(workload.segment_ids, (ends - before).astype(np.int32))


def _jobs(workload: Workload) -> Any:
    state = _records(len(workload), records.JOB)
    state.gpu = state.next = NONE
    state.target = np.minimum(workload.output_tokens, workload.max_new_tokens)
    state.ttft_s = state.latency_s = state.finish_s = state.overhead_s = state.router_wait_s = np.nan
    return state


def _cache(control: Any, gpus: int, rows: int) -> Cache:
    nodes = _records(rows, records.NODE)
    nodes.parent[:gpus] = NONE
    nodes.locks[:gpus] = 1
    nodes.owner[:gpus] = NONE
    _add_free_nodes(control, nodes, gpus)
    return Cache(nodes, *slots(rows), *_evictions(rows))


def _add_free_nodes(control: Any, nodes: Any, first: int) -> None:
    """Put the nodes from `first` on at the head of the free list."""
    nodes.parent[first:] = np.arange(first + 1, len(nodes) + 1)
    if len(nodes) > first:
        nodes.parent[-1] = control.free_node if control.free_nodes else NONE
        control.free_node = first
        control.free_nodes += len(nodes) - first


def _evictions(nodes: int) -> tuple[Any, Any]:
    return np.zeros(nodes, np.int32), np.zeros(nodes, np.int32)


def with_more_nodes(sim: Sim) -> Sim:
    """Twice the cache nodes, or more if the next step may need them."""
    gpu = sim.gpus[sim.control.gpu]
    old = len(sim.cache.nodes)
    nodes = _records(max(2 * old, old + 5 * int(gpu.queued) + 2 * int(gpu.running)), records.NODE)
    nodes[:old] = sim.cache.nodes
    _add_free_nodes(sim.control, nodes, old)
    cache = Cache(nodes, *slots(len(nodes)), *_evictions(len(nodes)))
    copy_children(cache, sim.cache)
    return sim._replace(cache=cache)


def with_more_rows(sim: Sim) -> Sim:
    """Twice the batch and hit-window rows of the GPU that lacks them, or more if the next step may need them.

    Its rows move to the end of the arrays; those it had stay unused.
    """
    gpu = sim.gpus[sim.control.gpu]
    wanted = 2 * max(int(gpu.batch_capacity), int(gpu.running + gpu.queued))
    moved = {}
    for name, pool in (("batch", sim.batches), ("window", sim.window)):
        offset, capacity = int(gpu[f"{name}_offset"]), int(gpu[f"{name}_capacity"])
        first = int(gpu.window_first) if name == "window" else 0
        moved[name] = [
            np.concatenate(
                [column, np.roll(column[offset : offset + capacity], -first), np.zeros(wanted - capacity, column.dtype)]
            )
            for column in pool
        ]
        gpu[f"{name}_offset"], gpu[f"{name}_capacity"] = len(pool[0]), wanted
    gpu.window_first = 0
    return sim._replace(batches=Batches(*moved["batch"]), window=Window(*moved["window"]))


def _example() -> Sim:
    one = np.ones(1, np.int32)
    workload = Workload(np.zeros(1), one, one, one, one, np.array([0, 1]), one, one)
    return allocate(workload, gpus=1, kv_tokens=8, context_length=8)


EXAMPLE = _example()
"""its type is that of every run's state"""
EXAMPLE_COST = NO_COST
EXAMPLE_MEMORY = memory([0], [0.0])
