"""The load of a GPU for a request, in GPU seconds: L + M + P (spec: e2)."""

from __future__ import annotations

from typing import Any

from prebleexp.policies.e2_as_described.layout import (
    DECODE,
    EVICTION_COST,
    HELD,
    LOAD_S,
    NO_DECODE,
    OLDEST,
    OUTPUT,
    RECOMPUTE,
    REMAINING,
    REQUEST_COST,
    REQUESTS,
    UNFINISHED,
    WINDOW_S,
    WORK_NS,
    column,
    scratch,
    tpot_s,
)
from prebleexp.policies.prefix_tree import own_tokens
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import prefill_s, request_ms
from prebleexp.sim.memory import ENTRIES, GPUS, NONE, OUTPUT_UNIT, Memory

NS = 1e-9


@compiled
def alone_s(memory: Memory, new: int, length: int) -> float:
    """The prefill of one request of `new` tokens that ends at `length`."""
    return prefill_s(memory.cost, 1, new, length, new, request_ms(memory.cost, new, length))


@compiled
def missing_s(memory: Memory, gpus: int, request: Any, gpu: int) -> float:
    """P: the prefill of the tokens of the request that the GPU does not hold; one at least is computed."""
    missing = request.prompt_tokens - int(memory.floats[scratch(gpus, HELD) + gpu])
    return alone_s(memory, max(1, missing), request.prompt_tokens)


@compiled
def load_s(memory: Memory, gpus: Any, request: Any, gpu: int, now: float) -> float:
    """`HELD` must be filled in."""
    memory.work[GPUS] += 1
    if memory.ints[RECOMPUTE]:
        recompute(memory, len(gpus), gpu, now)
    load = window_s(memory, gpus, gpu)
    if memory.ints[EVICTION_COST]:
        load += eviction_s(memory, gpus, request, gpu)
    if memory.ints[REQUEST_COST]:
        load += missing_s(memory, len(gpus), request, gpu)
    memory.floats[scratch(len(gpus), LOAD_S) + gpu] = load
    return load


@compiled
def window_s(memory: Memory, gpus: Any, gpu: int) -> float:
    """L: prefills of the window's requests, and decoding: what its unfinished requests still have to generate, as far
    as expected (REMAINING), or all of the window's output (TOTAL)."""
    count = len(gpus)
    seconds = memory.ints[column(count, WORK_NS) + gpu] * NS
    if memory.ints[DECODE] == NO_DECODE:
        return seconds
    if memory.ints[DECODE] == REMAINING:
        output = max(
            0.0, memory.ints[column(count, UNFINISHED) + gpu] / OUTPUT_UNIT - gpus[gpu].generated - gpus[gpu].ahead
        )
    else:
        output = memory.ints[column(count, OUTPUT) + gpu] / OUTPUT_UNIT
    return seconds + output * tpot_s(memory, count, gpu)


@compiled
def eviction_s(memory: Memory, gpus: Any, request: Any, gpu: int) -> float:
    """M: if the GPU must evict to hold the request's new tokens and its output, what it would cost to compute again
    what goes first, each node times the share of the GPU's requests that go through it."""
    tree = memory.tree
    wanted = request.prompt_tokens - memory.floats[scratch(len(gpus), HELD) + gpu] + request.expected_output
    wanted -= gpus[gpu].kv_free
    requests = memory.ints[column(len(gpus), REQUESTS) + gpu]
    link, seconds = memory.ints[column(len(gpus), OLDEST) + gpu], 0.0
    while wanted > 0 and link != NONE:
        record = tree.links[link]
        if record.active == 0:
            memory.work[ENTRIES] += 1
            own = own_tokens(tree, int(record.node))
            wanted -= own
            if record.requests > 0:
                seconds += alone_s(memory, own, int(tree.nodes[record.node].tokens)) * (record.requests / requests)
        link = int(record.newer)
    return seconds


@compiled
def recompute(memory: Memory, gpus: int, gpu: int, now: float) -> None:
    """Sum the window anew for a GPU, from the requests that were routed. The sums that are kept up to date must be the
    same: whatever differs makes a difference to the result."""
    tree, begin = memory.tree, now - memory.floats[WINDOW_S]
    work, output, unfinished, requests = 0, 0, 0, 0
    for turn in range(tree.control.routed):
        row = tree.routed[tree.routed[turn].turn]
        if row.gpu != gpu:
            continue
        if row.time >= begin:
            work += row.prefill_ns
            output += row.output
            requests += 1
        if not row.finished:
            unfinished += row.output
    memory.ints[column(gpus, WORK_NS) + gpu] = work
    memory.ints[column(gpus, OUTPUT) + gpu] = output
    memory.ints[column(gpus, UNFINISHED) + gpu] = unfinished
    memory.ints[column(gpus, REQUESTS) + gpu] = requests
