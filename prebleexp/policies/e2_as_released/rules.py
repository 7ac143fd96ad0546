"""What happens on arrival and on finish of a request."""

from __future__ import annotations

import math

from prebleexp.policies import tpot
from prebleexp.policies.candidates import is_candidate, served_by_one
from prebleexp.policies.e2_as_released.loads import add_request_cost, fill_loads
from prebleexp.policies.e2_as_released.memory import Memory
from prebleexp.policies.e2_as_released.rebalance import rebalance
from prebleexp.policies.e2_as_released.tree import insert, touch_path
from prebleexp.policies.e2_as_released.window import inherit, record, sample
from prebleexp.policies.prefix_tree import find_link, own_tokens, serve, serves, units
from prebleexp.policies.prefixes import prefix_node
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import GPUS, NONE, View

HIT_RATIO = 0.7
"""from which a GPU is chosen for it"""
WARM_UP = 50
"""requests a GPU before there is rebalancing"""
NEAR = 3
"""leaves less than this deeper than their important node rebalance"""


@compiled
def route(mine: Memory, view: View, request: int, now: float) -> int:
    tree, row = mine.tree, view.requests[request]
    leaf, cut = insert(tree, view, request)
    if row.informed:
        tree.rows[leaf].expected_output = row.expected_output
    if cut != NONE:
        inherit(tree, cut)
    node = prefix_node(tree, leaf)
    own = own_tokens(tree, leaf)
    shared = tree.rows[leaf].tokens - own
    gpu = _exploit(mine, view, leaf) if own < shared else NONE
    if gpu == NONE:
        gpu = _explore(mine, view, leaf)
    _assign(mine, leaf, gpu, units(row))
    record(mine, view, node, leaf, request, now)
    if tree.rows[leaf].depth - tree.rows[node].depth < NEAR and tree.control.routed >= WARM_UP * len(view.sent):
        rebalance(mine, view, now)
    return gpu


@compiled
def _exploit(mine: Memory, view: View, leaf: int) -> int:
    """Of the GPUs that serve the nearest node that any serves, the one of least load; or what stands where it does
    (Q1). -1 if none of them is a candidate."""
    tree, node = mine.tree, served_by_one(mine.tree, view.candidates, len(view.sent), leaf)
    if tree.rows[node].serving == 1:
        link = node
        while not tree.rows[link].serves:
            link = int(tree.rows[link].next)
        gpu = int(tree.rows[link].gpu)
        return gpu if is_candidate(view.candidates, gpu) else NONE
    _fill(mine, view, leaf)
    best, best_position, position = NONE, 0, 0
    for gpu in view.candidates:
        if serves(tree, node, gpu):
            if best == NONE or mine.loads[gpu] < mine.loads[best]:
                best, best_position = gpu, position
            position += 1
    if best != NONE and mine.quirks.candidate_position and is_candidate(view.candidates, best_position):
        return best_position
    return best


@compiled
def _explore(mine: Memory, view: View, leaf: int) -> int:
    """The GPU of the highest hit ratio if that is high, else the one of least load."""
    best, best_ratio = view.candidates[0], -1.0
    view.work[GPUS] += len(view.candidates)
    for gpu in view.candidates:
        prompt = view.gpus[gpu].window_prompt_tokens
        ratio = view.gpus[gpu].window_hit_tokens / prompt if prompt > 0 else 0.0
        if ratio > best_ratio:
            best, best_ratio = gpu, ratio
    if best_ratio >= HIT_RATIO:
        return best
    _fill(mine, view, leaf)
    best = view.candidates[0]
    for gpu in view.candidates:
        if mine.loads[gpu] < mine.loads[best]:
            best = gpu
    return best


@compiled
def _fill(mine: Memory, view: View, leaf: int) -> None:
    fill_loads(mine, view, 0)
    if not mine.quirks.no_request_cost:
        add_request_cost(mine, view, leaf)


@compiled
def _assign(mine: Memory, leaf: int, gpu: int, output: int) -> None:
    """The GPU serves the prompt's nodes from now on, and has one more unfinished request there (On arrival, 4)."""
    tree, node = mine.tree, leaf
    while node != NONE:
        link = tree.rows[serve(tree, node, gpu)]
        link.active += 1
        link.output += output
        node = int(tree.rows[node].parent)


@compiled
def finish(mine: Memory, view: View, request: int, now: float) -> None:
    tree, seen, turn = mine.tree, view.requests[request], int(mine.turn[request])
    row = mine.routed[turn]
    leaf, output, gpu = int(row.leaf), row.output, int(seen.gpu)
    touch_path(tree, leaf)
    ended = not math.isnan(seen.latency_s)  # else it gave up, was lost, or is moved
    if ended:
        sample(mine, prefix_node(tree, leaf), gpu, turn, seen.ttft_s, now)
    node = leaf
    while node != NONE:
        link = tree.rows[find_link(tree, node, gpu)]
        link.active -= 1
        link.output -= output
        node = int(tree.rows[node].parent)
    if not ended:
        return
    tpot_s = (seen.latency_s - seen.ttft_s) / seen.output_seen
    if tpot_s != 0.0:  # an output of one token has none
        tpot.observe(mine.tpots, gpu, tpot_s)
